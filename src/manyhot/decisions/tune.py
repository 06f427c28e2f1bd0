"""Tune a decision rule on held-out scores: the exact optimum without a grid search, and a cross-fitted estimate of the gain."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_choice
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.decisions.tuning.goals import OBJECTIVES, Goal
from manyhot.decisions.tuning.label_cuts import label_cuts
from manyhot.decisions.tuning.label_sets import set_values
from manyhot.decisions.tuning.one_cut import global_cut
from manyhot.decisions.tuning.rows import ScoredRows, scored_rows, sum_over
from manyhot.labels.sparse import SparseLabels
from manyhot.labels.split import stratified_folds
from manyhot.losses.core.logsumexp import Scores


@dataclass(frozen=True)
class TunedRule:
    """The result of ``tune_rule``.

    Args:
        rule: the best rule on the given data.
        objective: the metric that was tuned for.
        value: the objective of ``rule`` on the data it was tuned on; optimistic for new data.
        baseline_rule: the rule to compare with, ``s > 0`` unless another was given.
        baseline: the objective of ``baseline_rule``.
        cross_fitted: the objective with each row decided by a rule tuned on other folds; None without folds.
        gain: how much better ``cross_fitted`` is than ``baseline``; for an error, how much lower.
        gain_error: the standard error of the gain over the folds.
        helps: whether the gain is above its standard error; None without folds.
        message: the result in a sentence.

    Example:
        >>> tuned = tune_rule(torch.tensor([[0.5, -3.0], [-2.0, 1.0]]), torch.eye(2), objective="SubACC", folds=0)
        >>> tuned.rule.threshold, tuned.value, tuned.helps
        (-0.75, 1.0, None)
    """

    rule: DecisionRule
    objective: str
    value: float
    baseline_rule: DecisionRule
    baseline: float
    cross_fitted: float | None
    gain: float | None
    gain_error: float | None
    helps: bool | None
    message: str

    @property
    def recommended(self) -> DecisionRule:
        """The tuned rule, or the baseline if tuning does not help."""
        return self.baseline_rule if self.helps is False else self.rule


def tune_rule(
    logits: Scores,
    labels: Tensor | SparseLabels,
    *,
    objective: str = "micro-F1",
    per_label: bool = False,
    shrink: float = 5.0,
    flood: float = 5.0,
    where: Tensor | None = None,
    folds: int = 5,
    seed: int = 0,
    baseline: DecisionRule | None = None,
    sets: bool = False,
    other_rows: SparseLabels | None = None,
) -> TunedRule:
    """Find the best threshold for an objective on held-out data, one for all labels or one per label.

    All thresholds are compared, without a grid: they lie midway between neighbouring scores, equal scores are never split, and
    ties go to the highest threshold. One threshold for all labels is the exact optimum for every objective. Thresholds
    per label are the exact optimum with ``shrink=0, flood=inf`` (for micro-F1 by Dinkelbach's iteration). A gap
    between scores that is narrower than their rounding error is not used if a wider one costs at most 0.1 % of the objective:
    the score of a row differs a little in another batch, on another device and in exported form, and the decision must be
    the same.

    The threshold of a rare label depends on few positives. ``shrink`` adds that many pseudo-positives to each label, which
    behave like the positives of all labels together at the same threshold: for micro-F1 and hamming-error with the pooled
    recall and number of predictions, for macro-F1 with the mean of all labels' F1. A label without positives gets the common
    threshold, a frequent one its own. ``flood`` excludes thresholds that predict a label more than ``flood * (positives + 1)``
    times. The number of labels per row (``top_k``, ``min_labels``, ``max_labels``) is not tuned.

    With ``sets`` a rule for whole label sets is tuned (SubACC only): a set that occurs in n rows, including ``other_rows``, has
    the value ``w log n``, every other set the value ``-c``; see ``SetValues``. This is a prior over label sets. Each row is
    evaluated without counting its own set. ``w = c = 0`` is the threshold alone; a large ``c`` predicts only known sets. The
    threshold and ``w`` are tried on a grid; ``c`` is the exact optimum for each of them.

    Args:
        logits: ``[..., L]`` of held-out rows; lazy scores are made dense. NaN is never predicted.
        labels: hard, ``[..., L]`` or ``SparseLabels``.
        objective: ``"micro-F1"``, ``"macro-F1"`` (absent labels count as 0), ``"MLC-F1"`` (mean over rows, both empty is 1),
            ``"SubACC"``, ``"jaccard"`` (mean over rows) or ``"hamming-error"``.
        per_label: one threshold per label; for micro-F1, macro-F1 and hamming-error, which are sums over labels.
        shrink: pseudo-positives per label; 0 for none.
        flood: the largest number of predictions per positive of a label.
        where: bool, broadcastable to ``logits``; False excludes an entry.
        folds: number of folds to cross-fit over; 0 for none, which gives no estimate for new data.
        seed: the seed of the stratified folds.
        baseline: the rule to compare with; None is ``s > 0``.
        sets: tune a rule for whole label sets.
        other_rows: hard labels ``[N, L]`` of further rows, whose sets are counted too.

    Returns:
        A ``TunedRule``.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> labels = torch.rand(400, 5, generator=generator) < 0.2
        >>> logits = torch.randn(400, 5, generator=generator) + 2 * labels - 3
        >>> tuned = tune_rule(logits, labels)
        >>> print(tuned.message)
        micro-F1 0.278 by the baseline rule, 0.724 tuned; cross-fitted over 5 folds 0.715, a gain of 0.437 +- 0.017.
        >>> tuned.helps, round(tuned.rule.threshold, 2)
        (True, -1.57)
    """
    who = "tune_rule"
    check_choice(who, "objective", objective, tuple(OBJECTIVES))
    goal = OBJECTIVES[objective]
    _check_kind(who, objective, per_label=per_label, sets=sets)
    check_at_least(who, "shrink", shrink, 0)
    check_at_least(who, "flood", flood, 1)
    baseline = baseline or DecisionRule()
    with torch.no_grad():
        data = scored_rows(who, logits, labels, where)
        if folds != 0 and not 2 <= folds <= len(data.labels):
            raise ValueError(f"{who}: `folds` must be 0 or from 2 to the number of rows, {len(data.labels)}; got {folds!r}.")

        def fit(part: ScoredRows) -> DecisionRule:
            if sets:
                found = set_values(part, other_rows)
                return DecisionRule(threshold=found.threshold, sets=found.sets)
            if not per_label:
                return DecisionRule(threshold=global_cut(part, goal))
            cuts: Any = label_cuts(part, objective, shrink=shrink, flood=flood)
            return DecisionRule(threshold=cuts)

        rule = fit(data)
        sign = -1.0 if goal.error else 1.0
        values = [_score(goal, data, *_counts(goal, data, each)) for each in (rule, baseline)]
        fitted = gain = gain_error = helps = None
        if folds:
            fitted, gains = _cross_fit(goal, data, fit, baseline, folds, seed)
            gain = fitted - values[1]
            gain_error = float(np.std(gains, ddof=1) / math.sqrt(folds))
            helps = gain > gain_error
    value, before = (sign * x for x in values)
    message = f"{objective} {before:.3f} by the baseline rule, {value:.3f} tuned"
    if fitted is not None:
        message += f"; cross-fitted over {folds} folds {sign * fitted:.3f}, a gain of {gain:.3f} +- {gain_error:.3f}."
        message += "" if helps else " Tuning would not help: keep the baseline rule."
        fitted *= sign
    else:
        message += "; not cross-fitted, so the gain on new data is not known."
    return TunedRule(rule, objective, value, baseline, before, fitted, gain, gain_error, helps, message)


def retune_rule(logits: Tensor, labels: Tensor | SparseLabels, rule: DecisionRule, **how: Any) -> TunedRule:
    """``tune_rule`` with ``rule`` as the baseline. If rows have thresholds of their own by ``rule``, one that is added to them
    is tuned, too, and the better one is taken."""
    plain = tune_rule(logits, labels, baseline=rule, **how)
    if rule.row_f1 is None or how.get("sets") or how.get("per_label"):
        return plain
    relative = rule.row_f1.relative(logits, how.get("where"))
    own = tune_rule(relative, labels, baseline=replace(rule, row_f1=None), **how)
    sign = -1.0 if OBJECTIVES[own.objective].error else 1.0
    values = [each.value if each.cross_fitted is None else each.cross_fitted for each in (own, plain)]
    if sign * values[0] < sign * values[1]:
        return plain
    return replace(own, rule=replace(own.rule, row_f1=rule.row_f1), baseline_rule=rule)


def rule_value(
    logits: Scores, labels: Tensor | SparseLabels, objective: str, rule: DecisionRule, *, where: Tensor | None = None
) -> float:
    """The objective of a rule on these scores; errors are negated, so that more is better. Arguments as in ``tune_rule``."""
    with torch.no_grad():
        data = scored_rows("rule_value", logits, labels, where)
        return _score(OBJECTIVES[objective], data, *_counts(OBJECTIVES[objective], data, rule))


def _check_kind(who: str, objective: str, *, per_label: bool, sets: bool) -> None:
    """Check that the objective allows thresholds per label, or rules for whole sets."""
    if per_label and not OBJECTIVES[objective].per_label:
        known = ", ".join(name for name, each in OBJECTIVES.items() if each.per_label)
        raise ValueError(
            f"{who}: `per_label` must be False for {objective}: its labels cannot be tuned separately. Use it with {known}."
        )
    if sets and objective != "SubACC":
        raise ValueError(f"{who}: `sets` needs the objective SubACC, the metric of whole sets; got {objective}.")


def _counts(goal: Goal, data: ScoredRows, rule: DecisionRule) -> tuple[Tensor, Tensor]:
    """``(tp, pp)`` of each group with a rule."""
    predicted, right = [], []
    for start, block in data.blocks():
        chosen = decide(block, rule)
        part = data.labels[start : start + len(block)]
        predicted.append(sum_over(goal.groups, chosen))
        right.append(chosen[part.rows, part.indices])
    pp = torch.cat(predicted) if goal.groups == "rows" else torch.stack(predicted).sum(dim=0)
    return data.per_group(goal.groups, torch.cat(right)), pp


def _score(goal: Goal, data: ScoredRows, tp: Tensor, pp: Tensor) -> float:
    """The objective; errors are negated, so that more is better."""
    value = goal.value(tp, pp, data.per_group(goal.groups)).mean()
    return float(value / data.entries.sum().clamp(min=1) if goal.error else value)


def _cross_fit(
    goal: Goal, data: ScoredRows, fit: Callable[[ScoredRows], DecisionRule], baseline: DecisionRule, folds: int, seed: int
) -> tuple[float, list[float]]:
    """``(the objective with each row decided by a rule tuned on other folds, the gain on each fold)``."""
    tp, pp = (torch.zeros(data.num_groups(goal.groups), dtype=torch.float64, device=data.scores.device) for _ in range(2))
    gains = []
    for held in stratified_folds(data.labels, num_folds=folds, seed=seed):
        kept = torch.ones(len(data.labels), dtype=torch.bool, device=data.scores.device)
        kept[held] = False
        rule, part = fit(data.rows(kept.nonzero().flatten())), data.rows(held)
        counts = _counts(goal, part, rule)
        gains.append(_score(goal, part, *counts) - _score(goal, part, *_counts(goal, part, baseline)))
        for total, count in zip((tp, pp), counts, strict=True):
            if goal.groups == "rows":
                total[held] = count
            else:
                total += count
    return _score(goal, data, tp, pp), gains
