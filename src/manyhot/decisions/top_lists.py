"""Decisions from the best labels of each row only, without the scores of the others."""

from __future__ import annotations

from dataclasses import replace

import torch

from manyhot.decisions.cuts import best_gap, clearance, midway
from manyhot.decisions.rule import DecisionRule
from manyhot.engines.terms import accumulation_dtype
from manyhot.labels.sparse import SparseLabels
from manyhot.scores.top import TopScores


def decide_top(scores: TopScores, rule: DecisionRule | None = None) -> SparseLabels:
    """Predict labels by a rule, from the best labels of each row only.

    Args:
        scores: the best labels of each row.
        rule: one threshold for all labels; None is ``s > 0``.

    Returns:
        Hard labels ``[R, L]``, the same as ``decide_sparse`` on all scores.

    Raises:
        ValueError: if unlisted labels could be predicted, or thresholds differ by label.

    Example:
        >>> top = TopScores.from_dense(torch.tensor([[0.1, 2.0, -1.0, 0.5]]), k=3)
        >>> decide_top(top, DecisionRule(threshold=0.3)).lists()
        [[1, 3]]
    """
    rule = rule or DecisionRule()
    if rule.sets is not None:
        raise ValueError("decide_top: `rule` must decide label by label; one for whole sets needs the scores of all labels.")
    if isinstance(rule.threshold, tuple):
        raise ValueError("decide_top: `rule` must have one threshold for all labels; got one for each.")
    scores = scores.log_softmax() if rule.softmax else scores
    there = scores.indices >= 0
    place = torch.arange(scores.k, device=scores.device)
    if rule.top_k is not None:
        chosen, most = there & (place < rule.top_k), rule.top_k
    else:
        chosen = there & (scores.values > rule.threshold)
        most = scores.num_labels if rule.max_labels is None else rule.max_labels
        chosen = (chosen & (place < most)) | (there & (place < rule.min_labels))
        most = max(most, rule.min_labels)
    if scores.k < min(most, scores.num_labels) and bool(chosen[:, -1:].any()):
        raise ValueError(
            f"decide_top: `scores` must list every label that the rule predicts; a row has all its {scores.k} listed labels"
            " above the threshold. List more, or set `max_labels`."
        )
    rows, columns = chosen.nonzero(as_tuple=True)
    labels = scores.indices[rows, columns]
    order = (rows * scores.num_labels + labels).argsort()
    counts = chosen.sum(dim=1)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return SparseLabels(labels[order], offsets, scores.num_labels, validate=False)


def tune_top(scores: TopScores, labels: SparseLabels, *, rule: DecisionRule | None = None) -> tuple[DecisionRule, float]:
    """Find the threshold for all labels with the best micro-F1; a row gets at most as many labels as its list has.

    All thresholds between two scores are compared; ``tune_rule`` explains scores that are equal up to rounding. ``max_labels``
    of the rule is the length of the lists, so that its micro-F1 on all scores is the same as on the lists.

    Args:
        scores: the best labels of each held-out row.
        labels: hard labels ``[R, L]``.
        rule: its ``min_labels`` and ``softmax`` are kept.

    Returns:
        ``(rule, micro-F1)``; among equally good thresholds the highest.

    Example:
        >>> top = TopScores.from_dense(torch.tensor([[0.1, 2.0, -1.0, 0.5], [0.4, -2.0, 0.2, -3.0]]), k=2)
        >>> rule, f1 = tune_top(top, SparseLabels.from_lists([[1, 3], [2]], num_labels=4))
        >>> round(rule.threshold, 3), rule.max_labels, round(f1, 3)
        (-0.3, 2, 0.857)
    """
    kept = rule or DecisionRule()
    scores = scores.log_softmax() if kept.softmax else scores
    there = scores.indices >= 0
    rows = torch.arange(len(scores), device=scores.device).unsqueeze(1).expand_as(there)[there]
    values = scores.values.to(accumulation_dtype(scores.values.dtype), copy=True)
    hits = labels.contains(rows, scores.indices[there])
    # The labels that `min_labels` adds are predicted at every cut.
    values[:, : kept.min_labels] = torch.inf
    values, order = values[there].sort(descending=True, stable=True)
    found = hits[order].cumsum(0)
    predicted = torch.arange(1, len(values) + 1, device=values.device)
    f1 = 2 * found.double() / (predicted + len(labels.indices))
    # Equal scores are never split, and the lowest cut lies below all listed scores.
    below = torch.cat([values[1:], values[-1:].nan_to_num(posinf=1.0) - 1.0])
    f1 = torch.where(below < values, f1, -torch.inf)
    best = best_gap(f1, clearance(values, below)) if len(f1) else 0
    threshold = float(midway(values[best], below[best])) if len(f1) else 0.0
    tuned = replace(kept, threshold=threshold, top_k=None, max_labels=max(scores.k, kept.min_labels, 1))
    return tuned, float(f1[best]) if len(f1) else 0.0
