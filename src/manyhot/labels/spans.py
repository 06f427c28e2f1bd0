"""Labelled spans as index lists: (type, first token, last token) for each row, without a dense grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import shape_text
from manyhot.labels.sparse import SparseLabels

SpanTuple = tuple[int, int, int]


class SpanLabels:
    """The spans of each row: type, first token and last token, both inclusive. A span is a cell of the grid.

    The dense form is ``[R, H, T, T]`` for R rows, H types and T tokens; it is built only by ``dense()``. Soft labels are
    values in [0, 1] for the listed spans; cells that are not listed are 0.

    Args:
        cells: the listed cells of each row's flattened ``[H, T, T]`` grid.
        num_types: H.
        num_tokens: T.

    Example:
        >>> labels = SpanLabels.from_lists([[(0, 0, 1), (1, 1, 1)], []], num_types=2, lengths=[3, 2])
        >>> labels.shape
        torch.Size([2, 2, 3, 3])
        >>> labels.dense()[0, 0].int().tolist()
        [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
        >>> labels[:1].lists()
        [[(0, 0, 1), (1, 1, 1)]]
    """

    __slots__ = ("cells", "num_tokens", "num_types")

    def __init__(self, cells: SparseLabels, *, num_types: int, num_tokens: int) -> None:
        if cells.num_labels != num_types * num_tokens * num_tokens:
            raise ValueError(
                f"SpanLabels: `cells` must have num_types * num_tokens^2 = {num_types * num_tokens * num_tokens} labels;"
                f" got {cells.num_labels}. SpanLabels.from_lists builds them."
            )
        self.cells, self.num_types, self.num_tokens = cells, int(num_types), int(num_tokens)

    @classmethod
    def from_lists(
        cls,
        lists: Iterable[Sequence[SpanTuple]],
        *,
        num_types: int,
        num_tokens: int | None = None,
        lengths: Sequence[int] | Tensor | None = None,
        triangle: bool = True,
        values: Iterable[Sequence[float]] | None = None,
    ) -> SpanLabels:
        """From one list of (type, first token, last token) per row, in any order; a repeated span is an error.

        Args:
            lists: the spans of each row; token numbers start at 0 and are inclusive.
            num_types: H.
            num_tokens: T, the padded number of tokens; None uses the longest of ``lengths``.
            lengths: the number of tokens of each row; spans are checked against it.
            triangle: spans end at or after their first token. False allows links between any two tokens.
            values: a soft label in [0, 1] for each listed span.
        """
        who = "SpanLabels.from_lists"
        rows = [_as_spans(who, number, row) for number, row in enumerate(lists)]
        limits = _limits(who, len(rows), num_tokens, lengths)
        size = max(limits, default=0) if num_tokens is None else num_tokens
        for number, (row, limit) in enumerate(zip(rows, limits, strict=True)):
            _check_spans(who, number, row, num_types, limit, triangle)
        flat = [(row[:, 0] * size + row[:, 1]) * size + row[:, 2] for row in rows]
        soft = None
        if values is not None:
            soft = [np.asarray(row, dtype=np.float32).reshape(-1) for row in values]
            if [len(row) for row in soft] != [len(row) for row in rows]:
                raise ValueError(f"{who}: `values` must have one number for each listed span.")
        cells = SparseLabels.from_lists(flat, num_labels=num_types * size * size, values=soft)  # type: ignore[arg-type]
        return cls(cells, num_types=num_types, num_tokens=size)

    @classmethod
    def from_dense(cls, dense: Tensor) -> SpanLabels:
        """From dense labels ``[R, H, T, T]``: bool and integer labels are hard, floats are soft."""
        if dense.ndim != 4 or dense.shape[2] != dense.shape[3]:
            raise ValueError(f"SpanLabels.from_dense: `dense` must be [R, H, T, T]; got {shape_text(dense.shape)}.")
        cells = SparseLabels.from_dense(dense.reshape(dense.shape[0], dense.shape[1:].numel()))
        return cls(cells, num_types=dense.shape[1], num_tokens=dense.shape[2])

    @classmethod
    def collate(cls, batch: Sequence[SpanLabels]) -> SpanLabels:
        """Concatenate several blocks of rows, padded to the longest, for a ``DataLoader``'s ``collate_fn``."""
        types = {block.num_types for block in batch}
        if len(types) != 1:
            raise ValueError(f"SpanLabels.collate: all parts must have one `num_types`; got {sorted(types)}.")
        size = max(block.num_tokens for block in batch)
        cells = SparseLabels.collate([block.widened(size).cells for block in batch])
        return cls(cells, num_types=types.pop(), num_tokens=size)

    @property
    def shape(self) -> torch.Size:
        """``[R, H, T, T]``."""
        return torch.Size((len(self), self.num_types, self.num_tokens, self.num_tokens))

    @property
    def device(self) -> torch.device:
        """The device of the index lists."""
        return self.cells.device

    @property
    def rows(self) -> Tensor:
        """int64 ``[P]``: the row of each span; sorted by row, and within a row by (type, first, last)."""
        return self.cells.rows

    @property
    def types(self) -> Tensor:
        """int64 ``[P]``: the type of each span."""
        return self.cells.indices // max(self.num_tokens**2, 1)

    @property
    def first(self) -> Tensor:
        """int64 ``[P]``: the first token of each span."""
        return self.cells.indices // max(self.num_tokens, 1) % max(self.num_tokens, 1)

    @property
    def last(self) -> Tensor:
        """int64 ``[P]``: the last token of each span, inclusive."""
        return self.cells.indices % max(self.num_tokens, 1)

    @property
    def values(self) -> Tensor | None:
        """``[P]`` soft labels, or None for hard ones."""
        return self.cells.values

    def counts(self) -> Tensor:
        """int64 ``[R]``: the number of spans of each row."""
        return self.cells.counts()

    def lists(self) -> list[list[SpanTuple]]:
        """One Python list of (type, first token, last token) per row."""
        spans = list(zip(self.types.tolist(), self.first.tolist(), self.last.tolist(), strict=True))
        return [spans[start:stop] for start, stop in pairwise(self.cells.offsets.tolist())]

    def dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """The dense ``[R, H, T, T]`` tensor: bool for hard labels, the values' type for soft ones."""
        return self.cells.dense(dtype).reshape(self.shape)

    def widened(self, num_tokens: int) -> SpanLabels:
        """The same spans on a grid of at least as many tokens."""
        if num_tokens == self.num_tokens:
            return self
        if num_tokens < self.num_tokens:
            raise ValueError(
                f"SpanLabels.widened: `num_tokens` must be >= {self.num_tokens}; got {num_tokens}."
                " Truncate the texts before the spans are listed."
            )
        indices = (self.types * num_tokens + self.first) * num_tokens + self.last
        size = self.num_types * num_tokens * num_tokens
        cells = SparseLabels(indices, self.cells.offsets, size, values=self.values, validate=False)
        return SpanLabels(cells, num_types=self.num_types, num_tokens=num_tokens)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> SpanLabels:
        """The same labels on ``device``."""
        return self._with(self.cells.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> SpanLabels:
        """The same labels in page-locked memory, for a ``DataLoader`` that feeds a GPU."""
        return self._with(self.cells.pin_memory())

    def _with(self, cells: SparseLabels) -> SpanLabels:
        return SpanLabels(cells, num_types=self.num_types, num_tokens=self.num_tokens)

    def __len__(self) -> int:
        return len(self.cells)

    @overload
    def __getitem__(self, rows: int) -> Tensor: ...
    @overload
    def __getitem__(self, rows: slice | Tensor | Sequence[int]) -> SpanLabels: ...
    def __getitem__(self, rows: int | slice | Tensor | Sequence[int]) -> Tensor | SpanLabels:
        """One row's spans as int64 ``[K, 3]``, or some rows as ``SpanLabels``."""
        if isinstance(rows, int):
            row = self._with(self.cells[[range(len(self))[rows]]])
            return torch.stack([row.types, row.first, row.last], dim=1)
        return self._with(self.cells[rows])

    def __repr__(self) -> str:
        kind = "hard" if self.values is None else "soft"
        size = f"{len(self)} rows, {self.num_types} types, {self.num_tokens} tokens, {self.cells.indices.shape[0]} spans"
        return f"SpanLabels({size}, {kind}, device={str(self.device)!r})"


def _as_spans(who: str, number: int, row: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    try:
        spans = np.asarray(list(row))
    except ValueError:  # ragged: some span does not have three parts
        spans = np.zeros((1, 0))
    if spans.size == 0 and spans.shape[0] == 0:
        return np.zeros((0, 3), dtype=np.int64)
    if spans.ndim != 2 or spans.shape[1] != 3 or spans.dtype.kind not in "iu":
        raise ValueError(
            f"{who}: each span must be three whole numbers (type, first token, last token); row {number} has one that is not."
        )
    return spans.astype(np.int64)


def _limits(who: str, num_rows: int, num_tokens: int | None, lengths: Sequence[int] | Tensor | None) -> list[int]:
    """How many tokens each row has."""
    if lengths is None:
        if num_tokens is None:
            raise ValueError(f"{who}: give `num_tokens` or `lengths`; got neither.")
        return [num_tokens] * num_rows
    limits = [int(length) for length in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    if len(limits) != num_rows:
        raise ValueError(f"{who}: `lengths` must have one number for each of {num_rows} rows; got {len(limits)}.")
    longest = max(limits, default=0)
    if num_tokens is not None and longest > num_tokens:
        raise ValueError(f"{who}: `num_tokens` must be at least the longest of `lengths`, {longest}; got {num_tokens}.")
    return limits


def _check_spans(
    who: str, number: int, spans: np.ndarray[Any, np.dtype[np.int64]], num_types: int, limit: int, triangle: bool
) -> None:
    types, tokens = spans[:, 0], spans[:, 1:]
    wrong = (types < 0) | (types >= num_types)
    if wrong.any():
        raise ValueError(f"{who}: types must lie in [0, {num_types}); got {types[wrong][0]} in row {number}.")
    wrong = (tokens.min(axis=1, initial=0) < 0) | (tokens.max(axis=1, initial=-1) >= limit)
    if wrong.any():
        raise ValueError(
            f"{who}: token numbers must lie in [0, {limit}), the tokens of row {number}; got {tuple(spans[wrong][0].tolist())}."
            " The last token is inclusive."
        )
    wrong = spans[:, 1] > spans[:, 2]
    if triangle and wrong.any():
        raise ValueError(
            f"{who}: the first token must not come after the last; got {tuple(spans[wrong][0].tolist())} in row {number}."
            " Links between any two tokens need triangle=False."
        )
    kept, counts = np.unique(spans, axis=0, return_counts=True)
    if (counts > 1).any():
        raise ValueError(
            f"{who}: each row must list a span once; {tuple(kept[counts > 1][0].tolist())} is repeated in row {number}."
        )
