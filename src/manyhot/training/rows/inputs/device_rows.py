"""Sparse rows and their labels on a device: an epoch is one gather, its batches are slices of it, without waiting for the
device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.data.mapped.rows import MappedMatrix
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.inputs.row_batches import SparseRows

Array = np.ndarray[Any, Any]
ALIGNMENT = 16
# Inputs, labels and weights of some rows.
DeviceBatch = tuple[SparseRows, SparseLabels, Tensor | None]


class Lists(NamedTuple):
    """Concatenated lists of different lengths; host and device both know where each starts."""

    starts: Array  # int64 [R + 1], on the host
    on_device: Tensor  # the same, on the device
    parts: tuple[Tensor, ...]  # each [entries]

    def taken(self, order: Array, places: Tensor) -> Lists:
        """The lists in another order."""
        starts = np.concatenate([[0], np.diff(self.starts)[order].cumsum()])
        moved = torch.from_numpy(starts).to(places.device, non_blocking=True)
        shift = self.on_device[:-1][places] - moved[:-1]
        size = int(starts[-1])
        source = torch.repeat_interleave(shift, moved.diff(), output_size=size) + torch.arange(size, device=places.device)
        return Lists(starts, moved, tuple(part[source] for part in self.parts))

    def cut(self, first: int, last: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        """``(offsets [last - first + 1], parts)`` of consecutive lists."""
        begin, end = int(self.starts[first]), int(self.starts[last])
        return self.on_device[first : last + 1] - begin, tuple(_aligned(part[begin:end]) for part in self.parts)


def _aligned(part: Tensor) -> Tensor:
    """The tensor itself if it starts at a multiple of 16 bytes, otherwise a copy: Triton compiles other kernels without it."""
    return part if not part.is_cuda or part.data_ptr() % ALIGNMENT == 0 else part.clone()


@dataclass(frozen=True)
class TakenRows:
    """The rows of an epoch on a device, in their order."""

    inputs: Lists
    labels: Lists
    sample_weight: Tensor | None
    num_labels: int

    def __len__(self) -> int:
        return len(self.inputs.starts) - 1

    def batch(self, first: int, last: int) -> DeviceBatch:
        """``(inputs, labels, sample_weight)`` of consecutive rows."""
        offsets, (columns, values) = self.inputs.cut(first, last)
        rows = SparseRows(columns, offsets.to(torch.int32), values)
        offsets, (indices, *soft) = self.labels.cut(first, last)
        listed = SparseLabels(indices, offsets, self.num_labels, values=soft[0] if soft else None, validate=False)
        return rows, listed, None if self.sample_weight is None else self.sample_weight[first:last]


class DeviceRows:
    """Rows that were moved to a device once.

    Args:
        inputs: a CSR matrix ``[R, F]``.
        labels: ``[R, L]``, hard or soft.
        sample_weight: ``[R]``, or None.
        device: the device.
    """

    def __init__(self, inputs: Any, labels: SparseLabels, sample_weight: Tensor | None, device: torch.device) -> None:
        self.device, self.num_labels = device, labels.num_labels
        inputs = inputs[:] if isinstance(inputs, MappedMatrix) else inputs
        columns, values = inputs.indices.astype(np.int32), inputs.data.astype(np.float32, copy=False)
        self.inputs = self._lists(inputs.indptr.astype(np.int64), torch.from_numpy(columns), torch.from_numpy(values))
        listed = [labels.indices, *([] if labels.values is None else [labels.values])]
        self.labels = self._lists(labels.offsets.numpy(), *listed)
        self.sample_weight = None if sample_weight is None else sample_weight.to(device)

    def _lists(self, starts: Array, *parts: Tensor) -> Lists:
        return Lists(starts, torch.from_numpy(starts).to(self.device), tuple(part.to(self.device) for part in parts))

    def __len__(self) -> int:
        return len(self.inputs.starts) - 1

    def taken(self, order: Array) -> TakenRows:
        """The rows in another order, or some of them."""
        places = torch.from_numpy(order).to(self.device, non_blocking=True)
        inputs, labels = self.inputs.taken(order, places), self.labels.taken(order, places)
        return TakenRows(inputs, labels, None if self.sample_weight is None else self.sample_weight[places], self.num_labels)

    def batches(self, order: Array, size: int, start: int = 0) -> Iterator[DeviceBatch]:
        """``(inputs, labels, sample_weight)`` of ``size`` rows at a time in the order given, from batch ``start`` on."""
        taken = self.taken(order[start * size :])
        for first in range(0, len(taken), size):
            yield taken.batch(first, min(first + size, len(taken)))
