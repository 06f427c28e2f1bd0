"""Thresholds of an export, moved away from the scores of real rows, so that rounding changes no decision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from manyhot.decisions.cuts import rounding
from manyhot.decisions.rule import DecisionRule
from manyhot.decisions.threshold_values import round_down

INF = float("inf")
# A threshold keeps this share of the distance that tuning keeps: 16 of its 256 units of rounding. It does not move further,
# because rows that are not compared may lie in between.
SHARE = 1 / 16


def clear_rule(rule: DecisionRule, logits: Iterable[Tensor]) -> DecisionRule:
    """Move each threshold away from scores within rounding error, so that other software makes the same decisions.

    A threshold moves by no more than rounding error and past no score, so the decisions on these rows stay the same.

    Args:
        rule: the rule of a model.
        logits: ``[B, L]``, the scores of real rows, batch by batch.

    Returns:
        The rule to export. A rule for the k best labels, or for whole label sets, is returned unchanged.

    Example:
        >>> rule = clear_rule(DecisionRule(threshold=1.0), [torch.tensor([[1.0, 3.0]])])
        >>> 1.000001 < rule.threshold < 1.00001
        True
    """
    if rule.top_k is not None or rule.sets is not None:
        return rule
    given = torch.tensor(rule.threshold, dtype=torch.float64).reshape(-1)
    low, high = torch.full_like(given, -INF).float(), torch.full_like(given, INF).float()
    for part in logits:
        scores = part.float() - part.float().logsumexp(dim=-1, keepdim=True) if rule.softmax else part.float()
        scores = scores if rule.row_f1 is None else rule.row_f1.relative(scores)
        above = scores > round_down(given, scores.dtype)
        least, most = torch.where(above, scores, INF), torch.where(above | scores.isnan(), -INF, scores)
        if len(given) == 1:
            least, most = least.reshape(-1, 1), most.reshape(-1, 1)
        low, high = torch.maximum(low, most.amax(dim=0)), torch.minimum(high, least.amin(dim=0))
    half = (high.double() - low.double()) / 2
    above, below = (torch.minimum(SHARE * rounding(each), half) for each in (low, high))
    moved = given.clamp(low.double() + above, high.double() - below).tolist()
    return replace(rule, threshold=tuple(moved) if isinstance(rule.threshold, tuple) else moved[0])
