"""The two forms that every loss of the family has, given the sides of its rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from manyhot.engines.terms import INF
from manyhot.losses.core.reduction import softplus


def joined(pos: Tensor, neg: Tensor) -> Tensor:
    """``pos + neg``: the log-sum over all pairs, ``-inf`` where a side is empty even if the other is infinite."""
    return torch.where((pos == -INF) | (neg == -INF), -INF, pos + neg)


def split(pos: Tensor, neg: Tensor, threshold: Tensor | float) -> Tensor:
    """``log(1 + e^{pos + s0}) + log(1 + e^{neg - s0})``: each side against the threshold."""
    return softplus(pos + threshold) + softplus(neg - threshold)


def joint(pos: Tensor, neg: Tensor, margin: Tensor | float) -> Tensor:
    """``log(1 + e^{pos + neg + m})``: every pair against zero."""
    return softplus(joined(pos, neg) + margin)


FORMS: dict[str, Callable[[Tensor, Tensor, Tensor | float], Tensor]] = {"split": split, "joint": joint}
