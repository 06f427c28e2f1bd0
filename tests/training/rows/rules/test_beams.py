"""The rule of label trees: thresholds per label stay near the common one, and one threshold is used if they are not better."""

import pytest
import torch

from manyhot import SparseLabels
from manyhot.training.rows.rules import beams
from manyhot.training.rows.rules.beams import LARGEST_DROP, beam_rule


def problem(rows, scales, seed=0):
    """Scores of labels with a shift each, low where a label was not reached, and labels that follow the scores."""
    source = torch.Generator().manual_seed(seed)
    raw = torch.randn(rows, len(scales), generator=source)
    labels = (raw + 0.3 * torch.randn(rows, len(scales), generator=source)) > 0.8
    return raw + torch.tensor(scales), SparseLabels.from_dense(labels)


def test_a_label_that_no_row_reached_is_not_predicted_by_lower_scores_than_others():
    scores, labels = problem(400, [0.0, 0.3, -0.3, 0.0])
    dense = labels.dense(torch.bool)
    scores[:, 3], dense[:, 3] = -40.0, False
    _, separate = beams._both(scores, SparseLabels.from_dense(dense), 0.0)
    common, _ = beams._both(scores, SparseLabels.from_dense(dense), 0.0)
    assert min(separate.threshold) >= common.threshold - LARGEST_DROP - 1e-3
    assert separate.threshold[3] > -2


@pytest.mark.parametrize(("rows", "scales", "separate"), [(600, [-0.45, 0.45, 0.0, 0.2], True), (60, [0.0] * 40, False)])
def test_thresholds_per_label_are_used_where_they_win_in_cross_validation(rows, scales, separate):
    rule, found = beam_rule(*problem(rows, scales), shrink=1.0, seed=0)
    assert isinstance(rule.threshold, tuple) == separate
    assert ("per label," in found) == separate


def test_few_rows_get_one_threshold():
    rule, found = beam_rule(*problem(20, [-0.45, 0.45, 0.0, 0.2]), shrink=1.0, seed=0)
    assert isinstance(rule.threshold, float)
    assert "need 40 held-out rows" in found


def test_the_metric_that_is_asked_for_decides_between_the_two(monkeypatch):
    given = problem(600, [-0.45, 0.45, 0.0, 0.2])
    assert "better in micro-F1 than one threshold" in beam_rule(*given, shrink=1.0, seed=0, names=("micro-F1",))[1]
    # By one metric thresholds per label win, by the other one threshold does.
    won = {("micro-F1", float): 1.0, ("micro-F1", tuple): 0.0, ("macro-F1", float): 0.0, ("macro-F1", tuple): 1.0}
    monkeypatch.setattr(beams, "rule_value", lambda _scores, _labels, name, rule: won[name, type(rule.threshold)])
    kinds = [type(beam_rule(*given, shrink=1.0, seed=0, names=(name,))[0].threshold) for name in ("micro-F1", "macro-F1")]
    assert kinds == [float, tuple]
