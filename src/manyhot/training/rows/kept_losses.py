"""Which losses of a mean are kept: all, unless some of them alone are clearly better on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from manyhot.decisions.rule import DecisionRule
from manyhot.metrics.blocks import arrange, checked_blocks
from manyhot.metrics.measures import BlockWork, RowMeasure, ScoreReading
from manyhot.metrics.names import parse_metric
from manyhot.training.rows.rules.fitting import Tuning
from manyhot.training.rows.rules.moved import FEWEST_CROSSED

# Some of the losses must be better than all by this many standard errors of the mean difference over the rows. On splits of
# the training rows of emotions, birds and medical, with 250 to 320 rows, all losses are then kept. With 0 the RankLoss of
# emotions falls by 0.1 and that of birds rises by 0.1 (linear, eight splits): so few rows cannot tell.
ERRORS = 2.0


def kept_losses(metric: str, tunings: Sequence[Tuning]) -> tuple[int, ...]:
    """The places of the losses whose mean is used, given the held-out scores of each, as log odds of the same rows.

    Args:
        metric: a mean over rows that looks at scores alone.
        tunings: one for each loss.
    """
    scores, first = [each.all_scores for each in tunings], tunings[0]
    every = tuple(range(len(scores)))
    if len(first.labels) < FEWEST_CROSSED:
        return every

    def values(places: Sequence[int]) -> Tensor:
        mean = torch.stack([scores[place] for place in places]).mean(dim=0)
        return row_values(metric, first._replace(logits=mean))

    whole, best, gain = values(every), every, 0.0
    for count in range(1, len(every)):
        for places in combinations(every, count):
            better = values(places) - whole
            error = float(better.std()) / math.sqrt(len(better))
            if float(better.mean()) > max(gain, ERRORS * error):
                best, gain = places, float(better.mean())
    return best


def row_values(metric: str, tuning: Tuning) -> Tensor:
    """float64 ``[R]``: the metric of each row, larger is better."""
    asked = parse_metric(metric)
    measure = asked.info.measure
    assert isinstance(measure, RowMeasure)
    reading = ScoreReading(DecisionRule(), None, 1.0, True)
    table = arrange("train", tuning.all_scores, tuning.labels, where=tuning.where)
    parts = [measure.value(BlockWork(block, reading, None), asked.k) for block in checked_blocks("train", table)]
    return torch.cat(parts).double() * asked.info.sign
