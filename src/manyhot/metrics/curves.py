"""Areas under curves over all thresholds: average precision and AUROC, of each label or pooled over all entries.

Exact areas need all scores at once. Binned areas need only two counts for each of a number of equally wide bins of probability;
they are the exact areas of scores that were rounded to bins.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_choice
from manyhot.metrics.blocks import Block, Labels, Scores, arrange, block_elements, checked_blocks
from manyhot.metrics.calibration import add_bins, check_probabilities
from manyhot.metrics.confusion import average_labels
from manyhot.metrics.counts import ABSENT, AVERAGES
from manyhot.metrics.ties import differs, tie_bounds

UNKNOWN = -1


class Areas(NamedTuple):
    """The areas under a set of curves.

    Attributes:
        average_precision: float64 ``[N]``, 0 without a positive.
        auroc: float64 ``[N]``, NaN unless there are positives and negatives.
        positive: int64 ``[N]``, the number of positives.
    """

    average_precision: Tensor
    auroc: Tensor
    positive: Tensor


def truth_of(block: Block) -> Tensor:
    """int8 ``[r, L]``: 1 positive, 0 negative, -1 excluded."""
    truth = block.positives.dense(torch.int8)
    return truth if block.where is None else truth.masked_fill(~block.where, UNKNOWN)


def exact_areas(scores: Tensor, truth: Tensor, *, pooled: bool) -> Areas:
    """The areas of scores ``[R, L]`` against the result of ``truth_of``, for each label or ``pooled``, in blocks of labels."""
    if pooled:
        return _areas(scores.reshape(1, -1), truth.reshape(1, -1))
    size = max(1, block_elements(scores.device) // max(scores.shape[0], 1))
    starts = range(0, max(scores.shape[1], 1), size)
    parts = [_areas(scores[:, at : at + size].mT, truth[:, at : at + size].mT) for at in starts]
    return Areas(*(torch.cat(each) for each in zip(*parts, strict=True)))


def _areas(scores: Tensor, truth: Tensor) -> Areas:
    """The areas along the last axis of ``[N, R]``."""
    known = truth != UNKNOWN
    ordered, places = torch.where(known, scores, -torch.inf).sort(dim=1, descending=True)
    sorted_truth = truth.gather(1, places)
    first, last = tie_bounds(differs(ordered))
    hits, misses = sorted_truth == 1, sorted_truth == 0
    hits_to, misses_to = hits.cumsum(dim=1).gather(1, last), misses.cumsum(dim=1).gather(1, last)
    misses_in = misses_to - (misses.cumsum(dim=1) - misses.long()).gather(1, first)
    return _areas_from_steps(hits.long(), hits_to, misses_to, misses_in, hits.sum(dim=1), misses.sum(dim=1))


def binned_areas(sums: Tensor) -> Areas:
    """The areas of ``add_bins``, whose first two parts are a histogram of entries and of positives."""
    falling = sums[:2].flip(-1)
    hits = falling[1].long()
    misses = falling[0].long() - hits
    return _areas_from_steps(hits, hits.cumsum(-1), misses.cumsum(-1), misses, hits.sum(-1), misses.sum(-1))


def _areas_from_steps(
    hits: Tensor, hits_to: Tensor, misses_to: Tensor, misses_in: Tensor, positive: Tensor, negative: Tensor
) -> Areas:
    """Areas from the steps of the curves, in order of falling score.

    Args:
        hits: ``[N, T]``, the positives of each step.
        hits_to: ``[N, T]``, the positives up to and including the step.
        misses_to: ``[N, T]``, the negatives up to and including the step.
        misses_in: ``[N, T]``, the negatives tied with the step.
        positive: ``[N]``, all positives.
        negative: ``[N]``, all negatives.
    """
    purity = hits_to.double() / (hits_to + misses_to).clamp(min=1)
    precision = (hits * purity).sum(dim=1) / positive.clamp(min=1)
    # A pair of a positive and a negative is wrong if the negative scores higher; ties count half.
    lost = (hits * (2 * misses_to - misses_in)).sum(dim=1).double() / 2
    pairs = positive.double() * negative
    return Areas(precision, torch.where(pairs == 0, torch.nan, 1.0 - lost / pairs.clamp(min=1)), positive)


def average_auroc(areas: Areas) -> Tensor:
    """The mean over labels that have positives and negatives; NaN if there is no such label."""
    return areas.auroc.nanmean()


def _all_areas(who: str, scores: Scores, labels: Labels, where: Tensor | None, pooled: bool, bins: int | None) -> Areas:
    table = arrange(who, scores, labels, where=where)
    if bins is not None:
        check_at_least(who, "bins", bins, 2)
        sizes = (2, 1 if pooled else table.num_labels, bins)
        total = torch.zeros(sizes, dtype=torch.float64, device=table.labels.device)
        for block in checked_blocks(who, table):
            add_bins(total, check_probabilities(who, block), block)
        return binned_areas(total)
    kept = [(block.scores, truth_of(block)) for block in checked_blocks(who, table)]
    return exact_areas(torch.cat([s for s, _ in kept if isinstance(s, Tensor)]), torch.cat([t for _, t in kept]), pooled=pooled)


def mean_average_precision_score(
    scores: Scores,
    labels: Labels,
    *,
    average: str = "macro",
    absent: str = "zero",
    bins: int | None = None,
    where: Tensor | None = None,
) -> Tensor:
    """mAP: the average precision of each label over all rows, ``sum_n (R_n - R_{n-1}) P_n``, and its mean over labels.

    Rows with equal scores are one step n of the curve. A label without a positive is 0, as in scikit-learn's
    ``average_precision_score``, or skipped.

    Args:
        scores: ``[..., L]``, or lazy scores of a linear head; probabilities if ``bins`` are given.
        labels: ``[..., L]``, 0 or 1 of any number type, or ``SparseLabels``.
        average: ``"macro"`` over labels, ``"micro"`` over all entries together, or ``"none"``.
        absent: labels without a positive in the macro average: ``"zero"`` counts them as 0, ``"skip"`` leaves them out.
        bins: round probabilities to this many equally wide bins first; None is exact.
        where: bool, broadcastable to ``scores``; False excludes an entry.

    Returns:
        A float64 scalar, or ``[L]`` with ``average="none"``.

    Example:
        >>> scores, labels = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.2, 0.2]]), torch.tensor([[1, 0], [0, 1], [1, 0]])
        >>> mean_average_precision_score(scores, labels, average="none")
        tensor([0.8333, 1.0000], dtype=torch.float64)
    """
    who = "mean_average_precision_score"
    check_choice(who, "average", average, AVERAGES)
    check_choice(who, "absent", absent, ABSENT)
    areas = _all_areas(who, scores, labels, where, average == "micro", bins)
    if average == "macro":
        return average_labels(areas.average_precision, areas.positive, absent)
    return areas.average_precision if average == "none" else areas.average_precision[0]


def auroc_score(
    scores: Scores,
    labels: Labels,
    *,
    average: str = "macro",
    bins: int | None = None,
    where: Tensor | None = None,
) -> Tensor:
    """AUROC: the share of pairs of a positive and a negative that are in the right order; a tie counts half.

    Pairs are rows of one label; with ``average="micro"`` all pairs of entries. A label without positives or without
    negatives has no pairs: it is NaN, and skipped in the macro average. Arguments as in ``mean_average_precision_score``.

    Example:
        >>> scores, labels = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.2, 0.2]]), torch.tensor([[1, 0], [0, 1], [1, 0]])
        >>> auroc_score(scores, labels, average="none")
        tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    check_choice("auroc_score", "average", average, AVERAGES)
    areas = _all_areas("auroc_score", scores, labels, where, average == "micro", bins)
    if average == "macro":
        return average_auroc(areas)
    return areas.auroc if average == "none" else areas.auroc[0]
