"""Thresholds for a metric of rows or of all entries: offsets per label that are moved together.

Thresholds per label that are tuned one by one ignore that a row gets at least its best label, and one threshold for all labels
ignores that rare labels score lower. Here labels have offsets, half of the balanced thresholds, and one threshold is tuned
for the scores minus the offsets, where the best label of each row is predicted at any threshold.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.decisions.rule import DecisionRule
from manyhot.decisions.tune import TunedRule, tune_rule
from manyhot.decisions.tuning.balanced import balanced_thresholds
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.labels.sparse import SparseLabels

# The share of the balanced thresholds that is an offset. On training rows of two text sets, 1/2 and 3/4 are better than 0 and 1
# for micro-F1, MLC-F1, the Jaccard index and SubACC.
SHARE = 0.5
# Folds of cross-validation, with this many rows or more.
FOLDS, FEWEST_CROSSED = 5, 20


class HeldRows(NamedTuple):
    """Scores ``[R, L]`` of held-out rows, their labels, and which entries are known."""

    scores: Tensor
    labels: SparseLabels
    where: Tensor | None


class Moved(NamedTuple):
    """A rule, and its objective in cross-validation over the held-out rows; more is better, ``-inf`` if there is none."""

    rule: DecisionRule
    value: float


def offsets_of(rows: HeldRows, *, shrink: float, seed: int) -> Tensor:
    """``[L]``: the offset of each label."""
    cuts = balanced_thresholds(rows.scores, rows.labels, shrink=shrink, where=rows.where, averaged=True, seed=seed)
    return SHARE * torch.tensor(cuts, dtype=rows.scores.dtype)


def moved_rule(objective: str, rows: HeldRows, offsets: Tensor | None, *, least: bool, seed: int) -> Moved:
    """Offsets plus the best common threshold; ``least``: each row gets at least its best label."""
    scores = rows.scores if offsets is None else rows.scores - offsets
    if least:
        scores = lifted(scores, rows.where)
    tuned = tune_rule(scores, rows.labels, objective=objective, where=rows.where, folds=FOLDS, seed=seed)
    cut = tuned.rule.threshold
    assert isinstance(cut, float)
    if least and cut >= float(scores.max()):
        # Nothing at all would be better than the best label of each row.
        return Moved(DecisionRule(), -math.inf)
    return Moved(with_offsets(DecisionRule(threshold=cut, min_labels=int(least)), offsets), cross_fitted(tuned))


def moved_sets(rows: HeldRows, offsets: Tensor | None, others: SparseLabels, *, seed: int) -> tuple[Moved, TunedRule]:
    """Offsets plus the best rule for whole label sets."""
    scores = rows.scores if offsets is None else rows.scores - offsets
    plain = tune_rule(scores, rows.labels, objective="SubACC", where=rows.where, folds=0).rule
    folds = FOLDS if len(rows.labels) >= FEWEST_CROSSED else 0
    tuned = tune_rule(
        scores, rows.labels, objective="SubACC", where=rows.where, folds=folds, seed=seed, baseline=plain, sets=True,
        other_rows=others,
    )  # fmt: skip
    return Moved(with_offsets(tuned.recommended, offsets), cross_fitted(tuned)), tuned


def lifted(scores: Tensor, where: Tensor | None) -> Tensor:
    """The scores with the best one of each row above all others, so that every threshold below it predicts it."""
    known = scores if where is None else scores.masked_fill(~where, -math.inf)
    finite = known[known.isfinite()]
    above = float(finite.max()) + 1 if len(finite) else 0.0
    best = known.nan_to_num(nan=-math.inf, neginf=-math.inf, posinf=math.inf).argmax(dim=1, keepdim=True)
    return scores.scatter(1, best, scores.gather(1, best).clamp(min=above))


def cross_fitted(tuned: TunedRule) -> float:
    """The objective of the recommended rule on rows that it was not tuned on; more is better."""
    value = tuned.baseline if tuned.helps is False or tuned.cross_fitted is None else tuned.cross_fitted
    return -value if OBJECTIVES[tuned.objective].error else value


def with_offsets(rule: DecisionRule, offsets: Tensor | None) -> DecisionRule:
    """The rule for scores, from one with one threshold for scores minus offsets."""
    if offsets is None:
        return rule
    assert isinstance(rule.threshold, float)
    return replace(rule, threshold=tuple((offsets.double() + rule.threshold).tolist()))
