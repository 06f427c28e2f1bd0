"""Mixup of a batch: inputs, labels, which labels are known, and the weights of the rows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.labels.soften import draw_mix, mix_labels
from manyhot.training.rows.inputs.row_batches import Batch, SparseRows


class Mixed(NamedTuple):
    """A mixed batch."""

    batch: Batch
    labels: Tensor
    where: Tensor | None
    sample_weight: Tensor | None


def mix_batch(batch: Batch, labels: Tensor, where: Tensor | None, sample_weight: Tensor | None, *, alpha: float) -> Mixed:
    """Each row mixed with another one of the batch, by one share drawn from Beta(alpha, alpha).

    A label is known in a mixed row where both rows know it. The weight of a mixed row is mixed by the same share.

    Args:
        batch: rows of dense features, images or sparse features; B of them.
        labels: ``[B, L]`` in [0, 1].
        where: bool ``[B, L]``, True where a label is known; None: all are.
        sample_weight: ``[B]``, or None.
        alpha: > 0.

    Example:
        >>> known = torch.tensor([[True, False], [True, True]])
        >>> mix_batch(torch.eye(2), torch.eye(2), known, None, alpha=0.4).where
        tensor([[ True, False],
                [ True, False]])
    """
    rows = len(labels)
    share, partner = draw_mix(rows, alpha=alpha)
    partner = partner.to(labels.device)
    if rows < 2:
        return Mixed(batch, labels, where, sample_weight)
    inputs: Batch
    if isinstance(batch, SparseRows):
        inputs = mix_sparse(batch, partner, share)
    elif isinstance(batch, Tensor):
        inputs = share * batch + (1 - share) * batch[partner]
    else:
        raise TypeError(f"mix_batch: `batch` must be features or images; got {type(batch).__name__}.")
    return Mixed(
        inputs,
        mix_labels(labels, labels[partner], share),
        None if where is None else where & where[partner],
        None if sample_weight is None else share * sample_weight + (1 - share) * sample_weight[partner],
    )


def mix_sparse(rows: SparseRows, partner: Tensor, share: float) -> SparseRows:
    """``share`` of each row and ``1 - share`` of its partner. A column that both have is listed twice, which adds up.

    Args:
        rows: B sparse rows.
        partner: int64 ``[B]``, a row number for each row.
        share: in [0, 1].
    """
    counts = rows.offsets.diff()
    other = counts[partner]
    offsets = torch.cat([counts.new_zeros(1), (counts + other).cumsum(0)])
    # Where the entries of each row, and after them those of its partner, go to.
    entries = torch.arange(len(rows.columns), device=rows.columns.device)
    own_place = entries + (offsets[:-1] - rows.offsets[:-1]).repeat_interleave(counts)
    starts = torch.cat([other.new_zeros(1), other.cumsum(0)])[:-1]
    step = torch.arange(int(other.sum()), device=entries.device) - starts.repeat_interleave(other)
    source = rows.offsets[:-1][partner].repeat_interleave(other) + step
    other_place = (offsets[:-1] + counts).repeat_interleave(other) + step
    columns, values = rows.columns.new_empty(int(offsets[-1])), rows.values.new_empty(int(offsets[-1]))
    columns[own_place], values[own_place] = rows.columns, share * rows.values
    columns[other_place], values[other_place] = rows.columns[source], (1 - share) * rows.values[source]
    return SparseRows(columns, offsets, values)
