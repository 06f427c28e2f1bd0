"""Counts word and character n-grams of texts, both in the same way.

A text is a sequence of numbered symbols: its words, or its characters. The key of an n-gram is the number of its prefix of
n - 1 symbols, times the number of symbols, plus its last symbol. So the n-grams of all texts are counted at once on flat
arrays, without building strings. Only frequent prefixes are extended: an n-gram is never more frequent than its prefix.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from manyhot._cores import available_cores
from manyhot.data.files.collection import collection_paused
from manyhot.engines.native import words as native

Array = np.ndarray[Any, Any]
A = TypeVar("A")
B = TypeVar("B")
WORD = re.compile(r"\w+|[^\w\s]")
# Keys below this are looked up in a table, larger ones by binary search.
LARGEST_TABLE = 1 << 24
# From this many texts, words or entries on, calling the native engine pays off.
LEAST_NATIVE = 256
# Most threads of the native engine, and the fewest rows for each.
MOST_THREADS, ROWS_A_THREAD = 8, 20_000


class Runs:
    """The n-grams of one kind of symbol (words, word starts or characters) that are features.

    Args:
        symbols: all symbols that may be in an n-gram.
        keys: for each length from 1 on, the sorted keys of the n-grams that are features.
    """

    def __init__(self, symbols: Sequence[str], keys: Sequence[Array]) -> None:
        self.symbols = list(symbols)
        self.keys = [np.asarray(each, dtype=np.int64) for each in keys]
        self.number = {symbol: place for place, symbol in enumerate(self.symbols)}

    def __len__(self) -> int:
        return sum(len(each) for each in self.keys)

    def counts(self, flat: Array, rows: Array, num_rows: int) -> Any:
        """Counts as CSR ``[num_rows, len(self)]``, of symbols ``flat [T]`` (-1: unknown) in the sorted ``rows [T]``."""
        if len(self.keys) == 1:
            return count_matrix(rows, positions(self.keys[0], flat), (num_rows, len(self)))
        found_rows, found_columns, first = [], [], 0
        current, width = flat, max(len(self.symbols), 1)
        for length, keys in enumerate(self.keys, start=1):
            if length > 1:
                current = joined(current, flat, rows, length, width)
            place = positions(keys, current)
            found = place >= 0
            found_rows.append(rows[: len(place)][found])
            found_columns.append(place[found] + first)
            first += len(keys)
            current = place
        return count_matrix(np.concatenate(found_rows), np.concatenate(found_columns), (num_rows, first))


def joined(prefix: Array, flat: Array, rows: Array, length: int, width: int) -> Array:
    """Keys of the n-grams of ``length`` at each position; -1 if the prefix or last symbol is unknown, or the row ends."""
    if len(flat) < length:
        return np.zeros(0, dtype=np.int64)
    last = flat[length - 1 :]
    start = prefix[: len(last)]
    fits = (start >= 0) & (last >= 0) & (rows[: len(last)] == rows[length - 1 :])
    return np.where(fits, start.astype(np.int64) * width + last, -1)


def positions(keys: Array, wanted: Array) -> Array:
    """The index of each of ``wanted`` in the sorted ``keys``, -1 if it is absent; in the dtype of ``wanted``."""
    if not len(keys):
        return np.full(wanted.shape, -1, dtype=wanted.dtype)
    if keys[-1] < LARGEST_TABLE:
        table = np.full(int(keys[-1]) + 2, -1, dtype=wanted.dtype)
        table[keys] = np.arange(len(keys))
        return table[np.minimum(wanted, len(table) - 1)]
    place = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)


def count_matrix(rows: Array, columns: Array, shape: tuple[int, int]) -> Any:
    """CSR of how often each column occurs in each row; the column -1 is ignored. Fast if ``rows`` are sorted."""
    from scipy import sparse

    rising = len(rows) >= LEAST_NATIVE and native.available()[0] and bool((rows[1:] >= rows[:-1]).all())
    if rising:
        found, counts, ends = native.count(columns, np.searchsorted(rows, np.arange(shape[0] + 1)))
        return sparse.csr_matrix((counts, found, ends), shape=shape)
    known = columns >= 0
    rows, columns = rows[known], columns[known]
    matrix = sparse.csr_matrix((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=shape)
    matrix.sum_duplicates()
    return matrix


def find_runs(flat: Array, rows: Array, symbols: Sequence[str], *, longest: int, min_count: int, most: int) -> Runs:
    """The n-grams of up to ``longest`` symbols that are in at least ``min_count`` rows, the ``most`` most frequent ones."""
    num_rows, width = int(rows[-1]) + 1 if len(rows) else 0, max(len(symbols), 1)
    current, found = flat, []
    for length in range(1, longest + 1):
        if length > 1:
            current = joined(current, flat, rows, length, width)
        runs, places, own = np.arange(width), current, rows
        if length > 1:
            kept = current >= 0
            own = rows[: len(current)][kept]
            runs, places = np.unique(current[kept], return_inverse=True)
        # One entry per row and n-gram, to count rows, not occurrences.
        there = count_matrix(own, places, (num_rows, len(runs)))
        counts = np.bincount(there.indices, minlength=len(runs))
        often = counts >= min_count
        found.append((runs[often], counts[often]))
        current = positions(runs[often], current)
    keys, _ = most_frequent(found, width, most)
    return Runs(symbols, keys)


def most_frequent(found: Sequence[tuple[Array, Array]], width: int, most: int) -> tuple[list[Array], list[Array]]:
    """``(keys, places)`` of the ``most`` most frequent n-grams, those of the least frequency that stays all kept.

    Args:
        found: the sorted keys and the counts of the n-grams of each length.
        width: the number of symbols.
        most: how many stay.

    Returns:
        For each length the keys that stay, and the place of each n-gram of ``found`` among them, -1 if it does not stay.
    """
    total = np.concatenate([counts for _, counts in found])
    least = np.partition(total, len(total) - most)[len(total) - most] if len(total) > most else 0
    # The key of a longer n-gram contains the index of its prefix, so the prefix must be kept too. It is: its count is never
    # lower, and only the count decides.
    keys: list[Array] = []
    places: list[Array] = []
    for runs, counts in found:
        stays = counts >= least
        if places:
            prefix = places[-1][runs // width]
            stays &= prefix >= 0
            runs = prefix * width + runs % width
        keys.append(runs[stays])
        places.append(np.where(stays, stays.cumsum() - 1, -1))
    return keys, places


def word_lists(texts: Sequence[str]) -> list[list[str]]:
    """The words and marks of each text, in lower case."""
    with collection_paused():
        return [WORD.findall(text.lower()) for text in texts]


def number_words(lists: Sequence[list[str]], number: dict[str, int] | None = None) -> tuple[Array, Array, list[str]]:
    """``(flat [T], rows [T], words)``: numbers of all words; without ``number`` every word gets one, by first appearance."""
    lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    total = int(lengths.sum())
    words = chain.from_iterable(lists)
    if number is None:
        fresh: defaultdict[str, int] = defaultdict()
        fresh.default_factory = fresh.__len__
        flat = np.fromiter(map(fresh.__getitem__, words), dtype=np.int64, count=total)
        names = list(fresh)
    else:
        flat = np.fromiter((number.get(word, -1) for word in words), dtype=np.int64, count=total)
        names = []
    return flat, np.repeat(np.arange(len(lists)), lengths), names


def numbered_words(texts: Sequence[str]) -> tuple[Array, Array, list[str]]:
    """``(flat [T], rows [T], words)`` of the words and marks of texts, in lower case, numbered by first appearance.

    Example:
        >>> flat, rows, words = numbered_words(["Salt, salt", "and pepper"])
        >>> flat.tolist(), rows.tolist(), words
        ([0, 1, 0, 2, 3], [0, 0, 0, 1, 1], ['salt', ',', 'and', 'pepper'])
    """
    found = cut_words(texts)
    if found is None:
        return number_words(word_lists(texts))
    flat, offsets, names = found
    return flat, np.repeat(np.arange(len(texts)), np.diff(offsets)), names


def cut_words(texts: Sequence[str]) -> tuple[Array, Array, list[str]] | None:
    """``(flat [T] int32, offsets [R + 1], words)`` by the native engine; None if it cannot or rows are few."""
    if len(texts) < LEAST_NATIVE or not native.available()[0]:
        return None
    parts = in_threads(_numbered_part, [texts[first:last] for first, last in row_parts(len(texts))])
    whole = [part for part in parts if part is not None]
    if len(whole) < len(parts):
        return None
    # The words of each part are numbered by first appearance, and so are those of all parts, in their order.
    begin = np.cumsum([0, *(len(part.codes) for part in whole)])
    codes = np.concatenate([part.codes for part in whole])
    starts = np.concatenate([part.starts + first for part, first in zip(whole, begin, strict=False)])
    lengths = np.concatenate([part.lengths for part in whole])
    numbers, firsts = native.number(codes, starts, lengths)
    names = cut_out("".join(part.joined for part in whole), starts[firsts], lengths[firsts])
    own = np.split(numbers, np.cumsum([len(part.starts) for part in whole])[:-1])
    flat = np.concatenate(in_threads(lambda pair: pair[0][pair[1].numbers], list(zip(own, whole, strict=True))))
    ends = np.cumsum([0, *(len(part.numbers) for part in whole)])
    offsets = [part.offsets[1:] + first for part, first in zip(whole, ends, strict=False)]
    return flat, np.concatenate([np.zeros(1, np.int64), *offsets]), names


class _NumberedPart(NamedTuple):
    """The words of some texts, with each distinct word listed once."""

    joined: str  # all texts
    codes: Array  # their characters
    starts: Array  # of the distinct words
    lengths: Array
    numbers: Array  # int32 [T]: which of them each word is
    offsets: Array  # int64 [R + 1]: where the words of each text start


def _numbered_part(texts: Sequence[str]) -> _NumberedPart | None:
    found = native.cut(texts, _kind_of)
    if found is None:
        return None
    joined, codes, starts, lengths, offsets = found
    numbers, firsts = native.number(codes, starts, lengths)
    return _NumberedPart(joined, codes, starts[firsts], lengths[firsts], numbers, offsets)


def row_parts(count: int) -> list[tuple[int, int]]:
    """``count`` rows in parts for threads: where each starts and ends."""
    threads = min(available_cores(), MOST_THREADS)
    cuts = np.linspace(0, count, max(min(threads, count // ROWS_A_THREAD), 1) + 1).astype(int).tolist()
    return list(pairwise(cuts))


def in_threads(run: Callable[[A], B], parts: Sequence[A]) -> list[B]:
    """``run`` of each part, several at a time where there are several."""
    if len(parts) == 1:
        return [run(parts[0])]
    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(run, parts))


def _kind_of(character: str) -> int:
    """The class of a character in ``WORD``."""
    if WORD.match(character) is None:
        return 0
    return native.MARK if WORD.fullmatch(character * 2) is None else native.LETTER


def cut_out(joined: str, starts: Array, lengths: Array) -> list[str]:
    """The parts of a text that start at ``starts`` and have these lengths."""
    return [joined[first:last] for first, last in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]


def number_characters(texts: Sequence[str], number: dict[str, int] | None = None) -> tuple[Array, Array, list[str]]:
    """``number_words`` for characters, in lower case; with one blank between words, at the start and at the end."""
    lowered = [" ".join(["", *text.lower().split(), ""]) for text in texts]
    lengths = np.fromiter(map(len, lowered), dtype=np.int64, count=len(lowered))
    points = np.frombuffer("".join(lowered).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.int64)
    distinct, flat = np.unique(points, return_inverse=True)
    names = [chr(point) for point in distinct.tolist()]
    if number is not None:
        known = np.fromiter((number.get(name, -1) for name in names), dtype=np.int64, count=len(names))
        flat, names = known[flat] if len(names) else flat, []
    return flat.astype(np.int64), np.repeat(np.arange(len(lowered)), lengths), names
