"""The biases of a linear body, moved by a share of the thresholds, so that labels are ranked better.

Each label is solved by itself, and nothing makes their scores comparable: those of rare labels are too low. Their balanced
thresholds are low for the same reason, so a share of each is subtracted from scores and thresholds alike. Predictions stay, the
order of labels changes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.rule import DecisionRule
from manyhot.metrics.at_k import precision_at_k
from manyhot.metrics.info import ROW_ORDER
from manyhot.scores.top import TopScores
from manyhot.training.rows.rules.fitting import Tuning, best_value, calibrated, many_crossed
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO, BALANCED, NONE, steering_of

# With larger shares, P@5 falls on training rows of two text sets.
SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
USUAL_K = (1, 3, 5)


class Ranked(NamedTuple):
    """The rule, the calibration and the held-out scores that belong to the moved biases, and the share."""

    rule: DecisionRule
    calibration: Calibration | None
    tuning: Tuning | None
    share: float = 0.0


def rank_better(
    settings: TrainSettings, body: nn.Module, rule: DecisionRule, calibration: Calibration | None, tuning: Tuning | None
) -> Ranked:
    """Move the biases of ``body`` by the best share of the balanced thresholds in ``rule``, judged on cross-fitted scores."""
    unchanged = Ranked(rule, calibration, tuning)
    if settings.tune != BALANCED or not isinstance(rule.threshold, tuple) or tuning is None or not many_crossed(tuning):
        return unchanged
    thresholds = torch.tensor(rule.threshold, dtype=torch.float64)
    share = best_share(settings, tuning, thresholds)
    if not share:
        return unchanged
    moved = share * thresholds
    with torch.no_grad():
        bias = body.get_parameter("head.bias")
        bias.sub_(moved.to(bias))
    tuning = _moved(tuning, moved)
    if settings.calibrate != NONE:
        calibration = calibrated(settings.calibrate, tuning)
    return Ranked(replace(rule, threshold=tuple((thresholds - moved).tolist())), calibration, tuning, share)


def best_share(settings: TrainSettings, tuning: Tuning, thresholds: Tensor) -> float:
    """The share with the best metric, if the metric looks at the order of labels.

    Otherwise the one with the best mean of P@1, P@3 and P@5, of those that lower none of them.
    """
    asked = settings.metric != AUTO and steering_of(settings.metric).aim == ROW_ORDER
    values: dict[float, tuple[float, ...]] = {}
    for share in SHARES:
        own = _moved(tuning, share * thresholds)
        values[share] = (best_value(settings, own),) if asked else _precisions(own)
    allowed = [share for share in SHARES if all(new >= old for new, old in zip(values[share], values[0.0], strict=True))]
    return max(allowed, key=lambda share: sum(values[share]))


def _precisions(tuning: Tuning) -> tuple[float, ...]:
    top = TopScores.from_dense(tuning.all_scores, k=min(max(USUAL_K), tuning.labels.num_labels))
    return tuple(float(precision_at_k(top, tuning.labels, k=k)) for k in USUAL_K if k <= top.k)


def _moved(tuning: Tuning, by: Tensor) -> Tuning:
    return tuning._replace(logits=tuning.all_scores - by.to(tuning.all_scores))
