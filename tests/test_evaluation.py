"""Evaluation: a model by batches and its logits at once give the same, and unknown labels do not count."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from manyhot.decisions.calibrate import fit_calibration
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.evaluation import DEFAULT_METRICS, PROPENSITY_METRICS, evaluate
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.counts import f1_score
from manyhot.training.rows.bundle import load_model
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import text_examples


@pytest.fixture(scope="module")
def model():
    return train(text_examples(), TrainSettings(threads=1))


def test_a_model_and_its_logits_give_the_same(model):
    test = text_examples(seed=1)
    by_batches = evaluate(model, test, batch_size=37)
    assert list(by_batches) == [*DEFAULT_METRICS, *PROPENSITY_METRICS, "empty"]
    logits = model.logits(test)
    again = evaluate(logits, test, rule=model.rule, propensities=model.propensities())
    assert again == pytest.approx(by_batches, abs=1e-6)
    chosen = decide(logits, model.rule)
    assert by_batches["micro-F1"] == pytest.approx(float(f1_score(chosen, test.labels, average="micro")))
    assert by_batches["empty"] == pytest.approx(float((~chosen.any(dim=1)).float().mean()))


def test_labels_are_matched_by_name(model):
    test = text_examples(seed=1)
    turned = test.with_labels([*reversed(test.label_names), "unheard"])
    assert evaluate(model, turned) == pytest.approx(evaluate(model, test))


def test_unknown_labels_do_not_count(model):
    test = text_examples(seed=1)
    wrong = test.labels.dense().clone()
    wrong[:, 0] = ~wrong[:, 0]
    unknown = torch.zeros_like(wrong)
    unknown[:, 0] = True
    spoiled = replace(test, labels=SparseLabels.from_dense(wrong), unknown=SparseLabels.from_dense(unknown))
    hidden = replace(test, unknown=SparseLabels.from_dense(unknown))
    assert evaluate(model, spoiled) == evaluate(model, hidden)


def test_another_rule_is_used_where_given(model):
    assert evaluate(model, text_examples(seed=1), rule=DecisionRule(threshold=float("inf")))["empty"] == 1


def test_precision_at_more_labels_than_there_are_is_left_out():
    test = replace(text_examples(), label_names=tuple("abcdef"))[:4].with_labels(["a", "b"])
    assert "P@3" not in evaluate(torch.zeros(4, 2), test)
    with pytest.raises(ValueError, match="evaluate: k in `metrics` must not exceed the number of labels, 2; got 'P@3'"):
        evaluate(torch.zeros(4, 2), test, ["micro-F1", "P@3"])


def test_propensities_come_from_the_counts_of_the_training_rows(model, tmp_path):
    train_rows, test = text_examples(), text_examples(seed=1)
    counts = train_rows.labels.dense(torch.float64).sum(dim=0)
    scale = (math.log(len(train_rows)) - 1) * 2.5**0.55
    worth = 1 + scale * (counts + 1.5) ** -0.55
    truth = test.labels.dense(torch.float64)
    first = model.logits(test).argmax(dim=1)
    hits = (truth * worth).gather(1, first[:, None]).sum()
    expected = float(hits / (truth * worth).amax(dim=1).sum())
    assert evaluate(model, test, ["PSP@1"])["PSP@1"] == pytest.approx(expected)
    model.save(tmp_path)
    assert evaluate(load_model(tmp_path), test, ["PSP@1"])["PSP@1"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("asked", "listed"),
    [("jaccard", "jaccard"), ("P@2", "P@2"), ("SubACC", "SubACC"), ("ECE", "ECE"), ("P@99", "micro-F1"), ("auto", "micro-F1")],
)
def test_the_metric_that_a_model_was_trained_for_comes_first_and_once(model, asked, listed):
    told = copy.copy(model)
    told.settings = replace(model.settings, metric=asked)
    names = list(evaluate(told, text_examples(seed=1)))
    assert names[0] == listed
    assert len(set(names)) == len(names)
    assert set(names) == {listed, *DEFAULT_METRICS, *PROPENSITY_METRICS, "empty"}


@pytest.mark.parametrize(
    ("asked", "changes", "message"),
    [("PSP@2", {"label_counts": None}, "saved without"), ("ECE", {"link": None, "calibration": None}, "only rank")],
)
def test_a_metric_that_this_model_cannot_have_is_left_out_unless_asked_here(model, asked, changes, message):
    told = copy.copy(model)
    told.settings = replace(model.settings, metric=asked)
    test = text_examples(seed=1)
    assert next(iter(evaluate(told, test))) == asked
    for name, value in changes.items():
        setattr(told, name, value)
    assert next(iter(evaluate(told, test))) == DEFAULT_METRICS[0]
    with pytest.raises(ValueError, match=message):
        evaluate(told, test, [asked])


def test_a_model_without_counts_measures_everything_else_and_says_why_not_this(model):
    bare = copy.copy(model)
    bare.label_counts = None
    test = text_examples(seed=1)
    assert list(evaluate(bare, test)) == [*DEFAULT_METRICS, "empty"]
    with pytest.raises(ValueError, match=r"was saved without these counts\. Train it again, or leave PSP@k out"):
        evaluate(bare, test, ["PSP@1"])
    found = evaluate(bare, test, ["PSP@1"], propensities=torch.ones(test.num_labels, dtype=torch.float64))
    assert 0 < found["PSP@1"] <= 1


def test_logits_of_another_shape_are_an_error():
    with pytest.raises(ValueError, match="must have the shape of the labels"):
        evaluate(torch.zeros(3, 2), text_examples())


def test_metrics_of_probabilities_are_refused_where_scores_only_rank():
    test = text_examples(seed=1)
    ranking = train(text_examples(), TrainSettings(threads=1, loss="pairwise", epochs=1))
    assert ranking.link is None
    assert "AvgPrec" in evaluate(ranking, test)
    for name in ("ECE", "macro-Brier", "mAP-binned"):
        with pytest.raises(ValueError, match=f"probabilities are needed for {name}, but these scores only rank"):
            evaluate(ranking, test, ["AvgPrec", name])
    calibration = fit_calibration(ranking.logits(test), test.labels)
    assert evaluate(ranking, test, ["ECE"], link=calibration)["ECE"] < 0.2
