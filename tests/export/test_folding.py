"""Folding: a sigmoid and a cut at 0.5 decide as the rule does, and give the probabilities of the link."""

import pytest
import torch

from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.links import probabilities
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.export.folding import CERTAIN, fold_link, fold_rule

INF = float("inf")
PLATT = Calibration("platt", torch.tensor([1.7]).double(), torch.tensor([-0.4]).double())
EACH = Calibration("per-label", torch.tensor([0.5, 1.0, 2.0, 3.0]).double(), torch.tensor([1.0, 0.0, -1.0, 0.5]).double())
LINKS = ["hard", "soft", PLATT, EACH]
RULES = [
    DecisionRule(),
    DecisionRule(threshold=0.3),
    DecisionRule(threshold=(0.5, -1.25, 0.0, 2.0)),
    DecisionRule(threshold=(INF, -INF, 0.1, 0.0)),
]


def head(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*size, generator=generator).double() for size in ((500, 6), (4, 6), (4,)))


@pytest.mark.parametrize("link", [None, *LINKS], ids=str)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_sigmoid_cut_at_one_half_decides_as_the_rule(rule, link):
    x, weight, bias = head()
    folded, moved = fold_rule(weight, bias, rule, link)
    assert torch.equal((x @ folded.T + moved).sigmoid() > 0.5, decide(x @ weight.T + bias, rule))


@pytest.mark.parametrize("link", LINKS, ids=str)
def test_a_sigmoid_gives_the_probabilities_of_the_link(link):
    x, weight, bias = head(1)
    folded, moved = fold_link(weight, bias, link)
    torch.testing.assert_close((x @ folded.T + moved).sigmoid(), probabilities(x @ weight.T + bias, link))


def test_both_are_one_where_the_threshold_lies_at_one_half():
    _, weight, bias = head(2)
    rule = DecisionRule(threshold=float(-PLATT.intercept / PLATT.slope))
    by_rule, by_link = fold_rule(weight, bias, rule, PLATT), fold_link(weight, bias, PLATT)
    torch.testing.assert_close(by_rule, by_link)


def test_certain_labels_stay_finite_in_half_precision():
    _, weight, bias = head()
    folded, moved = fold_rule(weight.half(), bias.half(), RULES[3])
    assert folded.dtype == moved.dtype == torch.float16
    assert moved[:2].tolist() == [-CERTAIN, CERTAIN]
    assert folded[:2].abs().max() == 0


@pytest.mark.parametrize("limits", [{"top_k": 2}, {"min_labels": 1}, {"max_labels": 3}])
def test_limits_on_the_number_of_labels_are_refused(limits):
    _, weight, bias = head()
    with pytest.raises(ValueError, match=r"cannot be folded.*Export to ONNX"):
        fold_rule(weight, bias, DecisionRule(**limits))


def test_a_limit_that_no_row_reaches_is_none():
    _, bias = fold_rule(torch.eye(3), torch.zeros(3), DecisionRule(threshold=0.5, max_labels=3))
    assert bias.tolist() == [-0.5] * 3
    with pytest.raises(ValueError, match="max_labels=2"):
        fold_rule(torch.eye(3), torch.zeros(3), DecisionRule(threshold=0.5, max_labels=2))


def test_links_that_are_no_sigmoid_are_refused():
    _, weight, bias = head()
    knots = torch.tensor([0.0, 1.0]).double()
    with pytest.raises(ValueError, match="isotonic calibration is not a sigmoid"):
        fold_link(weight, bias, Calibration("isotonic", knots=knots, levels=knots))
    with pytest.raises(ValueError, match="softmax of a row"):
        fold_link(weight, bias, "softmax")
    backwards = Calibration("platt", torch.tensor([-1.0]).double(), torch.tensor([0.0]).double())
    with pytest.raises(ValueError, match="slope of the calibration must be positive"):
        fold_link(weight, bias, backwards)


def test_sizes_and_types_are_checked():
    with pytest.raises(ValueError, match=r"`weight` must be \[L, H\]"):
        fold_rule(torch.ones(3, 2), torch.ones(2), DecisionRule())
    with pytest.raises(ValueError, match="one threshold per label, 3; got 2"):
        fold_rule(torch.ones(3, 2), torch.ones(3), DecisionRule(threshold=(0.0, 1.0)))
    with pytest.raises(TypeError, match="floating-point"):
        fold_rule(torch.ones(3, 2).long(), torch.ones(3), DecisionRule())
