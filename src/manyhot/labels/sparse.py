"""Labels as index lists: the positive labels of each row, without a dense tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import shape_text
from manyhot.labels.list_checks import check_contents, check_layout, label_numbers


class SparseLabels:
    """The positive labels of each row as index lists, stored as indices and offsets.

    Row ``i`` has the labels ``indices[offsets[i]:offsets[i + 1]]``, strictly increasing. ``values``, if given, are soft
    labels in [0, 1] for the listed entries; entries that are not listed are 0.

    Args:
        indices: int64 ``[P]``, label numbers.
        offsets: int64 ``[R + 1]``, from 0 to P.
        num_labels: L, the size of the label axis.
        values: ``[P]`` soft labels, or None for hard ones.
        validate: check the values; on a GPU this syncs with the device.

    Example:
        >>> labels = SparseLabels.from_lists([[2, 0], [], [1]], num_labels=4)
        >>> labels.shape
        torch.Size([3, 4])
        >>> labels.dense().int().tolist()
        [[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
        >>> labels[1:].lists()
        [[], [1]]
    """

    __slots__ = ("_rows", "indices", "num_labels", "offsets", "values")

    def __init__(
        self, indices: Tensor, offsets: Tensor, num_labels: int, *, values: Tensor | None = None, validate: bool = True
    ) -> None:
        self.indices = indices
        self.offsets = offsets
        self.values = values
        self.num_labels = int(num_labels)
        self._rows: Tensor | None = None
        check_layout(self)
        # Engines read the lists through their data pointer, so they must be contiguous.
        self.indices, self.offsets = indices.contiguous(), offsets.contiguous()
        self.values = None if values is None else values.contiguous()
        if validate:
            check_contents(self)

    @classmethod
    def none(cls, num_rows: int, num_labels: int, *, device: torch.device | str | None = None) -> SparseLabels:
        """Rows without a label."""
        offsets = torch.zeros(num_rows + 1, dtype=torch.int64, device=device)
        return cls(offsets[:0], offsets, num_labels, validate=False)

    @classmethod
    def from_lists(
        cls,
        lists: Iterable[Sequence[int]],
        *,
        num_labels: int,
        values: Iterable[Sequence[float]] | None = None,
    ) -> SparseLabels:
        """From one list of label numbers per row, in any order; repeated numbers and fractions are an error."""
        rows = [label_numbers(place, row) for place, row in enumerate(lists)]
        counts = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
        flat = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
        soft = None
        if values is not None:
            given = [np.asarray(row, dtype=np.float32).reshape(-1) for row in values]
            if [len(row) for row in given] != counts.tolist():
                raise ValueError("SparseLabels.from_lists: `values` must have one number for each listed label.")
            soft = np.concatenate(given) if given else np.zeros(0, dtype=np.float32)
        return cls._from_unsorted(flat, counts, num_labels, soft)

    @classmethod
    def from_scipy(cls, matrix: Any) -> SparseLabels:
        """From a scipy sparse matrix or array ``[R, L]``; entries other than 1 are soft labels."""
        csr = matrix.tocsr(copy=True)
        csr.sum_duplicates()
        csr.eliminate_zeros()
        data = csr.data.astype(np.float32)
        soft = None if bool((data == 1).all()) else data
        counts = np.diff(csr.indptr).astype(np.int64)
        return cls._from_unsorted(csr.indices.astype(np.int64), counts, csr.shape[1], soft)

    @classmethod
    def from_padded(cls, padded: Tensor, *, num_labels: int, padding: int = -1) -> SparseLabels:
        """From an integer tensor ``[R, K]`` in which ``padding`` fills the rows."""
        if padded.ndim != 2 or padded.is_floating_point():
            raise ValueError(
                "SparseLabels.from_padded: `padded` must be an integer tensor [R, K];"
                f" got {padded.dtype} {shape_text(padded.shape)}."
            )
        ordered = padded.long().sort(dim=1).values
        kept = ordered != padding
        return cls(ordered[kept], _offsets(kept.sum(dim=1)), num_labels)

    @classmethod
    def from_dense(cls, dense: Tensor) -> SparseLabels:
        """From dense labels ``[R, L]``: bool and integer labels are hard, positive if above 0; floats are soft.

        Raises:
            ValueError: if a label is negative; exclude unknown labels with ``where``.

        Example:
            >>> SparseLabels.from_dense(torch.tensor([[0, 1, 1]])).lists()
            [[1, 2]]
        """
        if dense.ndim != 2:
            raise ValueError(f"SparseLabels.from_dense: `dense` must be [R, L]; got {shape_text(dense.shape)}.")
        if dense.dtype.is_signed and dense.numel() and bool((dense < 0).any()):
            raise ValueError(
                f"SparseLabels.from_dense: `dense` must not be negative; got {dense.min().item()}."
                " Set unknown labels to 0 and exclude them with `where`."
            )
        rows, columns = dense.nonzero(as_tuple=True)
        values = dense[rows, columns] if dense.is_floating_point() else None
        if values is not None and bool((values == 1).all()):
            values = None
        counts = torch.bincount(rows, minlength=dense.shape[0])
        return cls(columns, _offsets(counts), dense.shape[1], values=values)

    @classmethod
    def _from_unsorted(
        cls, flat: np.ndarray[Any, Any], counts: np.ndarray[Any, Any], num_labels: int, soft: Any
    ) -> SparseLabels:
        rows = np.repeat(np.arange(len(counts)), counts)
        order = np.lexsort((flat, rows))
        return cls(
            torch.from_numpy(flat[order]),
            _offsets(torch.from_numpy(counts)),
            num_labels,
            values=None if soft is None else torch.from_numpy(soft[order]),
        )

    @classmethod
    def collate(cls, batch: Sequence[SparseLabels]) -> SparseLabels:
        """Concatenate several blocks of rows, for a ``DataLoader``'s ``collate_fn``."""
        widths = {block.num_labels for block in batch}
        if len(widths) != 1:
            raise ValueError(f"SparseLabels.collate: all parts must have one `num_labels`; got {sorted(widths)}.")
        soft = any(block.values is not None for block in batch)
        return cls(
            torch.cat([block.indices for block in batch]),
            _offsets(torch.cat([block.counts() for block in batch])),
            widths.pop(),
            values=torch.cat([block.weights() for block in batch]) if soft else None,
            validate=False,
        )

    @property
    def shape(self) -> torch.Size:
        """``[R, L]``."""
        return torch.Size((len(self), self.num_labels))

    @property
    def device(self) -> torch.device:
        """The device of the index lists."""
        return self.indices.device

    @property
    def rows(self) -> Tensor:
        """int64 ``[P]``: the row of each listed entry."""
        if self._rows is None:
            self._rows = rows_of_entries(self.offsets, self.indices.shape[0])
        return self._rows

    def counts(self) -> Tensor:
        """int64 ``[R]``: the number of listed entries of each row."""
        return self.offsets.diff()

    def weights(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """``[P]``: the label of each listed entry, 1 if hard."""
        if self.values is None:
            return torch.ones(self.indices.shape, dtype=dtype, device=self.device)
        return self.values.to(dtype)

    def hardened(self) -> SparseLabels:
        """The same labels as hard ones: an entry above one half is positive, as a score above 0 is.

        Example:
            >>> SparseLabels.from_lists([[0, 1], [1]], num_labels=2, values=[[0.7, 0.5], [1.0]]).hardened().lists()
            [[0], [1]]
        """
        if self.values is None:
            return self
        kept = self.values > 0.5
        before = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
        return SparseLabels(self.indices[kept], before[self.offsets], self.num_labels, validate=False)

    def lists(self) -> list[list[int]]:
        """One Python list of label numbers per row."""
        flat, cuts = self.indices.tolist(), self.offsets.tolist()
        return [flat[start:stop] for start, stop in pairwise(cuts)]

    def dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """The dense ``[R, L]`` tensor: bool for hard labels, the values' type for soft ones."""
        kind = dtype or (torch.bool if self.values is None else self.values.dtype)
        full = torch.zeros(tuple(self.shape), dtype=kind, device=self.device)
        full[self.rows, self.indices] = self.weights().to(kind)
        return full

    def contains(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Bool, of the shape of ``rows`` and ``columns``: whether the entry is listed."""
        listed = self.rows * self.num_labels + self.indices
        wanted = rows * self.num_labels + columns
        if listed.numel() == 0:
            return torch.zeros_like(wanted, dtype=torch.bool)
        place = torch.searchsorted(listed, wanted).clamp(max=listed.numel() - 1)
        return listed[place] == wanted

    def columns(self, start: int, stop: int) -> SparseLabels:
        """The labels from ``start`` to before ``stop``, numbered from 0."""
        kept = (self.indices >= start) & (self.indices < stop)
        before = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
        return SparseLabels(
            self.indices[kept] - start,
            before[self.offsets],
            stop - start,
            values=None if self.values is None else self.values[kept],
            validate=False,
        )

    def transposed(self) -> SparseLabels:
        """The rows of each label: ``[L, R]``."""
        order = self.indices.argsort(stable=True)
        counts = self.indices.new_zeros(self.num_labels).scatter_add(0, self.indices, torch.ones_like(self.indices))
        values = None if self.values is None else self.values[order]
        return SparseLabels(self.rows[order], _offsets(counts), len(self), values=values, validate=False)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> SparseLabels:
        """The same labels on ``device``."""
        return self._map(lambda part: part.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> SparseLabels:
        """The same labels in page-locked memory, for a ``DataLoader`` that feeds a GPU."""
        return self._map(lambda part: part.pin_memory())

    def _map(self, move: Any) -> SparseLabels:
        values = None if self.values is None else move(self.values)
        return SparseLabels(move(self.indices), move(self.offsets), self.num_labels, values=values, validate=False)

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    @overload
    def __getitem__(self, rows: int) -> Tensor: ...
    @overload
    def __getitem__(self, rows: slice | Tensor | Sequence[int]) -> SparseLabels: ...
    def __getitem__(self, rows: int | slice | Tensor | Sequence[int]) -> Tensor | SparseLabels:
        """One row's label numbers, or some rows as ``SparseLabels`` (slice, index list, index or bool tensor)."""
        if isinstance(rows, int):
            place = range(len(self))[rows]
            return self.indices[self.offsets[place] : self.offsets[place + 1]]
        picked = torch.arange(len(self), device=self.device)[rows]
        counts = self.counts()[picked]
        offsets = _offsets(counts)
        shift = (self.offsets[picked] - offsets[:-1]).repeat_interleave(counts)
        source = torch.arange(shift.shape[0], device=self.device) + shift
        values = None if self.values is None else self.values[source]
        return SparseLabels(self.indices[source], offsets, self.num_labels, values=values, validate=False)

    def __repr__(self) -> str:
        kind = "hard" if self.values is None else "soft"
        size = f"{len(self)} rows, {self.num_labels} labels, {self.indices.shape[0]} entries"
        return f"SparseLabels({size}, {kind}, device={str(self.device)!r})"


def rows_of_entries(offsets: Tensor, num_entries: int) -> Tensor:
    """int64 ``[P]``: the row of each listed entry, always in [0, R), so that invalid offsets cause no access out of bounds."""
    entries = torch.arange(num_entries, device=offsets.device)
    return torch.searchsorted(offsets[1:-1], entries, right=True)


def _offsets(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
