"""The rule that training tunes: micro-F1 and macro-F1 together, steady for rare labels."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhot.decisions.calibrate import fit_calibration
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.decisions.tune import tune_rule
from manyhot.decisions.tuning import balanced
from manyhot.decisions.tuning.balanced import balanced_thresholds
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.running import Metrics
from manyhot.training.rows.rules import fitting
from manyhot.training.rows.rules.fitting import Tuning, best_value, fit_rule
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import tuned_for


def scored(rows=400, labels=6, *, seed=0):
    """Scores that tell positives from others, not perfectly; the last labels are rare."""
    generator = torch.Generator().manual_seed(seed)
    rates = 0.4 / torch.arange(1, labels + 1)
    truth = torch.rand(rows, labels, generator=generator) < rates
    return torch.randn(rows, labels, generator=generator) + 3 * truth - 2, truth


def both_f1(predictions, truth):
    """``micro-F1 + macro-F1`` by their definitions."""
    tp, pp, p = ((predictions & truth).sum(0).double(), predictions.sum(0).double(), truth.sum(0).double())
    macro = torch.where(pp + p > 0, 2 * tp / (pp + p).clamp(min=1), 0.0).mean()
    return float(2 * tp.sum() / (pp.sum() + p.sum()).clamp(min=1) + macro)


@pytest.mark.parametrize("seed", range(5))
def test_without_guards_no_thresholds_are_better_than_a_search_of_all_finds(seed):
    logits, truth = scored(12, 2, seed=seed)
    found = balanced_thresholds(logits, truth, shrink=0, flood=100)
    every = [sorted({*column.tolist(), float(column.min()) - 1}) for column in logits.T]
    best = max(both_f1(logits > torch.tensor(cuts), truth) for cuts in itertools.product(*every))
    # The price of a prediction is that of the thresholds found, so a neighbour may be better by a little.
    assert both_f1(decide(logits, DecisionRule(threshold=found)), truth) > best - 0.02


def test_the_sum_of_both_is_near_the_best_that_tuning_for_one_of_them_reaches():
    logits, truth = scored(2000, 20)
    other, wanted = scored(2000, 20, seed=1)
    value = both_f1(other > torch.tensor(balanced_thresholds(logits, truth)), wanted)
    for objective in ("micro-F1", "macro-F1"):
        rule = tune_rule(logits, truth, objective=objective, per_label=True, folds=0).rule
        assert value > both_f1(other > torch.tensor(rule.threshold), wanted) - 0.01


@pytest.mark.parametrize(("rows", "count"), [(2000, 2), (2999, 2), (3500, 3), (9000, 5)])
def test_thresholds_of_many_rows_are_the_mean_over_random_parts(rows, count, monkeypatch):
    logits, truth = scored(rows)
    own = []
    for repeat in range(4):
        drawn = np.random.default_rng([3, repeat]).permutation(rows)
        own += [torch.from_numpy(part) for part in np.array_split(drawn, count)]
    found = torch.tensor(balanced_thresholds(logits, truth, seed=3, averaged=True)).double()
    monkeypatch.setattr(balanced, "FEWEST_IN_PART", rows)
    parts = [balanced_thresholds(logits[part], truth[part], shrink=5 / count) for part in own]
    torch.testing.assert_close(found, torch.tensor(parts).double().mean(dim=0), rtol=1e-5, atol=1e-5)
    assert balanced_thresholds(logits, truth, seed=3) != tuple(found.tolist()), "those of all rows are others"


def test_parts_without_a_positive_do_not_count():
    logits, truth = scored(2000)
    truth[:] = False
    truth[7, 1] = True
    logits[7, 1] = 9.0
    cuts = balanced_thresholds(logits, truth, averaged=True)
    assert all(np.isfinite(cuts))
    assert cuts[1] < 9


def test_a_rare_label_is_cut_above_what_it_scored_and_not_at_the_cut_of_all():
    logits, truth = scored(400, 6)
    logits[:, 2] -= 6
    truth[:, 2] = False
    truth[0, 2] = True
    logits[0, 2] = logits[:, 2].min()
    cuts = balanced_thresholds(logits, truth, shrink=0)
    assert float(logits[:, 2].max()) <= cuts[2] < min(cuts[:2]) - 1
    truth[0, 2] = False
    assert balanced_thresholds(logits, truth, shrink=0)[2] > cuts[2] + 1


@pytest.mark.parametrize(
    ("asked", "name"),
    [("auto", "micro-F1"), ("macro-F1", "AvgPrec"), ("hamming-error", "AvgPrec"), ("RankLoss", "RankLoss"), ("P@3", "P@3")],
)
def test_training_stops_by_a_metric_of_held_out_scores_and_one_of_decisions_is_taken_at_the_best_cut(asked, name):
    logits, truth = scored()
    labels = SparseLabels.from_dense(truth)
    rule = tune_rule(logits, labels, objective=name, folds=0).rule if name == "micro-F1" else None
    measured = Metrics([name], num_labels=labels.num_labels, rule=rule)
    measured.update(logits, labels)
    sign = -1 if name == "RankLoss" else 1
    found = best_value(TrainSettings(metric=asked), Tuning(logits, labels, None))
    assert found == pytest.approx(sign * float(measured.compute()[name]), abs=1e-6)


def test_a_label_that_no_row_has_is_not_predicted_everywhere():
    logits, truth = scored()
    truth[:, 3] = False
    cut = balanced_thresholds(logits, truth)[3]
    assert float((logits[:, 3] > cut).double().mean()) < 0.1


def test_entries_that_are_left_out_do_not_count():
    logits, truth = scored()
    where = torch.ones_like(truth)
    where[::2] = False
    spoiled = torch.where(where, truth, ~truth)
    assert balanced_thresholds(logits, spoiled, where=where) == pytest.approx(
        balanced_thresholds(logits[1::2], truth[1::2]), abs=1e-6
    )


@pytest.mark.parametrize("per_label", [True, False])
def test_training_takes_the_balanced_rule(per_label):
    logits, truth = scored()
    tuning = Tuning(logits, SparseLabels.from_dense(truth), None)
    settings = TrainSettings(per_label=per_label, tune="balanced", calibrate="none")
    rule, calibration, found = fit_rule(settings, DecisionRule(), tuning, tuning.labels)
    assert calibration is None
    assert "micro-F1" in found
    assert isinstance(rule.threshold, tuple) is per_label
    assert both_f1(decide(logits, rule), truth) > both_f1(logits > 0, truth)


@pytest.mark.parametrize("metric", ["micro-F1", "macro-F1", "MLC-F1", "auto"])
def test_every_row_gets_its_best_label_where_every_training_row_has_one(metric):
    generator = torch.Generator().manual_seed(0)
    truth = torch.nn.functional.one_hot(torch.randint(0, 4, (300,), generator=generator), 4).bool()
    # Rows differ in their level, so no threshold finds the one label of each row, which is its best.
    logits = torch.randn(300, 4, generator=generator) + 4 * truth + 6 * torch.randn(300, 1, generator=generator)
    labels, settings = SparseLabels.from_dense(truth), TrainSettings(metric=metric, tune=tuned_for(metric), calibrate="none")
    rule, _, found = fit_rule(settings, DecisionRule(), Tuning(logits, labels, None), labels)
    assert rule.min_labels == 1
    assert "every row gets at least its best one" in found
    with_empty = SparseLabels.from_dense(torch.cat([truth, torch.zeros(1, 4, dtype=torch.bool)]))
    assert fit_rule(settings, DecisionRule(), Tuning(logits, labels, None), with_empty)[0].min_labels == 0
    # Scores whose best label is wrong where all are low: a label more would be a wrong one.
    low = torch.where(truth, -5.0, -6.0)
    low[:200] = torch.where(truth[:200], 5.0, -5.0)
    low[200:] = torch.where(truth[200:], -9.0, -6.0)
    assert fit_rule(settings, DecisionRule(), Tuning(low, labels, None), labels)[0].min_labels == 0


@pytest.mark.parametrize(("rows", "crossed", "averaged"), [(2000, True, True), (1999, True, False), (2000, False, False)])
@pytest.mark.parametrize("tune", ["balanced", "macro-F1"])
def test_thresholds_of_many_cross_fitted_rows_are_averaged_over_parts(rows, crossed, averaged, tune):
    logits, truth = scored(rows, 12)
    logits = logits + 3 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    labels = SparseLabels.from_dense(truth)
    fold = torch.arange(rows) % 2 if crossed else None
    tuning = Tuning(logits, labels, None, torch.arange(rows), fold)
    rule, _, _ = fit_rule(TrainSettings(tune=tune, calibrate="none"), DecisionRule(), tuning, labels)
    weight = 0.0 if tune == "macro-F1" else 1.0
    assert (rule.threshold == balanced_thresholds(logits, truth, micro_weight=weight, averaged=True)) is averaged or rows < 2000


def test_without_a_weight_of_micro_f1_thresholds_are_best_for_macro_f1():
    logits, truth = scored(1500, 12)
    logits = logits + 3 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    both, macro = (decide(logits, DecisionRule(threshold=balanced_thresholds(logits, truth, micro_weight=w))) for w in (1, 0))

    def macro_f1(predictions):
        tp, pp, p = ((predictions & truth).sum(0).double(), predictions.sum(0).double(), truth.sum(0).double())
        return float((2 * tp / (pp + p).clamp(min=1)).mean())

    assert macro_f1(macro) > macro_f1(both)
    assert both_f1(both, truth) > both_f1(macro, truth)


def test_a_common_calibration_of_many_scores_is_fitted_on_every_nth_row(monkeypatch):
    logits, truth = scored(900, 6)
    tuning = Tuning(logits, SparseLabels.from_dense(truth), None)
    monkeypatch.setattr(fitting, "MOST_CALIBRATED", 900 * 6 // 3)
    for kind, step in (("platt", 3), ("temperature", 3), ("per-label", 1)):
        settings = TrainSettings(calibrate=kind, tune="balanced")
        _, calibration, _ = fit_rule(settings, DecisionRule(), tuning, tuning.labels)
        wanted = fit_calibration(logits[::step], truth[::step], kind=kind)
        torch.testing.assert_close(calibration.slope, wanted.slope)
        torch.testing.assert_close(calibration.intercept, wanted.intercept)


def test_for_mlc_f1_rows_get_thresholds_by_their_probabilities_where_that_is_better():
    draw = torch.Generator().manual_seed(0)
    # Certain rows have one label of high probability; uncertain ones many of low probability.
    certain = (torch.arange(600) % 2 == 0)[:, None]
    probs = torch.where(certain, torch.tensor([0.95] + [0.25] * 2 + [0.01] * 9), torch.full((12,), 0.25))
    truth = torch.rand(600, 12, generator=draw) < probs
    truth[:, 0] |= ~truth.any(dim=1)
    logits, labels = probs.logit(), SparseLabels.from_dense(truth)
    settings = TrainSettings(metric="MLC-F1", tune="MLC-F1", calibrate="none")
    tuning = Tuning(logits, labels, None, torch.arange(600), torch.zeros(600, dtype=torch.int64))
    rule, _, found = fit_rule(settings, DecisionRule(), tuning, labels)
    assert rule.row_f1 is not None
    assert found.startswith("each row's own threshold")
    one = tune_rule(logits, labels, objective="MLC-F1", folds=0).rule
    values = []
    for each in (one, rule):
        metrics = Metrics(["MLC-F1"], num_labels=12, rule=each)
        metrics.update(logits, labels)
        values.append(float(metrics.compute()["MLC-F1"]))
    assert values[1] > values[0] + 0.01
    for other in ("jaccard", "micro-F1"):
        assert fit_rule(replace(settings, metric=other, tune=other), DecisionRule(), tuning, labels)[0].row_f1 is None
    empty = SparseLabels.from_dense(truth & (torch.arange(600) % 5 > 0)[:, None])
    assert fit_rule(settings, DecisionRule(), tuning._replace(labels=empty), empty)[0].row_f1 is None
