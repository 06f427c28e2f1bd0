"""Confusion counts by row and by label, and the values that follow from them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.engines.triton.counts import count_above
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.blocks import Labels


class Confusion(NamedTuple):
    """Counts of hits, predictions and positives along one axis; the other cells of the confusion matrix follow from them.

    Attributes:
        hits: int64 ``[N]``, predicted and true.
        predicted: int64 ``[N]``.
        positive: int64 ``[N]``, true.
    """

    hits: Tensor
    predicted: Tensor
    positive: Tensor

    def pooled(self) -> Confusion:
        """The counts summed over the axis."""
        return Confusion(*(part.sum().reshape(1) for part in self))


def count_sets(predictions: Labels, positives: SparseLabels) -> tuple[Confusion, Confusion]:
    """The confusion by row, ``[R]``, and by label, ``[L]``.

    Args:
        predictions: bool ``[R, L]``, or index lists.
        positives: the true labels ``[R, L]``.
    """
    rows, columns = positives.rows, positives.indices
    size = tuple(positives.shape)
    if isinstance(predictions, SparseLabels):
        kept = predictions.contains(rows, columns)
        by_row, by_label = predictions.counts(), _tally(predictions.indices, None, size[1])
    else:
        found = count_above(predictions, 0.0, lists=(rows, columns))
        if found is not None:
            return Confusion(*found.by_row.long()), Confusion(*found.by_label.long())
        kept = predictions[rows, columns]
        by_row = predictions.sum(dim=1)
        # Summing bytes into int32 takes half the time of summing bools into int64.
        by_label = predictions.view(torch.uint8).sum(dim=0, dtype=torch.int32).long()
    return (
        Confusion(_tally(rows, kept, size[0]), by_row, positives.counts()),
        Confusion(_tally(columns, kept, size[1]), by_label, _tally(columns, None, size[1])),
    )


def _tally(places: Tensor, kept: Tensor | None, size: int) -> Tensor:
    """int64 ``[size]``: how often each place occurs among the kept ones."""
    ones = torch.ones_like(places) if kept is None else kept.long()
    return torch.zeros(size, dtype=torch.int64, device=places.device).index_add_(0, places, ones)


def share(part: Tensor, whole: Tensor, empty: float) -> Tensor:
    """float64 ``part / whole``, ``empty`` where the whole is 0."""
    return torch.where(whole == 0, empty, part.double() / whole.clamp(min=1))


def subset_accuracy_of(rows: Confusion) -> Tensor:
    """SubACC of each row, ``[R]``."""
    return ((rows.hits == rows.predicted) & (rows.hits == rows.positive)).double()


def f1_of(counts: Confusion, empty: float) -> Tensor:
    """F1 of each row or label, ``empty`` where nothing is predicted and nothing is true."""
    return share(2 * counts.hits, counts.predicted + counts.positive, empty)


def jaccard_of(rows: Confusion, empty: float) -> Tensor:
    """Jaccard of each row."""
    return share(rows.hits, rows.predicted + rows.positive - rows.hits, empty)


def precision_of(counts: Confusion, empty: float) -> Tensor:
    """Precision of each row or label, ``empty`` where nothing is predicted."""
    return share(counts.hits, counts.predicted, empty)


def recall_of(counts: Confusion, empty: float) -> Tensor:
    """Recall of each row or label, ``empty`` where nothing is true."""
    return share(counts.hits, counts.positive, empty)


def wrong_of(counts: Confusion) -> Tensor:
    """The number of wrong entries of each row or label."""
    return counts.predicted + counts.positive - 2 * counts.hits


def label_count_error_of(rows: Confusion) -> Tensor:
    """The difference between the sizes of the predicted and the true set, ``[R]``."""
    return (rows.predicted - rows.positive).abs().double()


def average_labels(values: Tensor, positive: Tensor, absent: str) -> Tensor:
    """The mean over labels; ``absent="skip"`` skips labels without positives. NaN if no label is left."""
    return values.mean() if absent == "zero" else values[positive > 0].mean()
