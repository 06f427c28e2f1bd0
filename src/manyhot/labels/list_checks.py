"""Checks of index lists, with their error messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import shape_text

if TYPE_CHECKING:
    from manyhot.labels.sparse import SparseLabels


def label_numbers(place: int, row: Any) -> np.ndarray[Any, Any]:
    """The label numbers of one row as int64; floats with whole values are accepted, anything else is an error."""
    given = np.asarray(row).reshape(-1)
    if given.dtype.kind in "iu" or given.size == 0:
        return given.astype(np.int64, copy=False)
    if given.dtype.kind == "f" and bool((given == np.floor(given)).all()) and bool((np.abs(given) < 2**53).all()):
        return given.astype(np.int64)
    wrong = next((one for one in given.tolist() if not (isinstance(one, (int, float)) and one == one // 1)), given.tolist()[0])
    remedy = " Encode names with manyhot.encode_label_sets." if isinstance(wrong, str) else ""
    raise TypeError(f"SparseLabels.from_lists: row {place} must list label numbers, whole numbers; got {wrong!r}.{remedy}")


def check_layout(labels: SparseLabels) -> None:
    """Check types, axes and devices of the parts."""
    for name in ("indices", "offsets"):
        part = getattr(labels, name)
        if not isinstance(part, Tensor) or part.dtype != torch.int64 or part.ndim != 1:
            got = f"{part.dtype} {shape_text(part.shape)}" if isinstance(part, Tensor) else type(part).__name__
            raise TypeError(f"SparseLabels: `{name}` must be an int64 tensor with one axis; got {got}.")
    for name in ("offsets", "values"):
        part = getattr(labels, name)
        if part is not None and part.device != labels.indices.device:
            raise ValueError(
                f"SparseLabels: `{name}` must be on the device of `indices`, {labels.indices.device}; got {part.device}."
                " Move all with .to(device)."
            )
    if labels.num_labels < 0:
        raise ValueError(f"SparseLabels: `num_labels` must be >= 0; got {labels.num_labels}.")
    if labels.offsets.shape[0] < 1:
        raise ValueError("SparseLabels: `offsets` must have one more entry than there are rows; got none.")
    if labels.values is not None and labels.values.shape != labels.indices.shape:
        raise ValueError(
            f"SparseLabels: `values` must have the shape of `indices`, {shape_text(labels.indices.shape)};"
            f" got {shape_text(labels.values.shape)}."
        )


def check_contents(labels: SparseLabels) -> None:
    """Check that offsets increase, label numbers exist and increase in each row, and values lie in [0, 1]. Reads values, so it
    syncs with the device."""
    indices, offsets = labels.indices, labels.offsets
    ends = offsets[[0, -1]].tolist()
    if ends != [0, indices.shape[0]] or bool((offsets.diff() < 0).any()):
        raise ValueError(f"SparseLabels: `offsets` must increase from 0 to {indices.shape[0]}; got {ends[0]} to {ends[1]}.")
    outside = (indices < 0) | (indices >= labels.num_labels)
    if bool(outside.any()):
        place = int(outside.nonzero()[0])
        raise ValueError(
            f"SparseLabels: label numbers must lie in [0, {labels.num_labels}); got {int(indices[place])}"
            f" in row {int(labels.rows[place])}. Encode with the same label names."
        )
    rows = labels.rows
    unsorted = (rows[1:] == rows[:-1]) & (indices[1:] <= indices[:-1])
    if bool(unsorted.any()):
        place = int(unsorted.nonzero()[0])
        same = int(indices[place]) == int(indices[place + 1])
        problem = "is repeated" if same else "is out of order"
        raise ValueError(
            f"SparseLabels: each row must list its labels once and in increasing order; label {int(indices[place + 1])}"
            f" {problem} in row {int(rows[place])}."
            + (" Drop the copy." if same else " SparseLabels.from_lists sorts for you.")
        )
    if labels.values is not None:
        wrong = ~((labels.values >= 0) & (labels.values <= 1))
        if bool(wrong.any()):
            place = int(wrong.nonzero()[0])
            raise ValueError(
                f"SparseLabels: `values` must lie in [0, 1]; got {float(labels.values[place]):g} in row {int(rows[place])}."
            )
