"""Texts to weighted words, pairs of words and first letters by the native engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from manyhot.engines.native import words as native
from manyhot.training.rows.inputs.word_starts import number_starts
from manyhot.training.rows.inputs.words import (
    Array,
    Runs,
    cut_words,
    in_threads,
    joined,
    most_frequent,
    positions,
    row_parts,
)


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

    def pairs(self, places: Array, min_count: int) -> tuple[Array, Array, Array]:
        """``(keys, counts, which [T])``: the pairs of neighbouring words that are in at least ``min_count`` texts.

        ``places [W]`` and the sorted keys are those of ``native.pairs``; ``which`` pair starts at each word, -1: none.
        """
        own, numbers = np.ascontiguousarray(places, np.int32), np.full(len(self.flat), -1, np.int64)
        parts = len(self._parts())
        call = partial(native.pairs, self.flat, self.offsets, own, numbers, parts=parts)
        found = in_threads(lambda part: call(part=part), range(parts))
        # As numbered: number * parts + part. The last entry is for words at which no pair starts, whose number is -1.
        numbered = np.full(max(len(keys) for keys, _ in found) * parts + 1, -1, np.int64)
        often = [np.flatnonzero(counts >= min_count) for _, counts in found]
        keys, counts = (np.concatenate([each[side][kept] for each, kept in zip(found, often, strict=True)]) for side in (0, 1))
        order = np.argsort(keys)
        kept_numbers = np.concatenate([kept * parts + part for part, kept in enumerate(often)])
        numbered[kept_numbers[order]] = np.arange(len(order))
        return keys[order], counts[order], numbered[numbers]

    def weighted(self, columns: Array, idf: Array, more: Array | None = None) -> Any:
        """CSR ``[R, F]``: ``(1 + log count) * idf`` of the features ``columns [W, C]`` and ``more [T]``, rows of length 1."""
        from scipy import sparse

        own, weights = np.ascontiguousarray(columns, np.int32), np.ascontiguousarray(idf, np.float32)
        further = None if more is None else np.ascontiguousarray(more, np.int32)
        parts = in_threads(lambda part: native.weigh(self.flat, part, own, weights, further), self._parts())
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


class Features(NamedTuple):
    """The features of texts, and how many texts have each."""

    words: Runs
    starts: Runs | None
    columns: Array  # [W, C]: the features of each word, -1: none
    pairs: Array | None  # [T]: the feature of the pair that starts at each word, -1: none
    rows_with: Array  # [F]


def fitted_features(cut: CutTexts, *, longest: int, starts: bool, min_count: int, most: int) -> Features:
    """The words, pairs of words (``longest`` of 2) and first letters that are frequent in the texts."""
    every = np.arange(len(cut.words))[:, None]
    counts = cut.frequencies(every, len(cut.words))
    words, pairs, rows_with = _frequent_words(cut, counts, longest=longest, min_count=min_count, most=most)
    columns = [positions(words.keys[0], every)]
    if not starts:
        return Features(words, None, columns[0], pairs, rows_with)
    table, names = number_starts(cut.words)
    counts = cut.frequencies(table, len(names))
    first_letters = frequent_runs(names, counts, min_count=min_count, most=most)
    columns.append(shifted(positions(first_letters.keys[0], table), len(words)))
    rows_with = np.concatenate([rows_with, counts[first_letters.keys[0]]])
    return Features(words, first_letters, np.concatenate(columns, axis=1), pairs, rows_with)


def _frequent_words(
    cut: CutTexts, counts: Array, *, longest: int, min_count: int, most: int
) -> tuple[Runs, Array | None, Array]:
    """``(words, feature of each pair [T], rows_with)``; ``counts [W]`` are the texts that have each word."""
    if longest == 1:
        words = frequent_runs(cut.words, counts, min_count=min_count, most=most)
        return words, None, counts[words.keys[0]]
    single = np.flatnonzero(counts >= min_count)
    keys, pair_counts, which = cut.pairs(positions(single, np.arange(len(counts))), min_count)
    found = [(single, counts[single]), (keys, pair_counts)]
    kept, places = most_frequent(found, len(counts), most)
    # The last entry is for words at which no pair starts.
    column = np.append(shifted(places[1], len(kept[0])), -1)
    rows_with = np.concatenate([own[place >= 0] for (_, own), place in zip(found, places, strict=True)])
    return Runs(cut.words, kept), column[which], rows_with


def known_columns(cut: CutTexts, words: Runs, starts: Runs) -> tuple[Array, Array | None]:
    """``(columns [W, C], pairs [T])``: the features of ``cut`` among known ones, -1 where there is none."""
    found = np.fromiter((words.number.get(word, -1) for word in cut.words), dtype=np.int64, count=len(cut.words))
    columns, pairs = [positions(words.keys[0], found[:, None])], None
    if len(words.keys) == 2:
        rows = np.repeat(np.arange(len(cut.offsets) - 1), np.diff(cut.offsets))
        keys = joined(columns[0][cut.flat, 0], found[cut.flat], rows, 2, max(len(words.symbols), 1))
        pairs = np.full(len(cut.flat), -1, np.int64)
        pairs[: len(keys)] = shifted(positions(words.keys[1], keys), len(words.keys[0]))
    if len(starts):
        table, _ = number_starts(cut.words, starts.number)
        columns.append(shifted(positions(starts.keys[0], table), len(words)))
    return np.concatenate(columns, axis=1), pairs


def shifted(columns: Array, by: int) -> Array:
    """Add ``by`` to all columns; -1 stays."""
    return np.where(columns >= 0, columns + by, -1)
