"""Texts to weighted words and first letters in one pass of the native engine, for features of single words alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from manyhot.engines.native import words as native
from manyhot.training.rows.inputs.words import Array, Runs, cut_words, in_threads, number_starts, positions, row_parts


class CutTexts:
    """The words of texts as numbers, with the words themselves.

    Args:
        flat: int32 ``[T]``, all words by number.
        offsets: int64 ``[R + 1]``, where the words of each text start.
        words: the distinct words.
    """

    def __init__(self, flat: Array, offsets: Array, words: list[str]) -> None:
        self.flat, self.offsets, self.words = flat, offsets, words

    @classmethod
    def of(cls, texts: Sequence[str]) -> CutTexts | None:
        """The words of texts; None if the native engine cannot cut them or there are too few texts."""
        found = cut_words(texts)
        return None if found is None else cls(*found)

    def _parts(self) -> list[Array]:
        return [self.offsets[first : last + 1] for first, last in row_parts(len(self.offsets) - 1)]

    def frequencies(self, columns: Array, width: int) -> Array:
        """int64 ``[width]``: how many texts have each feature; ``columns [W, C]`` are the features of the words, -1: none."""
        own = np.ascontiguousarray(columns, np.int32)
        parts = in_threads(lambda part: native.frequencies(self.flat, part, own, width), self._parts())
        total: Array = np.sum(parts, axis=0)
        return total

    def weighted(self, columns: Array, idf: Array) -> Any:
        """CSR ``[R, F]``: ``(1 + log count) * idf`` of the features ``columns [W, C]``, rows of length 1."""
        from scipy import sparse

        own, weights = np.ascontiguousarray(columns, np.int32), np.ascontiguousarray(idf, np.float32)
        parts = in_threads(lambda part: native.weigh(self.flat, part, own, weights), self._parts())
        found, values = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
        begin = np.cumsum([0, *(len(part[0]) for part in parts)])
        ends = np.concatenate([[0], *(part[2][1:] + first for part, first in zip(parts, begin, strict=False))])
        ends = ends.astype(np.int32) if ends[-1] < 1 << 31 else ends
        return sparse.csr_matrix((values, found, ends), shape=(len(self.offsets) - 1, len(idf)))


def frequent_runs(symbols: Sequence[str], counts: Array, *, min_count: int, most: int) -> Runs:
    """The symbols that are in at least ``min_count`` texts, the ``most`` most frequent ones, as n-grams of one symbol."""
    total = counts[counts >= min_count]
    least = np.partition(total, len(total) - most)[len(total) - most] if len(total) > most else 0
    return Runs(symbols, [np.flatnonzero(counts >= max(min_count, least))])


def fitted_columns(cut: CutTexts, *, starts: bool, min_count: int, most: int) -> tuple[Runs, Runs | None, Array, Array]:
    """``(words, starts, columns [W, C], rows_with [F])``: the features of texts, and how many texts have each."""
    every = np.arange(len(cut.words))[:, None]
    counts = cut.frequencies(every, len(cut.words))
    words = frequent_runs(cut.words, counts, min_count=min_count, most=most)
    columns, rows_with = [positions(words.keys[0], every)], [counts[words.keys[0]]]
    if not starts:
        return words, None, columns[0], rows_with[0]
    table, names = number_starts(cut.words)
    counts = cut.frequencies(table, len(names))
    first_letters = frequent_runs(names, counts, min_count=min_count, most=most)
    columns.append(shifted(positions(first_letters.keys[0], table), len(words)))
    rows_with.append(counts[first_letters.keys[0]])
    return words, first_letters, np.concatenate(columns, axis=1), np.concatenate(rows_with)


def known_columns(cut: CutTexts, words: Runs, starts: Runs) -> Array:
    """``[W, C]``: the features of the words of ``cut`` among known ones, -1 where there is none."""
    found = np.fromiter((words.number.get(word, -1) for word in cut.words), dtype=np.int64, count=len(cut.words))
    columns = [positions(words.keys[0], found[:, None])]
    if len(starts):
        table, _ = number_starts(cut.words, starts.number)
        columns.append(shifted(positions(starts.keys[0], table), len(words)))
    return np.concatenate(columns, axis=1)


def shifted(columns: Array, by: int) -> Array:
    """Add ``by`` to all columns; -1 stays."""
    return np.where(columns >= 0, columns + by, -1)
