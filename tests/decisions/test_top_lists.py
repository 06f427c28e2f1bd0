"""Decisions and tuning on top lists agree with those on all scores."""

import pytest
import torch

from manyhot.decisions.rule import DecisionRule, decide_sparse
from manyhot.decisions.top_lists import decide_top
from manyhot.decisions.tune import rule_value, tune_rule
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.top_cut import tune_top
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.running import Metrics
from manyhot.scores.top import TopScores


def problem(rows=80, labels=30, seed=0):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(rows, labels, generator=generator) < 0.1
    scores = torch.randn(rows, labels, generator=generator) + 2.5 * truth - 2
    return scores, SparseLabels.from_dense(truth)


@pytest.mark.parametrize(
    "rule",
    [
        DecisionRule(threshold=0.5),
        DecisionRule(top_k=3),
        DecisionRule(threshold=0.3, min_labels=2),
        DecisionRule(threshold=-1.0, max_labels=8),
        DecisionRule(threshold=9.0, min_labels=1, max_labels=4),
    ],
)
def test_a_list_that_is_long_enough_decides_as_all_scores_do(rule):
    scores, _ = problem()
    assert decide_top(TopScores.from_dense(scores, k=12), rule).lists() == decide_sparse(scores, rule).lists()


def test_a_list_that_is_too_short_for_the_rule_is_an_error():
    scores, _ = problem()
    with pytest.raises(ValueError, match="must list every label that the rule predicts"):
        decide_top(TopScores.from_dense(scores, k=4), DecisionRule(threshold=-3.0))
    with pytest.raises(ValueError, match="one threshold for all labels"):
        decide_top(TopScores.from_dense(scores, k=4), DecisionRule(threshold=(0.0,) * 30))


def test_empty_places_of_a_list_are_never_predicted():
    top = TopScores(torch.tensor([[1.0, float("-inf")]]), torch.tensor([[2, -1]]), 5)
    assert decide_top(top, DecisionRule(min_labels=2)).lists() == [[2]]
    assert decide_top(top, DecisionRule(top_k=2)).lists() == [[2]]


@pytest.mark.parametrize("seed", range(4))
def test_the_threshold_of_whole_lists_is_the_best_of_all(seed):
    scores, labels = problem(seed=seed)
    rule, value = tune_top(TopScores.from_dense(scores, k=30), labels)
    tuned = tune_rule(scores, labels, folds=0)
    assert value == pytest.approx(tuned.value)
    assert rule.threshold == pytest.approx(tuned.rule.threshold)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(3))
def test_whole_lists_are_tuned_for_each_objective_as_all_scores_are(objective, seed):
    scores, labels = problem(seed=seed)
    rule, value = tune_top(TopScores.from_dense(scores, k=30), labels, objective=objective)
    tuned = tune_rule(scores, labels, objective=objective, folds=0)
    assert value == pytest.approx(rule_value(scores, labels, objective, tuned.rule))
    assert rule.threshold == pytest.approx(tuned.rule.threshold)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("k", [2, 5])
def test_the_rule_of_short_lists_has_the_value_it_says_on_all_scores(k, least, objective):
    scores, labels = problem(seed=7)
    rule, value = tune_top(TopScores.from_dense(scores, k=k), labels, objective=objective, rule=DecisionRule(min_labels=least))
    assert rule_value(scores, labels, objective, rule) == pytest.approx(value)


def test_nothing_is_predicted_where_every_list_is_wrong():
    top, labels = TopScores.from_dense(torch.eye(3), k=1), SparseLabels.from_lists([[], [], []], num_labels=3)
    rule, value = tune_top(top, labels, objective="SubACC")
    assert value == 1.0
    assert decide_top(top, rule).lists() == [[], [], []]
    with pytest.raises(ValueError, match=r"tune_top: `objective` must be one of .*Did you mean 'SubACC'"):
        tune_top(top, labels, objective="subACC")


def test_equal_scores_are_not_split_and_no_rows_give_a_rule():
    scores = torch.tensor([[1.0, 1.0, 0.0]])
    rule, value = tune_top(TopScores.from_dense(scores, k=3), SparseLabels.from_lists([[0]], num_labels=3))
    assert value == pytest.approx(2 / 3)
    assert rule.threshold == 0.5
    rule, value = tune_top(
        TopScores(torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.int64), 9), SparseLabels.from_lists([], num_labels=9)
    )
    assert (rule.threshold, value) == (0.0, 0.0)


def uneven(rows=120, labels=30, seed=0):
    """Scores whose level differs from row to row, which only rank the labels of a row; with their top lists."""
    scores, truth = problem(rows, labels, seed)
    scores = scores + 4 * torch.randn(rows, 1, generator=torch.Generator().manual_seed(seed + 1))
    best = TopScores.from_dense(scores, k=12)
    return scores, truth, TopScores(best.values, best.indices, labels, scores.logsumexp(dim=1))


def test_a_softmax_rule_decides_on_lists_as_on_all_scores():
    scores, _, top = uneven()
    rule = DecisionRule(threshold=-2.5, softmax=True, min_labels=1)
    assert decide_top(top, rule).lists() == decide_sparse(scores, rule).lists()
    with pytest.raises(ValueError, match="a softmax needs `log_sums`; got None"):
        decide_top(TopScores.from_dense(scores, k=12), rule)


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("least", [0, 1, 2])
def test_labels_that_every_row_gets_count_in_the_value_of_a_tuned_rule(least, softmax):
    scores, truth, top = uneven()
    rule, value = tune_top(top, truth, rule=DecisionRule(min_labels=least, softmax=softmax))
    assert (rule.min_labels, rule.softmax) == (least, softmax)
    measured = Metrics(["micro-F1"], num_labels=30, rule=rule)
    measured.update(scores, truth)
    assert measured.compute()["micro-F1"] == pytest.approx(value)


def test_a_softmax_helps_where_the_level_of_scores_differs_from_row_to_row():
    _, truth, top = uneven()
    plain, relative = (tune_top(top, truth, rule=DecisionRule(softmax=each))[1] for each in (False, True))
    assert relative > plain + 0.1


def test_lists_no_longer_than_what_every_row_gets_have_a_rule_too():
    top, truth = TopScores.from_dense(torch.tensor([[2.0, 1.0, 0.0]]), k=1), SparseLabels.from_lists([[0]], num_labels=3)
    rule, value = tune_top(top, truth, rule=DecisionRule(min_labels=1))
    assert value == 1.0
    assert decide_top(top, rule).lists() == [[0]]
