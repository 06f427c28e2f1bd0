"""Biases moved by offsets of labels: the same predictions, a better order of labels on other rows."""

import pytest
import torch

from manyhot import TrainSettings, train
from manyhot.decisions.calibrate import fit_calibration
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.decisions.tuning.balanced import balanced_thresholds
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.at_k import precision_at_k
from manyhot.training.rows.linear import ranking
from manyhot.training.rows.linear.offsets import ranking_offsets
from manyhot.training.rows.linear.ranking import Move, best_move, moves, rank_better
from manyhot.training.rows.rules.fitting import Tuning
from training.problems import title_examples

BALANCED = TrainSettings(tune="balanced", calibrate="platt")


def scored(rows=2400, labels=8, *, low=2.0, seed=0):
    """Scores that tell the labels of rows, lower by up to ``low`` for rare labels."""
    draw = torch.Generator().manual_seed(seed)
    rates = torch.linspace(0.5, 0.05, labels)
    truth = torch.rand(rows, labels, generator=draw) < rates
    return torch.randn(rows, labels, generator=draw) + 2 * truth - torch.linspace(0, low, labels), truth


def crossed(scores, truth):
    rows = torch.arange(len(scores))
    return Tuning(scores, SparseLabels.from_dense(truth), None, rows, rows % 5)


def body_of(labels=8):
    body = torch.nn.Module()
    body.head = torch.nn.Linear(3, labels)
    return body


@pytest.mark.parametrize("metric", ["auto", "P@1", "P@3"])
def test_predictions_stay_and_labels_are_ranked_better_on_other_rows(metric):
    scores, truth = scored()
    rule = DecisionRule(threshold=balanced_thresholds(scores, truth), min_labels=1)
    body = body_of()
    before = body.head.bias.detach().clone()
    settings = TrainSettings(metric=metric, tune="balanced", calibrate="platt")
    found = rank_better(settings, body, rule, crossed(scores, truth))
    moved = before - body.head.bias.detach()
    (chosen,) = (each for each in moves(crossed(scores, truth), torch.tensor(rule.threshold)) if each.what == found.moved)
    assert chosen.what
    torch.testing.assert_close(moved, chosen.by.float())
    torch.testing.assert_close(found.tuning.logits, scores - moved)
    other, wanted = scored(seed=1)
    assert torch.equal(decide(other, rule), decide(other - moved, found.rule))
    measured = [int(metric[-1])] if metric != "auto" else [1, 3, 5]
    plain, better = (sum(float(precision_at_k(each, wanted, k=k)) for k in measured) for each in (other, other - moved))
    assert better > plain
    again = fit_calibration(scores - moved, truth, kind="platt")
    torch.testing.assert_close(found.calibration.slope, again.slope)


def test_without_a_metric_no_move_lowers_a_precision_and_the_best_mean_wins(monkeypatch):
    values = [(0.5, 0.4, 0.3), (0.6, 0.4, 0.3), (0.6, 0.41, 0.3), (0.9, 0.6, 0.29), (0.5, 0.4, 0.3)]
    order = iter(values)
    monkeypatch.setattr(ranking, "_precisions", lambda _: next(order))
    scores, truth = scored(20)
    tried = [Move(torch.zeros(8), str(place)) for place in range(len(values))]
    assert best_move(BALANCED, crossed(scores, truth), tried).what == "2"


def test_shares_of_the_thresholds_and_of_fitted_offsets_are_tried_after_no_move():
    scores, truth = scored(500)
    thresholds = torch.linspace(0.5, -1.5, 8).double()
    first, *tried = moves(crossed(scores, truth), thresholds)
    fitted = ranking_offsets(scores, SparseLabels.from_dense(truth))
    assert not first.what
    assert not first.by.any()
    shares = [(0.1, thresholds), (0.2, thresholds), (0.3, thresholds), (0.5, thresholds), (0.5, fitted), (1.0, fitted)]
    assert len(tried) == len(shares)
    for own, (share, of) in zip(tried, shares, strict=True):
        torch.testing.assert_close(own.by, share * of)
        assert own.what.startswith(f"{share:g} of the")


@pytest.mark.parametrize("fitted", [False, True])
def test_offsets_that_are_fitted_to_rank_are_used_if_thresholds_do_not_tell_the_order(monkeypatch, fitted):
    scores, truth = scored()
    if not fitted:
        monkeypatch.setattr(ranking, "ranking_offsets", lambda *_: torch.zeros(8).double())
    flat = DecisionRule(threshold=(0.3,) * 8)
    found = rank_better(BALANCED, body_of(), flat, crossed(scores, truth))
    assert ("fitted" in found.moved) == fitted


def test_labels_that_are_ranked_well_stay_and_so_does_everything_with_few_rows_or_another_rule():
    truth = scored()[1]
    perfect = truth.float() + torch.rand(truth.shape, generator=torch.Generator().manual_seed(1)) / 2
    same = DecisionRule(threshold=(0.3,) * 8)
    body = body_of()
    before = body.head.bias.detach().clone()
    assert not rank_better(BALANCED, body, same, crossed(perfect, truth)).moved
    scores, truth = scored()
    own = DecisionRule(threshold=balanced_thresholds(scores, truth))
    few = crossed(scores[:500], truth[:500])
    alone = crossed(scores, truth)._replace(fold=None)
    one = DecisionRule(threshold=0.2)
    tuned = TrainSettings(tune="micro-F1", calibrate="platt")
    for settings, rule, tuning in (
        (BALANCED, own, few),
        (BALANCED, own, alone),
        (BALANCED, own, None),
        (BALANCED, one, crossed(scores, truth)),
        (tuned, own, crossed(scores, truth)),
    ):
        found = rank_better(settings, body, rule, tuning)
        assert (found.rule, found.moved) == (rule, "")
    assert torch.equal(body.head.bias, before)


def test_training_moves_the_biases_and_the_held_out_scores_with_them(monkeypatch):
    examples, held = title_examples(2400), []
    monkeypatch.setattr(ranking, "best_move", lambda *given: given[-1][0])
    plain = train(examples, TrainSettings(threads=1))
    monkeypatch.setattr(ranking, "best_move", lambda *given: given[-1][4])
    moved = train(examples, TrainSettings(threads=1), held_out=lambda _, tuning: held.append(tuning))
    thresholds = torch.tensor(plain.rule.threshold)
    torch.testing.assert_close(torch.tensor(moved.rule.threshold), thresholds / 2)
    torch.testing.assert_close(moved.logits(examples), plain.logits(examples) - thresholds / 2, rtol=1e-4, atol=1e-5)
    assert moved.predict(examples).lists() == plain.predict(examples).lists()
    assert decide(held[0].logits, moved.rule).shape == (2400, examples.num_labels)
