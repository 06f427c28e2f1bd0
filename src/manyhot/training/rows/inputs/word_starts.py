"""The first letters of words, which inflected forms share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manyhot.engines.native import words as native
from manyhot.training.rows.inputs.words import LEAST_NATIVE, Array, cut_out

# Two lengths, since one merges too many words and the other too few.
STARTS = (4, 5)


def number_starts(words: Sequence[str], number: dict[str, int] | None = None) -> tuple[Array, list[str]]:
    """``(numbers [W, 2], starts)`` of the words' first letters, -1 if a word is shorter; without ``number`` all get one.

    Example:
        >>> number_starts(["tomato", "tomatoes", "pie"])[0].tolist()
        [[0, 1], [0, 1], [-1, -1]]
    """
    if number is None and len(words) >= LEAST_NATIVE and native.available()[0]:
        return _fresh_starts(words)
    known: dict[str, int] = {} if number is None else number
    table = np.full((len(words), len(STARTS)), -1, dtype=np.int64)
    for row, word in enumerate(words):
        for column, letters in enumerate(STARTS):
            if len(word) >= letters:
                start = word[:letters]
                table[row, column] = known.setdefault(start, len(known)) if number is None else known.get(start, -1)
    return table, list(known) if number is None else []


def _fresh_starts(words: Sequence[str]) -> tuple[Array, list[str]]:
    """``number_starts`` without ``number``, by the native engine."""
    sizes = np.fromiter(map(len, words), dtype=np.int64, count=len(words))
    joined = "".join(words)
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    letters = np.asarray(STARTS)
    starts = np.repeat(sizes.cumsum() - sizes, len(STARTS))
    lengths = np.where(sizes[:, None] >= letters, letters, -1).ravel()
    table, firsts = native.number(codes, starts, lengths)
    return table.reshape(-1, len(STARTS)).astype(np.int64), cut_out(joined, starts[firsts], lengths[firsts])
