"""Thresholds that each row gets from its own probabilities: the set with the best expected F1 score."""

import itertools
import json
from dataclasses import replace

import pytest
import torch

from manyhot.decisions.row_f1 import RowF1
from manyhot.decisions.rule import DecisionRule, decide, decide_sparse
from manyhot.decisions.top_lists import decide_top
from manyhot.decisions.tune import retune_rule, rule_value, tune_rule
from manyhot.export.decision_graph import RuleGraph
from manyhot.export.folding import check_foldable
from manyhot.scores.linear import LinearScores
from manyhot.scores.top import TopScores

BY_ROW = RowF1(1.5, -0.25)
RULE = DecisionRule(row_f1=BY_ROW)


def scores(rows=40, labels=7, *, seed=0):
    return torch.randn(rows, labels, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_no_set_of_labels_has_a_higher_expected_f1():
    logits = scores()
    probs = (1.5 * logits.double() - 0.25).sigmoid()
    for own, chosen in zip(probs, decide(logits, RULE), strict=True):
        sets = (torch.tensor(each, dtype=torch.bool) for each in itertools.product([False, True], repeat=7))
        best = max(sets, key=lambda each: float(2 * own[each].sum() / (each.sum() + own.sum())))
        assert torch.equal(chosen, best)


def test_a_rule_with_thresholds_of_rows_keeps_them_when_it_is_tuned_again_if_they_are_better():
    generator = torch.Generator().manual_seed(0)
    # Sure rows of one label beside unsure ones of several, so that no single threshold is good for both.
    sure = torch.arange(600)[:, None] % 2 == 0
    probs = torch.where(sure, torch.eye(9)[torch.arange(600) % 9] * 0.5 + 0.45, 0.4)
    labels, logits = torch.rand(600, 9, generator=generator) < torch.where(sure, probs.round(), probs), probs.logit()
    rule = DecisionRule(threshold=0.4, row_f1=RowF1(1.0, 0.0))
    tuned = retune_rule(logits, labels, rule, objective="MLC-F1")
    assert tuned.rule.row_f1 == rule.row_f1
    assert tuned.baseline_rule == rule
    assert tuned.value == pytest.approx(rule_value(logits, labels, "MLC-F1", tuned.rule))
    assert tuned.baseline == pytest.approx(rule_value(logits, labels, "MLC-F1", rule))
    plain = tune_rule(logits, labels, objective="MLC-F1")
    assert tuned.cross_fitted > plain.cross_fitted
    misled = retune_rule(logits, labels, replace(rule, row_f1=RowF1(0.01, 5.0)), objective="MLC-F1")
    assert misled.cross_fitted >= plain.cross_fitted
    per_label = retune_rule(logits, labels, rule, objective="micro-F1", per_label=True)
    assert per_label.rule.row_f1 is None


def test_rows_of_thousands_of_labels_converge():
    logits = scores(20, 5000) - 4
    probs = (1.5 * logits.double() - 0.25).sigmoid()
    cut = (1.5 * BY_ROW.thresholds(logits.double()) - 0.25).sigmoid()
    above = probs > cut
    again = (probs * above).sum(1) / (above.sum(1) + probs.sum(1))
    torch.testing.assert_close(cut[:, 0], again, rtol=1e-9, atol=0)


def test_excluded_labels_and_nan_do_not_count_and_are_not_predicted():
    logits, where = scores(), torch.ones(40, 7, dtype=torch.bool)
    where[:, 2] = False
    kept = decide(torch.cat([logits[:, :2], logits[:, 3:]], dim=1), RULE)
    found = decide(logits, RULE, where=where)
    assert not found[:, 2].any()
    assert torch.equal(torch.cat([found[:, :2], found[:, 3:]], dim=1), kept)
    logits[:, 2] = float("nan")
    assert torch.equal(decide(logits, RULE), found)
    assert not decide(torch.full((2, 3), float("-inf")), RULE).any()


def test_threshold_and_limits_apply_to_the_scores_minus_the_threshold_of_the_row():
    logits = scores()
    relative = logits - BY_ROW.thresholds(logits)
    for plain in (
        DecisionRule(threshold=0.5),
        DecisionRule(threshold=tuple(float(x) / 10 for x in range(7)), min_labels=1),
        DecisionRule(threshold=-1.0, max_labels=2),
    ):
        rule = replace(plain, row_f1=BY_ROW)
        assert torch.equal(decide(logits, rule), decide(relative, plain))
        assert decide_sparse(logits, rule).lists() == decide_sparse(relative, plain).lists()
        assert torch.equal(RuleGraph(rule, 7)(logits), decide(logits, rule))
    assert not RULE.by_threshold


def test_lazy_scores_are_decided_as_dense_ones():
    hidden, weight = torch.randn(9, 4), torch.randn(6, 4)
    assert torch.equal(decide(LinearScores(hidden, weight), RULE), decide(hidden @ weight.T, RULE))


def test_it_is_saved_with_the_rule():
    rule = DecisionRule(threshold=0.1, min_labels=1, row_f1=BY_ROW)
    assert DecisionRule.from_json(json.dumps(rule.to_json())) == rule
    assert "row_f1" not in DecisionRule().to_json()


@pytest.mark.parametrize("given", [(0.0, 1.0), (-1.0, 1.0), (float("nan"), 0.0), (1.0, float("inf")), ("1", 0.0)])
def test_wrong_numbers_are_named(given):
    with pytest.raises(ValueError, match=r"RowF1: `(slope|intercept)` must be"):
        RowF1(*given)


def test_uses_that_it_does_not_have_are_refused():
    with pytest.raises(TypeError, match="`row_f1` must be RowF1 or None"):
        DecisionRule(row_f1=(1.0, 0.0))
    with pytest.raises(ValueError, match="`softmax` needs one threshold"):
        DecisionRule(row_f1=BY_ROW, softmax=True)
    with pytest.raises(ValueError, match="`top_k` must be the only setting"):
        DecisionRule(row_f1=BY_ROW, top_k=2)
    with pytest.raises(ValueError, match="must not have `row_f1`"):
        decide_top(TopScores.from_dense(scores(), k=3), RULE)
    with pytest.raises(ValueError, match=r"looks at the whole row \(row_f1\)"):
        check_foldable("export", RULE, 7)
    with pytest.raises(ValueError, match="a slope and an intercept"):
        DecisionRule.from_json({"row_f1": [1.0]})
