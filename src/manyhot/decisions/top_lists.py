"""Decisions from the best labels of each row only, without the scores of the others."""

from __future__ import annotations

import torch

from manyhot.decisions.rule import DecisionRule
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
    if rule.row_f1 is not None:
        raise ValueError("decide_top: `rule` must not have `row_f1`, which needs the scores of all labels.")
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
