"""The rule of label trees, whose scores are very low for labels that the beam search reached in few trees or in none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from manyhot.decisions.cuts import clear_cut
from manyhot.decisions.rule import DecisionRule
from manyhot.decisions.tune import rule_value
from manyhot.decisions.tuning.balanced import balanced_thresholds
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.one_cut import global_cut
from manyhot.decisions.tuning.rows import scored_rows
from manyhot.labels.sparse import SparseLabels

# A threshold per label is at most this much below the common one: half of the margin that trees are trained for.
LARGEST_DROP = 0.5
# With fewer held-out rows, one threshold is used without comparing.
FEWEST_COMPARED = 40


def beam_rule(
    scores: Tensor, labels: SparseLabels, *, shrink: float, seed: int, names: Sequence[str] = ("micro-F1", "macro-F1")
) -> tuple[DecisionRule, str]:
    """One threshold for all labels, or one per label: the better by the sum of the metrics ``names``, in cross-validation over
    two halves of the held-out rows; and a sentence about it.

    Without ``LARGEST_DROP``, a label that scores low on all held-out rows gets a very low threshold. Trees that are fitted
    again, to all rows, reach other labels, and would predict it on many rows.

    Args:
        scores: ``[R, L]`` of held-out rows.
        labels: their labels.
        shrink: pseudo-positives per label, see ``balanced_thresholds``.
        seed: random seed of the halves.
        names: metrics by which the two are compared.
    """
    order = torch.from_numpy(np.random.default_rng([seed, len(labels)]).permutation(len(labels)))
    totals = [0.0, 0.0]
    if len(labels) >= FEWEST_COMPARED:
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        for own, other in (halves, halves[::-1]):
            for place, rule in enumerate(_both(scores[own], labels[own], shrink)):
                totals[place] += sum(rule_value(scores[other], labels[other], name, rule) for name in names)
    common, separate = _both(scores, labels, shrink)
    if totals[1] > totals[0]:
        better = f"better in {' and '.join(names)} than one threshold in cross-validation"
        return separate, f"a threshold per label, best for the sum of micro-F1 and macro-F1 on held-out rows, {better}"
    few = len(labels) < FEWEST_COMPARED
    why = f"need {FEWEST_COMPARED} held-out rows" if few else "were not better in cross-validation"
    return common, f"one threshold, best for micro-F1: thresholds per label (shrink {shrink:g}) {why}"


def _both(scores: Tensor, labels: SparseLabels, shrink: float) -> tuple[DecisionRule, DecisionRule]:
    """One threshold for all labels, and one per label."""
    common = global_cut(scored_rows("train", scores, labels, None), OBJECTIVES["micro-F1"])
    lowest, cuts = common - LARGEST_DROP, balanced_thresholds(scores, labels, shrink=shrink, averaged=False)
    raised = (clear_cut(scores[:, label], lowest) if cut < lowest else cut for label, cut in enumerate(cuts))
    return DecisionRule(threshold=common), DecisionRule(threshold=tuple(raised))
