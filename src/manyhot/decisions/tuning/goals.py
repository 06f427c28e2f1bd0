"""The objectives of tuning."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Value = Callable[[Tensor, Tensor, Tensor], Tensor]


class Goal(NamedTuple):
    """The mean over groups of ``value(tp, pp, p)``: true positives, predictions and positives of a group.

    ``value`` does not decrease with ``tp`` and does not increase with ``pp``, so a best cut lies just below the score of a
    positive, or above all scores.
    """

    groups: str
    value: Value
    per_label: bool = False
    error: bool = False


def _f1(empty: float) -> Value:
    def value(tp: Tensor, pp: Tensor, p: Tensor) -> Tensor:
        total = pp + p
        found = 2 * tp / total.clamp(min=1)
        return torch.where(total > 0, found, empty) if empty else found

    return value


def _jaccard(tp: Tensor, pp: Tensor, p: Tensor) -> Tensor:
    return torch.where(pp + p > 0, tp / (pp + p - tp).clamp(min=1), 1.0)


def _subset(tp: Tensor, pp: Tensor, p: Tensor) -> Tensor:
    return ((tp == p) & (pp == p)).double()


def _agreement(tp: Tensor, pp: Tensor, p: Tensor) -> Tensor:
    return 2 * tp - pp - p


OBJECTIVES = {
    "micro-F1": Goal("all", _f1(0.0), per_label=True),
    "macro-F1": Goal("labels", _f1(0.0), per_label=True),
    "MLC-F1": Goal("rows", _f1(1.0)),
    "SubACC": Goal("rows", _subset),
    "jaccard": Goal("rows", _jaccard),
    "hamming-error": Goal("all", _agreement, per_label=True, error=True),
}
