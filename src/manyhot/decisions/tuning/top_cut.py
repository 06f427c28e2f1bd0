"""The best common cut of top lists, without the scores of the other labels."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from manyhot._checks import check_choice
from manyhot.decisions.cuts import best_gap, clearance, just_above, midway
from manyhot.decisions.rule import DecisionRule
from manyhot.decisions.tuning.goals import OBJECTIVES, Goal
from manyhot.decisions.tuning.one_cut import prefix_sums, value_changes, value_of_nothing
from manyhot.decisions.tuning.rows import group_of, tally
from manyhot.engines.terms import accumulation_dtype
from manyhot.labels.sparse import SparseLabels
from manyhot.scores.top import TopScores


def tune_top(
    scores: TopScores, labels: SparseLabels, *, objective: str = "micro-F1", rule: DecisionRule | None = None
) -> tuple[DecisionRule, float]:
    """Find the best threshold for all labels; a row gets at most as many labels as its list has.

    All thresholds between two scores are compared; ``tune_rule`` explains scores that are equal up to rounding. ``max_labels``
    of the rule is the length of the lists, so that the objective on all scores is the same as on the lists.

    Args:
        scores: the best labels of each held-out row.
        labels: hard labels ``[R, L]``.
        objective: what is tuned for, an entry of ``OBJECTIVES``.
        rule: its ``min_labels`` and ``softmax`` are kept.

    Returns:
        ``(rule, value)``; errors are negated, so that more is better. Among equally good thresholds the highest.

    Example:
        >>> top = TopScores.from_dense(torch.tensor([[0.1, 2.0, -1.0, 0.5], [0.4, -2.0, 0.2, -3.0]]), k=2)
        >>> rule, f1 = tune_top(top, SparseLabels.from_lists([[1, 3], [2]], num_labels=4))
        >>> round(rule.threshold, 3), rule.max_labels, round(f1, 3)
        (-0.3, 2, 0.857)
    """
    check_choice("tune_top", "objective", objective, tuple(OBJECTIVES))
    kept, goal = rule or DecisionRule(), OBJECTIVES[objective]
    scores = scores.log_softmax() if kept.softmax else scores
    there = scores.indices >= 0
    rows = torch.arange(len(scores), device=scores.device).unsqueeze(1).expand_as(there)[there]
    values = scores.values.to(accumulation_dtype(scores.values.dtype), copy=True)
    # The labels that `min_labels` adds are predicted at every cut.
    values[:, : kept.min_labels] = torch.inf
    values, order = values[there].sort(descending=True, stable=True)
    tuned = replace(kept, threshold=0.0, top_k=None, max_labels=max(scores.k, kept.min_labels, 1))
    if not len(values):
        return tuned, 0.0
    value = _values(goal, rows[order], scores.indices[there][order], labels)
    # Equal scores are never split, and the lowest cut lies below all listed scores.
    below = torch.cat([values[1:], values[-1:].nan_to_num(posinf=1.0) - 1.0])
    value = torch.where(below < values, value, -torch.inf)
    nothing = value_of_nothing(goal, _positives(goal, labels))
    if not kept.min_labels and float(value.max()) <= nothing:
        # No label at all is best.
        return replace(tuned, threshold=float(just_above(values[0]))), _reported(goal, nothing, labels)
    best = best_gap(value, clearance(values, below))
    return replace(tuned, threshold=float(midway(values[best], below[best]))), _reported(goal, float(value[best]), labels)


def _values(goal: Goal, rows: Tensor, columns: Tensor, labels: SparseLabels) -> Tensor:
    """float64 ``[N]``: the objective after each of the entries is predicted."""
    hits, p = labels.contains(rows, columns), _positives(goal, labels)
    if goal.groups == "all":
        predicted = torch.arange(1, len(hits) + 1, device=hits.device).double()
        return goal.value(hits.cumsum(0).double(), predicted, p)
    changes = value_changes(goal, group_of(goal.groups, rows, columns), hits, p)
    return value_of_nothing(goal, p) + prefix_sums(changes) / len(p)


def _positives(goal: Goal, labels: SparseLabels) -> Tensor:
    """float64 ``[G]``: the positives of each group."""
    if goal.groups == "all":
        return torch.full((1,), len(labels.indices), dtype=torch.float64, device=labels.indices.device)
    sizes = {"rows": len(labels), "labels": labels.num_labels}
    return tally(group_of(goal.groups, labels.rows, labels.indices), sizes[goal.groups])


def _reported(goal: Goal, value: float, labels: SparseLabels) -> float:
    return value / max(len(labels) * labels.num_labels, 1) if goal.error else value
