"""The biases of a linear body, moved so that labels are ranked better.

Each label is solved by itself, and nothing makes their scores comparable: those of rare labels are too low. So an offset per
label is subtracted from scores and thresholds alike. Predictions stay, the order of labels changes. Two kinds of offsets are
tried: shares of the balanced thresholds, which are low for the same reason, and shares of offsets that are fitted to rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.rule import DecisionRule
from manyhot.metrics.at_k import precision_of
from manyhot.metrics.blocks import arrange, checked_blocks
from manyhot.metrics.info import ROW_ORDER
from manyhot.metrics.ranking import rank_positives
from manyhot.scores.top import TopScores
from manyhot.training.rows.linear.offsets import ranking_offsets
from manyhot.training.rows.rules.fitting import Tuning, best_value, calibrated, many_crossed
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO, BALANCED, NONE, steering_of

# With larger shares of the thresholds, P@5 falls on training rows of two text sets.
THRESHOLD_SHARES, FITTED_SHARES = (0.1, 0.2, 0.3, 0.5), (0.5, 1.0)
USUAL_K = (1, 3, 5)


class Move(NamedTuple):
    """What is subtracted from the scores of the labels, float64 ``[L]``, and a word for it."""

    by: Tensor
    what: str = ""


class Ranked(NamedTuple):
    """The rule, the calibration and the held-out scores that belong to the moved biases, and the words for the move."""

    rule: DecisionRule
    calibration: Calibration | None
    tuning: Tuning | None
    moved: str = ""


def rank_better(settings: TrainSettings, body: nn.Module, rule: DecisionRule, tuning: Tuning | None) -> Ranked:
    """Move the biases of ``body``, if ``rule`` has balanced thresholds, by the best move on cross-fitted scores."""
    if tuning is None or not len(tuning.labels.indices):
        return Ranked(rule, None, tuning)
    what = ""
    if settings.tune == BALANCED and isinstance(rule.threshold, tuple) and many_crossed(tuning):
        thresholds = torch.tensor(rule.threshold, dtype=torch.float64)
        by, what = best_move(settings, tuning, moves(tuning, thresholds))
        if what:
            with torch.no_grad():
                bias = body.get_parameter("head.bias")
                bias.sub_(by.to(bias))
            tuning, rule = _moved(tuning, by), replace(rule, threshold=tuple((thresholds - by).tolist()))
    calibration = None if settings.calibrate == NONE else calibrated(settings.calibrate, tuning)
    return Ranked(rule, calibration, tuning, what)


def moves(tuning: Tuning, thresholds: Tensor) -> list[Move]:
    """The moves that are tried; the first leaves everything as it is."""
    fitted = ranking_offsets(tuning.all_scores, tuning.labels)
    return [
        Move(torch.zeros_like(thresholds)),
        *(Move(share * thresholds, f"{share:g} of the thresholds") for share in THRESHOLD_SHARES),
        *(Move(share * fitted, f"{share:g} of the offsets that are fitted to rank") for share in FITTED_SHARES),
    ]


def best_move(settings: TrainSettings, tuning: Tuning, tried: Sequence[Move]) -> Move:
    """The move with the best metric, if the metric looks at the order of labels; the first stays if none is better.

    Otherwise the one with the best mean of P@1, P@3 and P@5, of those that lower none of them.
    """
    asked = settings.metric != AUTO and steering_of(settings.metric).aim == ROW_ORDER
    values: list[tuple[float, ...]] = []
    for move in tried:
        own = _moved(tuning, move.by)
        values.append((best_value(settings, own),) if asked else _precisions(own))
    allowed = [place for place, own in enumerate(values) if all(new >= old for new, old in zip(own, values[0], strict=True))]
    return tried[max(allowed, key=lambda place: sum(values[place]))]


def _precisions(tuning: Tuning) -> tuple[float, ...]:
    top = TopScores.from_dense(tuning.all_scores, k=min(max(USUAL_K), tuning.labels.num_labels))
    ks = [k for k in USUAL_K if k <= top.k]
    parts = []
    for block in checked_blocks("train", arrange("train", top, tuning.labels, where=None)):
        ranks = rank_positives(block)
        parts.append(torch.stack([precision_of(ranks, k) for k in ks]))
    return tuple(torch.cat(parts, dim=1).mean(dim=1).tolist())


def _moved(tuning: Tuning, by: Tensor) -> Tuning:
    return tuning._replace(logits=tuning.all_scores - by.to(tuning.all_scores))
