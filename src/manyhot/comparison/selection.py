"""The value of a member on validation rows, for early stopping and selection; computed for all trials of a seed together.

The value is the mean of the six metrics of the ZLPR paper, with 1 - RankLoss for RankLoss, under the rule that is evaluated.
It favours no loss by construction; micro-F1 would favour dice, and AvgPrec the ranking losses.
"""

from __future__ import annotations

import torch
from torch import Tensor


def natural_value(scores: Tensor, chosen: Tensor, truth: Tensor, ranking: Tensor | None = None) -> Tensor:
    """The mean of the six metrics, ``[T]``, of decisions ``chosen [T, V, L]`` and scores ``[T, V, L]``; ``truth [V, L]``.

    ``ranking`` is ``ranking_sum(scores, truth)``, if it is known.
    """
    return (decision_sum(chosen, truth) + (ranking_sum(scores, truth) if ranking is None else ranking)) / 6


def tuned_value(scores: Tensor, truth: Tensor, ranking: Tensor | None = None) -> Tensor:
    """``natural_value`` of the decisions at the best threshold for micro-F1."""
    return natural_value(scores, scores >= best_cuts(scores, truth)[:, None, None], truth, ranking)


def best_cuts(scores: Tensor, truth: Tensor) -> Tensor:
    """``[T]``: the best threshold for micro-F1."""
    ordered, place = scores.flatten(1).sort(dim=1, descending=True)
    right = truth.flatten().float()[place].cumsum(dim=1)
    taken = torch.arange(1, ordered.shape[1] + 1, device=scores.device)
    best = (2 * right / (taken + truth.sum())).argmax(dim=1, keepdim=True)
    return ordered.gather(1, best).squeeze(1)


def decision_sum(chosen: Tensor, truth: Tensor) -> Tensor:
    """SubACC + MLC-F1 + micro-F1 + macro-F1, ``[T]``."""
    both = (chosen & truth).float()
    predicted, true = chosen.float(), truth.float()
    of_rows = _f1(both.sum(2), predicted.sum(2), true.sum(1), empty=1.0).mean(1)
    of_labels = _f1(both.sum(1), predicted.sum(1), true.sum(0), empty=0.0).mean(1)
    of_all = _f1(both.sum((1, 2)), predicted.sum((1, 2)), true.sum(), empty=0.0)
    exact = (chosen == truth).all(dim=2).float().mean(1)
    return (exact + of_rows + of_all + of_labels).double()


def ranking_sum(scores: Tensor, truth: Tensor) -> Tensor:
    """AvgPrec + 1 - RankLoss, ``[T]``; for rows with no or all labels AvgPrec is 1 and RankLoss 0, as in the metrics."""
    order = scores.argsort(dim=2, descending=True)
    hit = truth.expand(scores.shape).gather(2, order).float()
    found = hit.cumsum(2)
    rank = torch.arange(1, scores.shape[2] + 1, device=scores.device)
    positives = truth.float().sum(1)
    negatives = scores.shape[2] - positives
    plain = (positives > 0) & (negatives > 0)
    precision = (hit * found / rank).sum(2) / positives.clamp(min=1)
    wrong = (hit * (rank - found)).sum(2) / (positives * negatives).clamp(min=1)
    values = torch.where(plain, precision, 1.0) + torch.where(plain, 1 - wrong, 1.0)
    return values.mean(1).double()


def _f1(both: Tensor, predicted: Tensor, true: Tensor, *, empty: float) -> Tensor:
    total = predicted + true
    return torch.where(total > 0, 2 * both / total.clamp(min=1), empty)
