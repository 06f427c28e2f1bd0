"""Thresholds of an export keep off the scores of real rows, and no decision changes."""

import math

import pytest
import torch

from manyhot import DecisionRule, decide
from manyhot.export.clear_rule import clear_rule


@pytest.mark.parametrize(("per_label", "softmax"), [(False, False), (True, False), (False, True)])
def test_a_threshold_on_a_score_moves_off_it_and_past_none(per_label, softmax):
    scores = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    seen = scores.log_softmax(dim=-1) if softmax else scores
    cuts = seen[7].double().tolist() if per_label else float(seen[7, 1])
    rule = DecisionRule(threshold=tuple(cuts) if per_label else cuts, softmax=softmax, max_labels=2)
    moved = clear_rule(rule, scores.split(64))
    assert torch.equal(
        decide(seen, DecisionRule(threshold=moved.threshold)), decide(seen, DecisionRule(threshold=rule.threshold))
    )
    apart = (seen.double() - torch.tensor(moved.threshold, dtype=torch.float64)).abs()
    assert bool((apart >= 4 * torch.finfo(torch.float32).eps).all())
    assert moved.max_labels == 2
    shift = torch.tensor(moved.threshold, dtype=torch.float64) - torch.tensor(rule.threshold, dtype=torch.float64)
    assert float(shift.abs().max()) < 1e-5


def test_rounding_of_the_rows_changes_no_decision_by_the_moved_rule():
    scores = torch.randn(2000, 4, generator=torch.Generator().manual_seed(1))
    rule = DecisionRule(threshold=tuple(scores[3].double().tolist()))
    other = scores + 5e-7 * torch.randn(2000, 4, generator=torch.Generator().manual_seed(2))
    assert not torch.equal(decide(other, rule), decide(scores, rule))
    assert torch.equal(decide(other, clear_rule(rule, [scores])), decide(scores, rule))


def test_thresholds_that_are_clear_infinite_or_without_rows_stay():
    scores = torch.tensor([[0.0, math.nan, -math.inf], [2.0, 1.0, math.inf]])
    for rule in (
        DecisionRule(threshold=0.5),
        DecisionRule(threshold=(math.inf, -1.0, 0.25)),
        DecisionRule(top_k=2),
        DecisionRule(threshold=-math.inf),
    ):
        assert clear_rule(rule, [scores]) == rule
        assert clear_rule(rule, []) == rule
