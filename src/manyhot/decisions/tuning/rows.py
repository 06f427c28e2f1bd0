"""Scores and labels of held-out rows, and counts over them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import check_dense_labels, check_logits, check_where
from manyhot.engines.triton.counts import Counts, count_above
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.lazy import is_lazy

INF = math.inf
BLOCK_ELEMENTS = 1 << 24
# Larger blocks on a GPU, because every block costs several kernel launches.
CUDA_ELEMENTS = 1 << 28


class ScoredRows(NamedTuple):
    """Scores ``[R, L]``, ``-inf`` for entries that are never predicted; hard labels; the number of counted entries per row."""

    scores: Tensor
    labels: SparseLabels
    entries: Tensor

    def rows(self, index: Tensor) -> ScoredRows:
        """Some of the rows."""
        return ScoredRows(self.scores[index], self.labels[index], self.entries[index])

    def of_labels(self, index: Tensor) -> ScoredRows:
        """Some of the labels, among them all that have positives; ``index`` increases."""
        number = torch.zeros(self.scores.shape[1], dtype=torch.int64, device=index.device)
        number[index] = torch.arange(len(index), device=index.device)
        labels = SparseLabels(number[self.labels.indices], self.labels.offsets, len(index), validate=False)
        return ScoredRows(self.scores.index_select(1, index), labels, self.entries)

    def hits(self) -> Tensor:
        """``[P]``: the scores of the positives."""
        return self.scores[self.labels.rows, self.labels.indices]

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """``(first row, scores)`` in blocks of rows."""
        size = max(1, block_elements(self.scores) // max(self.scores.shape[1], 1))
        for start in range(0, self.scores.shape[0], size):
            yield start, self.scores[start : start + size]

    def num_groups(self, groups: str) -> int:
        """The number of groups."""
        return {"all": 1, "rows": self.scores.shape[0], "labels": self.scores.shape[1]}[groups]

    def per_group(self, groups: str, kept: Tensor | None = None) -> Tensor:
        """float64 ``[G]``: the number of positives (of those ``kept``) in each group."""
        if groups == "all":
            count = self.labels.indices.new_full((), len(self.labels.indices)) if kept is None else kept.sum()
            return count.double().reshape(1)
        place = group_of(groups, self.labels.rows, self.labels.indices)
        return tally(place, self.num_groups(groups), kept)


def block_elements(scores: Tensor) -> int:
    """The number of scores in a block."""
    return CUDA_ELEMENTS if scores.is_cuda else BLOCK_ELEMENTS


def scored_rows(who: str, logits: Any, labels: Any, where: Tensor | None) -> ScoredRows:
    """Check scores and labels; excluded entries get the score ``-inf``."""
    if is_lazy(logits):
        logits = logits.dense()
    check_logits(who, logits)
    size = (logits.shape[:-1].numel(), logits.shape[-1])
    scores = logits.detach().reshape(size)
    if scores.dtype not in (torch.float32, torch.float64):
        scores = scores.float()
    if not isinstance(labels, SparseLabels):
        check_dense_labels(who, logits.shape, labels)
        labels = SparseLabels.from_dense(labels.reshape(size).to(scores.device))
    if tuple(labels.shape) != size or 0 in size:
        raise ValueError(
            f"{who}: `labels` must fit `logits`, {size[0]} rows of {size[1]} labels, at least 1 each;"
            f" got {len(labels)} rows of {labels.num_labels}. Encode with the same label names."
        )
    if labels.values is not None and bool(((labels.values != 0) & (labels.values != 1)).any()):
        raise ValueError(f"{who}: `labels` must be hard, 0 or 1; got soft ones. Round them, or sample from them.")
    labels = labels.to(scores.device)
    kept = torch.ones_like(labels.indices, dtype=torch.bool) if labels.values is None else labels.values > 0
    entries = torch.full((size[0],), size[1], device=scores.device)
    if where is not None:
        check_where(who, where, logits.shape)
        where = where.expand(logits.shape).reshape(size)
        scores = scores.masked_fill(~where, -INF)
        kept &= where[labels.rows, labels.indices]
        entries = where.sum(dim=1)
    if bool(scores.amax().isnan()):
        scores = scores.masked_fill(scores.isnan(), -INF)
    counts = torch.bincount(labels.rows[kept], minlength=size[0])
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return ScoredRows(scores, SparseLabels(labels.indices[kept], offsets, size[1], validate=False), entries)


def group_of(groups: str, rows: Tensor, columns: Tensor) -> Tensor:
    """The group of each entry."""
    return torch.zeros_like(rows) if groups == "all" else rows if groups == "rows" else columns


def tally(place: Tensor, size: int, kept: Tensor | None = None) -> Tensor:
    """float64 ``[size]``: how often each place occurs, or occurs among the ``kept`` ones."""
    if place.device.type == "cpu":
        return torch.bincount(place if kept is None else place[kept], minlength=size).double()
    # ``bincount`` waits for a GPU. Sums of whole numbers are exact in any order.
    ones = torch.ones_like(place, dtype=torch.float64) if kept is None else kept.double()
    return torch.zeros(size, dtype=torch.float64, device=place.device).index_add_(0, place, ones)


def number_at_least(data: ScoredRows, groups: str, least: float) -> Tensor:
    """float64 ``[G]``: the number of scores that are not below ``least``, a score of the same type."""
    counts = count_above(data.scores, least, by_row=groups != "labels", equal=True)
    if counts is not None:
        return _of_groups(counts, groups)
    parts = [sum_over(groups, block >= least) for _, block in data.blocks()]
    return torch.cat(parts) if groups == "rows" else torch.stack(parts).sum(dim=0)


def _of_groups(counts: Counts, groups: str) -> Tensor:
    """float64 ``[G]``: the number of predictions."""
    found = counts.by_label[1] if groups == "labels" else counts.by_row[1]
    return (found.sum().reshape(1) if groups == "all" else found).double()


def sum_over(groups: str, chosen: Tensor) -> Tensor:
    """float64: the number of True entries of ``chosen [r, L]`` by group."""
    axis = {"all": None, "rows": 1, "labels": 0}[groups]
    if chosen.device.type == "cpu":
        # On a CPU, NumPy counts Booleans tens of times faster than torch.
        counts = np.count_nonzero(chosen.numpy()) if axis is None else chosen.numpy().sum(axis=axis, dtype=np.int32)
        return torch.as_tensor(counts, dtype=torch.float64).reshape(-1)
    found = count_above(chosen, 0.0, by_row=groups != "labels")
    return chosen.sum(dim=axis).double().reshape(-1) if found is None else _of_groups(found, groups)
