"""The words of texts by the native engine: split, numbered in the order of first appearance, and counted per row."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from manyhot.engines.native import library
from manyhot.engines.native.engine import available as available

Array = np.ndarray[Any, Any]
# Marks the end of a text; texts that contain it cannot be split here.
END = "\0"
LETTER, MARK, TEXT_END = 1, 2, 3
_INTEGER, _POINTER = ctypes.c_int64, ctypes.c_void_p


@functools.cache
def _library() -> Any:
    found = library.load_for("words")
    for name, arguments in (
        ("cut", [_POINTER, _INTEGER, _POINTER, _POINTER, _POINTER, _POINTER]),
        ("number", [_POINTER, _POINTER, _POINTER, _INTEGER, _POINTER, _POINTER]),
        ("count", [_POINTER, _INTEGER, *[_POINTER] * 4]),
        ("weigh", [_POINTER, _INTEGER, _POINTER, _POINTER, _INTEGER, *[_POINTER] * 6]),
        ("pairs", [_POINTER, _INTEGER, _POINTER, _POINTER, _INTEGER, _INTEGER, _INTEGER, *[_POINTER] * 3]),
    ):
        function = getattr(found, f"manyhot_words_{name}")
        function.argtypes, function.restype = arguments, _INTEGER
    found.manyhot_words_frequencies.argtypes = [_POINTER, _INTEGER, _POINTER, _POINTER, _INTEGER, _POINTER, _POINTER]
    found.manyhot_words_frequencies.restype = None
    return found


def cut(texts: Sequence[str], kind_of: Callable[[str], int]) -> tuple[str, Array, Array, Array, Array] | None:
    """The words of texts in lower case; None if a text contains ``END``.

    Args:
        texts: ``R`` texts.
        kind_of: ``LETTER``, ``MARK`` or 0 for a character; a word is a run of letters, or one mark.

    Returns:
        ``(all, codes, starts [T], lengths [T], offsets [R + 1])``: all texts joined, their characters as numbers, the positions
        and lengths of the words, and the offsets of each text's words.
    """
    # The lower case of sigma depends on whether it ends its word; joining with END does not change that.
    joined = END.join([*texts, ""]).lower()
    if joined.count(END) != len(texts):
        return None
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    kinds = np.zeros(0x110000, dtype=np.uint8)
    kinds[codes] = 1
    for code in np.flatnonzero(kinds).tolist():
        kinds[code] = kind_of(chr(code))
    kinds[ord(END)] = TEXT_END
    # Space for a word at every character. The system allocates memory only when it is written to.
    size, offsets = len(codes), np.zeros(len(texts) + 1, np.int64)
    starts, lengths = np.empty(size, np.int64), np.empty(size, np.int32)
    pointers = (each.ctypes.data for each in (kinds, starts, lengths, offsets[1:]))
    count = _library().manyhot_words_cut(codes.ctypes.data, size, *pointers)
    return joined, codes, starts[:count].copy(), lengths[:count].copy(), offsets


def number(codes: Array, starts: Array, lengths: Array) -> tuple[Array, Array]:
    """``(numbers [T], firsts)``: words numbered in the order of first appearance; words of negative length have -1."""
    starts, lengths = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(lengths, np.int32)
    numbers, firsts = np.empty(len(starts), np.int32), np.empty(len(starts), np.int64)
    pointers = (each.ctypes.data for each in (numbers, firsts))
    found = _library().manyhot_words_number(codes.ctypes.data, starts.ctypes.data, lengths.ctypes.data, len(starts), *pointers)
    if found < 0:
        raise MemoryError("words: not enough memory for a table of all distinct words.")
    return numbers, firsts[:found].copy()


def count(numbers: Array, offsets: Array) -> tuple[Array, Array, Array]:
    """``(columns, counts, offsets)`` of CSR: how often each number occurs in each row; negative numbers are left out."""
    numbers, offsets = np.ascontiguousarray(numbers, np.int32), np.ascontiguousarray(offsets, np.int64)
    found, counts = np.empty(len(numbers), np.int32), np.empty(len(numbers), np.float32)
    ends = np.zeros(len(offsets), np.int64)
    pointers = (each.ctypes.data for each in (numbers, found, counts, ends[1:]))
    size = _library().manyhot_words_count(offsets.ctypes.data, len(offsets) - 1, *pointers)
    if size < 0:
        raise MemoryError("words: not enough memory for one row.")
    return found[:size].copy(), counts[:size].copy(), ends


def frequencies(words: Array, offsets: Array, columns: Array, width: int) -> Array:
    """int64 ``[width]``: the number of rows that contain each feature (document frequency).

    Args:
        words: int32 ``[T]``, numbers of words.
        offsets: int64 ``[R + 1]``; row ``r`` has the words from ``offsets[r]`` to ``offsets[r + 1]``.
        columns: int32 ``[W, C]``, the features of each word; negative ones are skipped.
        width: the number of features.
    """
    seen, counts = np.full(width, -1, np.int32), np.zeros(width, np.int64)
    pointers = (each.ctypes.data for each in (seen, counts))
    rows, call = len(offsets) - 1, _library().manyhot_words_frequencies
    call(offsets.ctypes.data, rows, words.ctypes.data, columns.ctypes.data, columns.shape[1], *pointers)
    return counts


def pairs(words: Array, offsets: Array, places: Array, numbers: Array, part: int, parts: int) -> tuple[Array, Array]:
    """``(keys, counts)`` of the pairs of neighbouring words in a row, and how many rows have each.

    Args:
        words: int32 ``[T]``, numbers of words.
        offsets: int64 ``[R + 1]``, where the words of each row start.
        places: int32 ``[W]``; a pair's key is ``places[first] * W + second``, and words with a negative place are in none.
        numbers: int64 ``[T]``; gets ``number * parts + part`` where a pair starts that is counted here.
        part: which of the pairs are counted.
        parts: how many parts there are, which may be counted at the same time.
    """
    keys, counts = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    pointers = (each.ctypes.data for each in (numbers, keys, counts))
    call, rows = _library().manyhot_words_pairs, len(offsets) - 1
    given = (offsets.ctypes.data, rows, words.ctypes.data, places.ctypes.data, len(places))
    found = call(*given, part, parts, *pointers)
    if found < 0:
        raise MemoryError("words: not enough memory for a table of all pairs of words.")
    return keys[:found].copy(), counts[:found].copy()


def weigh(words: Array, offsets: Array, columns: Array, idf: Array, more: Array | None = None) -> tuple[Array, Array, Array]:
    """``(columns, values, offsets)`` of CSR: ``(1 + log count) * idf`` of each feature, with rows of norm 1.

    Arguments are those of ``frequencies``, the float32 ``idf`` of each feature, and a further feature ``more`` int32 ``[T]`` of
    each place, or a negative number.
    """
    lengths = np.diff(offsets)
    per = columns.shape[1] + (more is not None)
    size = int(offsets[-1] - offsets[0]) * per
    logs = np.zeros(int(lengths.max(initial=0)) * per + 1, np.float32)
    logs[1:] = 1 + np.log(np.arange(1, len(logs), dtype=np.float32))
    found, values, ends = np.empty(size, np.int32), np.empty(size, np.float32), np.zeros(len(offsets), np.int64)
    pointers = (each.ctypes.data for each in (logs, idf, found, values, ends[1:]))
    given = (offsets.ctypes.data, len(lengths), words.ctypes.data, columns.ctypes.data, columns.shape[1])
    count = _library().manyhot_words_weigh(*given, None if more is None else more.ctypes.data, *pointers)
    if count < 0:
        raise MemoryError("words: not enough memory for one row.")
    return found[:count], values[:count], ends
