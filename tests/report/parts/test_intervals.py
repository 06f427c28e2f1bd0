"""Intervals over rows agree with what resampling the rows gives."""

import pytest
import torch

from manyhot.metrics.running import Metrics
from manyhot.report.parts.intervals import NORMAL_95, half_width
from report.problems import judged


@pytest.mark.parametrize("name", ["micro-F1", "macro-F1", "SubACC", "MLC-F1", "AvgPrec", "RankLoss", "P@1", "PSP@3"])
def test_the_interval_is_as_wide_as_the_spread_over_resampled_rows(name):
    case = judged(rows=400)
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(150):
        part = case.rows(torch.randint(0, 400, (400,), generator=generator))
        metrics = Metrics([name], num_labels=5, rule=case.rule, propensities=case.propensities)
        metrics.update(part.logits, part.labels)
        found.append(metrics.compute()[name])
    spread = float(torch.tensor(found).std())
    assert half_width(name, case) == pytest.approx(NORMAL_95 * spread, rel=0.25)


def test_metrics_without_a_known_spread_have_no_interval():
    assert half_width("mAP", judged()) is None
    assert half_width("micro-F1", judged(rows=1)) is None
