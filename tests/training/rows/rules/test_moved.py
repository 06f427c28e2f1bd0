"""Thresholds that are moved together: the best common move, with the best label of each row predicted at any threshold."""

import math

import pytest
import torch

from manyhot.decisions.rule import DecisionRule, decide
from manyhot.decisions.tune import rule_value
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.rules.fitting import Tuning, fit_rule
from manyhot.training.rows.rules.moved import SHARE, HeldRows, lifted, moved_rule, offsets_of, with_offsets
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import tuned_for


def problem(rows=2400, labels=8, seed=0):
    """Rows with one label or two and a level of their own; rare labels score lower."""
    draw = torch.Generator().manual_seed(seed)
    rates = torch.linspace(1.0, 0.05, labels)
    first, second = torch.multinomial(rates, 2 * rows, replacement=True, generator=draw).reshape(2, rows)
    truth = torch.zeros(rows, labels, dtype=torch.bool)
    truth[torch.arange(rows), first] = True
    truth[torch.arange(0, rows, 4), second[::4]] = True
    scores = torch.randn(rows, labels, generator=draw) + 3 * truth + torch.randn(rows, 1, generator=draw) + rates.log()
    return HeldRows(scores, SparseLabels.from_dense(truth), None)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("least", [True, False])
def test_no_other_common_move_is_better(objective, least):
    rows = problem(300)
    offsets = torch.linspace(0.2, -1.0, 8)
    found = moved_rule(objective, rows, offsets, least=least, seed=0).rule
    assert found.min_labels == int(least)
    value = rule_value(rows.scores, rows.labels, objective, found)
    every = (rows.scores - offsets).flatten().unique().double()
    tried = torch.cat([every[:1] - 1, (every[1:] + every[:-1]) / 2, every[-1:] + 1])[::23]
    for cut in tried.tolist():
        other = with_offsets(DecisionRule(threshold=cut, min_labels=int(least)), offsets)
        assert rule_value(rows.scores, rows.labels, objective, other) <= value + 1.1e-3 * abs(value)


def test_a_threshold_below_the_lifted_scores_decides_as_at_least_one_label_does():
    rows = problem(200)
    high = lifted(rows.scores, None)
    assert torch.equal(high.argmax(dim=1), rows.scores.argmax(dim=1))
    for cut in (-2.0, 0.5, 3.0):
        assert torch.equal(high > cut, decide(rows.scores, DecisionRule(threshold=cut, min_labels=1)))


def test_unknown_entries_and_scores_that_are_no_numbers_are_not_lifted():
    scores = torch.tensor([[3.0, 1.0, math.nan], [-math.inf, 2.0, 0.0]])
    where = torch.tensor([[False, True, True], [True, True, True]])
    high = lifted(scores, where)
    assert high[0].tolist()[:2] == [3.0, 3.0]
    assert high[1].tolist() == [-math.inf, 3.0, 0.0]


def test_nothing_is_moved_where_no_label_is_better_than_the_best_one():
    scores = -torch.rand(100, 4, generator=torch.Generator().manual_seed(0))
    wrong = torch.zeros(100, 4, dtype=torch.bool)
    wrong[torch.arange(100), scores.argmin(dim=1)] = True
    rows = HeldRows(scores, SparseLabels.from_dense(wrong), None)
    assert moved_rule("hamming-error", rows, None, least=True, seed=0).value == -math.inf


def test_offsets_are_half_of_the_balanced_thresholds_and_rare_labels_have_lower_ones():
    offsets = offsets_of(problem(), shrink=5.0, seed=0)
    assert SHARE == 0.5
    assert offsets[-1] < offsets[0]


@pytest.mark.parametrize("metric", ["micro-F1", "MLC-F1", "jaccard", "SubACC"])
def test_training_moves_thresholds_together_where_that_wins_on_other_rows(metric):
    rows, other = problem(), problem(seed=1)
    tuning = Tuning(rows.scores, rows.labels, None, torch.arange(2400), torch.arange(2400) % 5)
    settings = TrainSettings(metric=metric, tune=tuned_for(metric), calibrate="none")
    rule, _, found = fit_rule(settings, DecisionRule(), tuning, rows.labels)
    few, _, _ = fit_rule(settings, DecisionRule(), tuning._replace(fold=None), rows.labels)
    assert rule_value(other.scores, other.labels, metric, rule) > rule_value(other.scores, other.labels, metric, few) - 0.005
    assert isinstance(rule.threshold, tuple)
    if metric != "SubACC":
        assert "moved together" in found
        assert rule.min_labels == 1
