"""JSON lines of a plain shape by the native engine: an object with one string and one list of strings, without a backslash."""

from __future__ import annotations

import ctypes
import functools
import secrets
from array import array
from typing import Any, NamedTuple

import numpy as np

from manyhot.engines.native import library
from manyhot.engines.native.engine import available as available

Array = np.ndarray[Any, Any]
_INTEGER, _POINTER, _BYTES = ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p


class ScannedLines(NamedTuple):
    """The lines of a block, N of them."""

    ends: list[int]  # where each ends: at its line feed, or the end of the block
    texts: list[list[int]]  # where its text starts, and where it ends
    counts: Array  # int64 [N]: number of labels; -1 if the line is not plain
    labels: Array  # int64 [P, 2]: where each label of the plain lines starts, and where it ends


@functools.cache
def _library() -> Any:
    found = library.load_for("lines")
    for name, arguments in (
        ("scan", [_BYTES, _INTEGER, _BYTES, _BYTES, *[_POINTER] * 4]),
        ("number", [_BYTES, _POINTER, _INTEGER, _BYTES, _POINTER, _INTEGER, ctypes.c_uint64, _POINTER, _POINTER]),
    ):
        function = getattr(found, f"manyhot_lines_{name}")
        function.argtypes, function.restype = arguments, _INTEGER
    return found


def scan(block: bytes, text: str, labels: str) -> ScannedLines:
    """Scan the lines of ``block``, which must be UTF-8. ``text`` and ``labels`` are keys, which must not contain a zero byte.

    Example:
        >>> found = scan(b'{"a": "x", "b": ["p", "q"]}\\n{"a": 1}', "a", "b")
        >>> found.ends, found.texts, found.counts.tolist(), found.labels.tolist()
        ([27, 36], [[7, 8], [28, 28]], [2, -1], [[18, 19], [23, 24]])
    """
    most, quotes = block.count(b"\n") + 1, block.count(b'"') // 2 + 1
    ends, texts, counts = np.empty(most, np.int64), np.empty((most, 2), np.int64), np.empty(most, np.int64)
    spans = np.empty((quotes, 2), np.int64)
    pointers = (each.ctypes.data for each in (ends, texts, counts, spans))
    lines = _library().manyhot_lines_scan(block, len(block), text.encode(), labels.encode(), *pointers)
    counts = counts[:lines]
    found = int(counts[counts > 0].sum())
    return ScannedLines(ends[:lines].tolist(), texts[:lines].tolist(), counts, spans[:found])


class Names:
    """Names by number, in the order of first appearance.

    Example:
        >>> names = Names()
        >>> names.numbers(b"salt and salt", np.array([[0, 4], [5, 8], [9, 13]]))
        (array([0, 1, 0]), [0, 1])
        >>> names.numbers(b"and pepper", np.array([[0, 3], [4, 10]]))
        (array([1, 2]), [1])
    """

    def __init__(self) -> None:
        self.joined, self.ends = bytearray(), array("q")
        self.seed = secrets.randbits(64)

    def numbers(self, block: bytes, spans: Array) -> tuple[Array, list[int]]:
        """``(numbers [P], firsts)`` of the names at ``spans [P, 2]`` of a block; ``firsts`` are the places of new names."""
        spans = np.ascontiguousarray(spans, np.int64)
        numbers, firsts = np.empty(len(spans), np.int64), np.empty(len(spans), np.int64)
        known = (bytes(self.joined), np.frombuffer(self.ends, np.int64).ctypes.data if self.ends else None, len(self.ends))
        pointers = (each.ctypes.data for each in (numbers, firsts))
        found = _library().manyhot_lines_number(block, spans.ctypes.data, len(spans), *known, self.seed, *pointers)
        if found < 0:
            raise MemoryError("lines: not enough memory for a table of all distinct labels.")
        new = firsts[:found].tolist()
        for first, last in spans[new].tolist():
            self.joined += block[first:last]
            self.ends.append(len(self.joined))
        return numbers, new
