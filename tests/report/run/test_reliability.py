"""Reliability is judged by rows that the calibration did not see."""

import pytest
import torch

from manyhot.decisions.calibrate import fit_calibration
from manyhot.decisions.rule import DecisionRule
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.calibration import calibration_error
from manyhot.report.run.judged import Judged
from manyhot.report.run.reliability import measure_reliability


def overconfident(rows=2000, *, calibration=None):
    generator = torch.Generator().manual_seed(1)
    true_logit = torch.randn(rows, 3, generator=generator)
    labels = SparseLabels.from_dense(torch.rand(rows, 3, generator=generator) < true_logit.sigmoid())
    return Judged(3 * true_logit, labels, None, DecisionRule(), "hard", calibration, ("a", "b", "c"))


def test_before_is_the_link_and_after_is_better_where_scores_are_too_sure():
    case = overconfident()
    found = measure_reliability(case, unseen=False)
    assert found["before"]["ECE"] == pytest.approx(float(calibration_error(case.logits.sigmoid(), case.labels)))
    assert found["after"]["ECE"] < found["before"]["ECE"] / 3
    assert found["calibration"] == "platt, cross-fitted on two halves of the rows"
    assert sum(found["before"]["count"]) == sum(found["after"]["count"]) == 6000


def test_the_saved_calibration_is_judged_itself_on_test_rows_and_fitted_anew_on_its_own():
    fitted = fit_calibration(overconfident().logits, overconfident().labels, kind="temperature")
    case = overconfident(calibration=fitted)
    on_test = measure_reliability(case, unseen=True)
    assert on_test["calibration"] == "temperature, saved with the model"
    assert on_test["after"]["ECE"] == pytest.approx(float(calibration_error(fitted(case.logits), case.labels)))
    assert "two halves" in measure_reliability(case, unseen=False)["calibration"]


def test_scores_that_only_rank_have_no_before():
    case = overconfident(rows=100)
    found = measure_reliability(Judged(case.logits, case.labels, None, case.rule, None, None, case.label_names), unseen=False)
    assert found["before"] is None
    assert found["after"] is not None
