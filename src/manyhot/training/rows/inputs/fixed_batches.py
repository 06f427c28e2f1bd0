"""Batches of one size at a fixed address, for a training step that is captured in a CUDA graph.

Rows differ in their number of words and labels, so a batch is padded. Padding words have no column and the value 0; padding
labels stand behind the list of the last row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhot.engines.triton.linear import table
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.inputs.device_rows import DeviceBatch, DeviceRows, Lists, TakenRows
from manyhot.training.rows.inputs.row_batches import SparseRows

Array = np.ndarray[Any, Any]
# The capacity of a batch: the mean number of entries plus this many standard deviations. Larger batches are not captured.
DEVIATIONS = 3.0
# The capacity is a multiple of this many entries.
ROOM_UNIT = 1024


class _FixedLists:
    """The lists of the rows of an epoch, from which batches of ``room`` entries are cut."""

    def __init__(self, lists: Lists, picked: Array, size: int) -> None:
        lengths, device = np.diff(lists.starts)[picked], lists.on_device.device
        expected = size * lengths.mean() + DEVIATIONS * lengths.std() * math.sqrt(size)
        self.size, self.room = size, max(math.ceil(expected / ROOM_UNIT), 1) * ROOM_UNIT
        total = int(lengths.sum()) + self.room
        self.starts = torch.zeros(len(picked) + 1, dtype=torch.int64, device=device)
        self.parts = [torch.zeros(total, dtype=part.dtype, device=device) for part in lists.parts]

    def load(self, lists: Lists) -> None:
        """Load the lists of an epoch."""
        self.starts[: len(lists.on_device)] = lists.on_device
        for own, part in zip(self.parts, lists.parts, strict=True):
            own[: len(part)] = part

    def cut(self, first: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """``(offsets, entries, their values if there are any)`` of the rows from ``first`` on.

        The padding holds the entries of the rows behind them, which are many different ones, with the value 0.
        """
        starts = self.starts[first + torch.arange(self.size + 1, device=first.device)]
        offsets, places = starts - starts[0], torch.arange(self.room, device=first.device)
        source, inside = starts[0] + places, places < offsets[-1]
        listed, *values = self.parts
        return offsets, listed[source], [torch.where(inside, part[source], 0.0) for part in values]


class FixedBatches:
    """Full batches of ``size`` rows.

    Args:
        rows: all rows, on a device.
        picked: the numbers of the rows of an epoch.
        size: rows of a batch.
    """

    def __init__(self, rows: DeviceRows, picked: Array, size: int) -> None:
        self.size, self.num_labels, device = size, rows.num_labels, rows.device
        self.inputs = _FixedLists(rows.inputs, picked, size)
        self.labels = _FixedLists(rows.labels, picked, size)
        self.weights = None if rows.sample_weight is None else torch.zeros(len(picked), device=device)
        self.first = torch.zeros((), dtype=torch.int64, device=device)
        self.taken: TakenRows | None = None

    def load(self, taken: TakenRows) -> None:
        """Load the rows of an epoch, in order."""
        self.taken = taken
        self.inputs.load(taken.inputs)
        self.labels.load(taken.labels)
        if self.weights is not None and taken.sample_weight is not None:
            self.weights[: len(taken)] = taken.sample_weight

    def holds(self, first: int, last: int) -> bool:
        """Whether these rows of the epoch are a full batch that does not exceed the capacity."""
        assert self.taken is not None
        parts = ((self.taken.inputs, self.inputs), (self.taken.labels, self.labels))
        return last - first == self.size and all(own.starts[last] - own.starts[first] <= fixed.room for own, fixed in parts)

    def batch(self) -> DeviceBatch:
        """``(inputs, labels, sample_weight)`` of the rows from ``first`` on; ``first`` is read on the device."""
        offsets, columns, (values,) = self.inputs.cut(self.first)
        left_over = torch.arange(self.inputs.room, device=self.first.device) >= offsets[-1]
        columns = torch.where(left_over, table.NO_COLUMN, columns)
        inputs = SparseRows(columns, offsets.to(torch.int32), values)
        offsets, indices, soft = self.labels.cut(self.first)
        labels = SparseLabels(indices, offsets, self.num_labels, values=soft[0] if soft else None, validate=False)
        if self.weights is None:
            return inputs, labels, None
        return inputs, labels, self.weights[self.first + torch.arange(self.size, device=self.first.device)]
