"""Metrics of predicted label sets, all computed from the same counts: hits, predicted and positive, by row and by label."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from manyhot._checks import check_choice, check_reduction
from manyhot.metrics.blocks import Labels, arrange, checked_blocks
from manyhot.metrics.confusion import (
    Confusion,
    average_labels,
    count_sets,
    f1_of,
    jaccard_of,
    label_count_error_of,
    precision_of,
    recall_of,
    subset_accuracy_of,
    wrong_of,
)
from manyhot.metrics.ranking import reduce_rows

AVERAGES = ("micro", "macro", "none")
ABSENT = ("zero", "skip")


def over_rows(
    who: str,
    values: Callable[[Confusion], Tensor],
    predictions: Labels,
    labels: Labels,
    where: Tensor | None,
    reduction: str,
) -> Tensor:
    """One value per row, from its confusion counts."""
    check_reduction(who, reduction)
    table = arrange(who, None, labels, predictions=predictions, where=where)
    parts = [
        values(count_sets(block.predictions, block.positives)[0])
        for block in checked_blocks(who, table)
        if block.predictions is not None
    ]
    return reduce_rows(torch.cat(parts).reshape(table.shape[:-1]), reduction)


def confusion_counts(predictions: Labels, labels: Labels, *, where: Tensor | None = None) -> Confusion:
    """Hits, predicted and positive of each label.

    Args:
        predictions: bool ``[..., L]``, or ``SparseLabels``; see ``decide``.
        labels: ``[..., L]``, 0 or 1 of any number type, or ``SparseLabels``.
        where: bool, broadcastable to ``[..., L]``; False excludes an entry.

    Returns:
        ``Confusion`` with int64 ``hits``, ``predicted``, ``positive``, each ``[L]``.

    Example:
        >>> confusion_counts(torch.tensor([[True, True], [True, False]]), torch.tensor([[1, 0], [0, 0]]))
        Confusion(hits=tensor([1, 0]), predicted=tensor([2, 1]), positive=tensor([1, 0]))
    """
    who = "confusion_counts"
    table = arrange(who, None, labels, predictions=predictions, where=where)
    total: Confusion | None = None
    for block in checked_blocks(who, table):
        if block.predictions is not None:
            part = count_sets(block.predictions, block.positives)[1]
            total = part if total is None else Confusion(*(a + b for a, b in zip(total, part, strict=True)))
    if total is None:
        raise ValueError(f"{who}: `predictions` must be given.")
    return total


def _over_labels(
    who: str,
    values: Callable[[Confusion, float], Tensor],
    predictions: Labels,
    labels: Labels,
    where: Tensor | None,
    average: str,
    absent: str,
) -> Tensor:
    check_choice(who, "average", average, AVERAGES)
    check_choice(who, "absent", absent, ABSENT)
    counts = confusion_counts(predictions, labels, where=where)
    if average == "micro":
        return values(counts.pooled(), 0.0)[0]
    each = values(counts, 0.0)
    return each if average == "none" else average_labels(each, counts.positive, absent)


def subset_accuracy_score(
    predictions: Labels, labels: Labels, *, where: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """SubACC: the share of rows whose label set is predicted exactly; two empty sets are equal.

    Args:
        predictions: bool ``[..., L]``, or ``SparseLabels``; see ``decide``.
        labels: ``[..., L]``, 0 or 1 of any number type, or ``SparseLabels``.
        where: bool, broadcastable to ``[..., L]``; False excludes an entry.
        reduction: ``"mean"`` over rows (NaN for no rows), ``"sum"`` or ``"none"``.

    Returns:
        A float64 scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> predictions = torch.tensor([[True, False], [True, True]])
        >>> subset_accuracy_score(predictions, torch.tensor([[1, 0], [0, 1]]))
        tensor(0.5000, dtype=torch.float64)
    """
    return over_rows("subset_accuracy_score", subset_accuracy_of, predictions, labels, where, reduction)


def example_f1_score(
    predictions: Labels, labels: Labels, *, where: Tensor | None = None, empty: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """MLC-F1: the mean over rows of ``2 |Y n P| / (|Y| + |P|)``.

    ``empty`` is the value of a row in which nothing is true and nothing is predicted: 1 by default, 0 in scikit-learn. Other
    arguments and result as in ``subset_accuracy_score``.

    Example:
        >>> predictions = torch.tensor([[True, False], [True, True]])
        >>> example_f1_score(predictions, torch.tensor([[1, 0], [0, 1]]))
        tensor(0.8333, dtype=torch.float64)
    """
    return over_rows("example_f1_score", partial(f1_of, empty=empty), predictions, labels, where, reduction)


def jaccard_score(
    predictions: Labels, labels: Labels, *, where: Tensor | None = None, empty: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """The mean over rows of ``|Y n P| / |Y u P|``, ``empty`` where both are empty. Arguments as in ``example_f1_score``.

    Example:
        >>> predictions = torch.tensor([[True, False], [True, True]])
        >>> jaccard_score(predictions, torch.tensor([[1, 0], [0, 1]]))
        tensor(0.7500, dtype=torch.float64)
    """
    return over_rows("jaccard_score", partial(jaccard_of, empty=empty), predictions, labels, where, reduction)


def label_count_error(predictions: Labels, labels: Labels, *, where: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """The difference between the sizes of the predicted and the true set: ``| |P| - |Y| |``. See ``subset_accuracy_score``.

    Example:
        >>> label_count_error(torch.tensor([[True, True], [True, False]]), torch.tensor([[1, 0], [0, 1]]))
        tensor(0.5000, dtype=torch.float64)
    """
    return over_rows("label_count_error", label_count_error_of, predictions, labels, where, reduction)


def hamming_error(predictions: Labels, labels: Labels, *, where: Tensor | None = None) -> Tensor:
    """The share of wrong entries among those that count; NaN if no entry counts. See ``subset_accuracy_score``.

    Example:
        >>> hamming_error(torch.tensor([[True, True], [True, False]]), torch.tensor([[1, 0], [0, 1]]))
        tensor(0.7500, dtype=torch.float64)
    """
    table = arrange("hamming_error", None, labels, predictions=predictions, where=where)
    wrong = wrong_of(confusion_counts(predictions, labels, where=where)).sum()
    entries = table.num_rows * table.num_labels if table.where is None else table.where.sum()
    return wrong.double() / entries


def f1_score(
    predictions: Labels,
    labels: Labels,
    *,
    average: str = "micro",
    absent: str = "zero",
    where: Tensor | None = None,
) -> Tensor:
    """Micro-F1, macro-F1 or the F1 of each label: ``2 hits / (predicted + positive)``; 0 / 0 is 0.

    Args:
        predictions: bool ``[..., L]``, or ``SparseLabels``; see ``decide``.
        labels: ``[..., L]``, 0 or 1 of any number type, or ``SparseLabels``.
        average: ``"micro"`` over all entries, ``"macro"`` over labels, or ``"none"``.
        absent: labels without a positive in the macro average: ``"zero"`` counts them as 0, ``"skip"`` leaves them out.
        where: bool, broadcastable to ``[..., L]``; False excludes an entry.

    Returns:
        A float64 scalar, or ``[L]`` with ``average="none"``.

    Example:
        >>> predictions = torch.tensor([[True, False, False], [True, True, False]])
        >>> labels = torch.tensor([[1, 0, 0], [0, 1, 0]])
        >>> f1_score(predictions, labels, average="macro"), f1_score(predictions, labels, average="macro", absent="skip")
        (tensor(0.5556, dtype=torch.float64), tensor(0.8333, dtype=torch.float64))
    """
    return _over_labels("f1_score", f1_of, predictions, labels, where, average, absent)


def precision_score(
    predictions: Labels,
    labels: Labels,
    *,
    average: str = "micro",
    absent: str = "zero",
    where: Tensor | None = None,
) -> Tensor:
    """``hits / predicted``, 0 where nothing is predicted. Arguments and result as in ``f1_score``.

    Example:
        >>> precision_score(torch.tensor([[True, True], [True, False]]), torch.tensor([[1, 0], [0, 1]]))
        tensor(0.3333, dtype=torch.float64)
    """
    return _over_labels("precision_score", precision_of, predictions, labels, where, average, absent)


def recall_score(
    predictions: Labels,
    labels: Labels,
    *,
    average: str = "micro",
    absent: str = "zero",
    where: Tensor | None = None,
) -> Tensor:
    """``hits / positive``, 0 where nothing is true. Arguments and result as in ``f1_score``.

    Example:
        >>> recall_score(torch.tensor([[True, True], [True, False]]), torch.tensor([[1, 0], [0, 1]]))
        tensor(0.5000, dtype=torch.float64)
    """
    return _over_labels("recall_score", recall_of, predictions, labels, where, average, absent)
