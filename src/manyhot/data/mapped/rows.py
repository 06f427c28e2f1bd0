"""Texts and sparse rows that stay in their files until they are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np

from manyhot.data.files.problems import DataError
from manyhot.data.mapped.arrays import Array

# Rows in memory at a time when iterating over all rows.
BLOCK_ROWS = 1 << 14


class MappedTexts(Sequence[str]):
    """Texts in a file of UTF-8.

    Args:
        folder: the folder of the texts.
        content: uint8, all texts.
        ends: int64 ``[R + 1]``, where each text starts and ends.
    """

    def __init__(self, folder: Path, content: Array, ends: Array) -> None:
        self.folder, self.content, self.ends = folder, content, ends

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            first, last, step = place.indices(len(self))
            if step != 1:
                return [self[each] for each in range(first, last, step)]
            return self._between(first, max(first, last))
        row = place + len(self) if place < 0 else place
        if not 0 <= row < len(self):
            raise IndexError(place)
        return self._between(row, row + 1)[0]

    def _between(self, first: int, last: int) -> list[str]:
        ends = np.asarray(self.ends[first : last + 1])
        content = self.content[ends[0] : ends[-1]].tobytes()
        places = (ends - ends[0]).tolist()
        try:
            return [content[start:stop].decode("utf-8", "surrogatepass") for start, stop in pairwise(places)]
        except UnicodeDecodeError:
            raise DataError("is damaged: its texts must be UTF-8. Pack the files again.", file=str(self.folder)) from None

    def __iter__(self) -> Iterator[str]:
        for block in self.blocks():
            yield from block

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[list[str]]:
        """Lists of ``rows`` texts; the last list has up to twice as many, so that no list is very short."""
        for first, last in block_places(len(self), rows):
            yield self[first:last]


class MappedMatrix:
    """A sparse matrix ``[R, F]`` in files, or some of its rows.

    Indexing returns a scipy matrix in memory; ``view`` returns rows that stay in the files.

    Args:
        folder: where further arrays of these rows may be stored.
        offsets: int64 ``[N + 1]``.
        columns: int32.
        values: float32.
        num_columns: F.
        picked: int64 ``[R]``, which of the ``N`` rows; None for all.
    """

    def __init__(
        self, folder: Path, offsets: Array, columns: Array, values: Array, num_columns: int, picked: Array | None = None
    ) -> None:
        self.folder, self.offsets, self.columns, self.values = folder, offsets, columns, values
        self.num_columns, self.picked = num_columns, picked

    @property
    def shape(self) -> tuple[int, int]:
        """``(R, F)``."""
        return len(self.offsets) - 1 if self.picked is None else len(self.picked), self.num_columns

    def numbers(self, rows: Array | slice) -> Array:
        """The row numbers in the files of some rows of this matrix."""
        if self.picked is not None:
            return np.asarray(self.picked[rows])
        return np.arange(*rows.indices(len(self.offsets) - 1)) if isinstance(rows, slice) else _places(rows)

    def __getitem__(self, rows: Array | slice) -> Any:
        from scipy import sparse

        own = self.numbers(rows)
        starts, lengths = self.offsets[own], self.offsets[own + 1] - self.offsets[own]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        if len(own) and bool((np.diff(own) == 1).all()):
            entries: Any = slice(int(starts[0]), int(starts[0] + ends[-1]))
        else:
            entries = np.repeat(starts - ends[:-1], lengths) + np.arange(int(ends[-1]))
        kind = np.int32 if ends[-1] < 1 << 31 else np.int64
        parts = np.array(self.values[entries]), self.columns[entries].astype(kind), ends.astype(kind)
        return sparse.csr_matrix(parts, shape=(len(own), self.num_columns))

    def view(self, rows: Array) -> MappedMatrix:
        """Some rows, still in the files."""
        return MappedMatrix(self.folder, self.offsets, self.columns, self.values, self.num_columns, self.numbers(rows))

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Any]:
        """scipy matrices of ``rows`` rows."""
        for first, last in block_places(self.shape[0], rows):
            yield self[first:last]


def block_places(count: int, rows: int) -> Iterator[tuple[int, int]]:
    """The start and end of each block; the last one may have up to twice as many rows.

    Example:
        >>> list(block_places(10, 4)), list(block_places(3, 4))
        ([(0, 4), (4, 10)], [(0, 3)])
    """
    for first in range(0, max(count - rows + 1, 1), rows):
        last = first + rows
        yield first, count if count - last < rows else last


def _places(rows: Array) -> Array:
    numbers: Array = np.flatnonzero(rows) if rows.dtype == bool else rows
    return numbers
