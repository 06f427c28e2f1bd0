"""JSON lines of a plain shape by the native engine: an object with one string and one list of strings, without a backslash."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import numpy as np

from manyhot.engines.native import library
from manyhot.engines.native.engine import available as available

_INTEGER, _POINTER = ctypes.c_int64, ctypes.c_void_p


class ScannedLines(NamedTuple):
    """The lines of a block, N of them."""

    ends: list[int]  # where each ends: at its line feed, or the end of the block
    texts: tuple[list[int], list[int]]  # where its text starts, and where it ends
    counts: list[int]  # number of labels; -1 if the line is not plain
    labels: tuple[list[int], list[int]]  # where each label of the plain lines starts, and where it ends


@functools.cache
def _scan() -> Any:
    found = library.load_for("lines")
    found.manyhot_lines_scan.argtypes = [ctypes.c_char_p, _INTEGER, ctypes.c_char_p, ctypes.c_char_p, *[_POINTER] * 4]
    found.manyhot_lines_scan.restype = _INTEGER
    return found.manyhot_lines_scan


def scan(block: bytes, text: str, labels: str) -> ScannedLines:
    """Scan the lines of ``block``, which must be UTF-8. ``text`` and ``labels`` are keys, which must not contain a zero byte.

    Example:
        >>> scan(b'{"a": "x", "b": ["p", "q"]}\\n{"a": 1}', "a", "b")
        ScannedLines(ends=[27, 36], texts=([7, 28], [8, 28]), counts=[2, -1], labels=([18, 23], [19, 24]))
    """
    most, quotes = block.count(b"\n") + 1, block.count(b'"') // 2 + 1
    ends, texts, counts = np.empty(most, np.int64), np.empty((most, 2), np.int64), np.empty(most, np.int64)
    spans = np.empty((quotes, 2), np.int64)
    pointers = (each.ctypes.data for each in (ends, texts, counts, spans))
    lines = _scan()(block, len(block), text.encode(), labels.encode(), *pointers)
    counts = counts[:lines]
    found = int(counts[counts > 0].sum())
    return ScannedLines(ends[:lines].tolist(), _columns(texts[:lines]), counts.tolist(), _columns(spans[:found]))


def _columns(spans: Any) -> tuple[list[int], list[int]]:
    return spans[:, 0].tolist(), spans[:, 1].tolist()
