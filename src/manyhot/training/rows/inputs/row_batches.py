"""Prepared rows in memory, and batches of them as a body reads them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.data.mapped.rows import MappedMatrix
from manyhot.training.rows.inputs.tokens import TokenRows

Array = np.ndarray[Any, Any]


class SparseRows(NamedTuple):
    """Rows of sparse features for a body: entry ``i`` is ``values[i]`` in column ``columns[i]``; rows start at ``offsets``."""

    columns: Tensor
    offsets: Tensor
    values: Tensor

    def to_device(self, device: torch.device) -> SparseRows:
        """The same on ``device``."""
        return SparseRows(*(part.to(device) for part in self))

    def consecutive(self, part: slice) -> SparseRows:
        """Rows next to each other."""
        offsets = self.offsets[part.start : part.stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return SparseRows(self.columns[first:last], offsets - first, self.values[first:last])


def is_sparse(rows: Any) -> bool:
    """Whether prepared rows are a sparse matrix, in memory or in files."""
    return isinstance(rows, MappedMatrix) or (not isinstance(rows, Tensor) and hasattr(rows, "indptr"))


def part_of(rows: Any, picked: Array) -> Any:
    """Some of the prepared rows, in memory or still in their files."""
    return rows.view(picked) if isinstance(rows, MappedMatrix) else rows[picked]


Batch = Tensor | SparseRows | TokenRows


def take_rows(rows: Any, picked: Array | slice) -> Batch:
    """Some rows of prepared inputs (float32 array, CSR matrix or tensor) as a body reads them."""
    if isinstance(rows, Tensor):
        return rows[torch.from_numpy(picked) if isinstance(picked, np.ndarray) else picked]
    part = rows[picked]
    if isinstance(part, TokenRows):
        return part
    if isinstance(part, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(part))
    columns, offsets = torch.from_numpy(part.indices.astype(np.int64)), torch.from_numpy(part.indptr.astype(np.int64))
    return SparseRows(columns, offsets, torch.from_numpy(part.data.astype(np.float32, copy=False)))
