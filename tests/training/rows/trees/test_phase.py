"""Label trees: the rule is tuned on rows that the trees did not see, then the trees are fitted to all rows."""

from dataclasses import replace

import pytest
import torch

from manyhot import TrainSettings, train
from manyhot.decisions.rule import DecisionRule
from manyhot.decisions.tune import rule_value, tune_rule
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.top_cut import tune_top
from manyhot.engines.native import tree as native
from manyhot.scores.top import TopScores
from manyhot.training.rows import choose
from manyhot.training.rows.inputs import texts
from manyhot.training.rows.rules import fitting
from manyhot.training.rows.rules.beams import beam_rule
from manyhot.training.rows.trees import phase
from training.problems import same_weights, title_examples

pytestmark = pytest.mark.skipif(not native.available()[0], reason="the native engine was not built")
TREE = TrainSettings(model="tree", threads=1, trees=1)


def fitted(examples, monkeypatch, settings=TREE, **given):
    """The model, its scores to tune on, and the number of rows of each fit."""
    sizes, seen, fit = [], [], phase.TreeFit

    def counted(session, rows, **more):
        sizes.append(len(rows))
        return fit(session, rows, **more)

    monkeypatch.setattr(phase, "TreeFit", counted)
    model = train(examples, settings, held_out=lambda _, tuning: seen.append(tuning), **given)
    monkeypatch.setattr(phase, "TreeFit", fit)
    return model, seen[0], sizes


def test_the_final_trees_are_fitted_to_all_rows_and_the_scores_to_tune_on_are_of_others(monkeypatch):
    examples = title_examples(400, num_labels=60)
    model, tuning, sizes = fitted(examples, monkeypatch)
    assert sizes == [360, 400]
    without = train(examples, TREE, validation=examples[tuning.rows.numpy()])
    mine, other = model.body.state_dict(), without.body.state_dict()
    assert all(torch.equal(mine[name], other[name]) for name in mine), "all rows, and the same seed"
    held = examples[tuning.rows.numpy()]
    assert not torch.equal(tuning.logits, model.logits(held)), "the trees that are tuned on did not see these rows"


@pytest.mark.parametrize(
    ("change", "sizes"),
    [
        ({"metric": "SubACC"}, [360, 400]),
        ({"metric": "micro-F1"}, [360, 400]),
        ({"metric": "MLC-F1"}, [360, 400]),
        ({"metric": "macro-F1"}, [360]),
        ({"metric": "hamming-error"}, [360]),
        ({"metric": "macro-F1", "per_label": False}, [360, 400]),
    ],
)
def test_thresholds_per_label_for_one_metric_stay_with_the_trees_they_were_tuned_with(change, sizes, monkeypatch):
    assert fitted(title_examples(400, num_labels=60), monkeypatch, replace(TREE, **change))[2] == sizes


def test_trees_that_are_fitted_again_have_thresholds_per_label_near_the_common_one(monkeypatch):
    """Told micro-F1, as without a metric: trees fitted to all rows reach other labels than those that were tuned on."""
    given = []

    def noted(scores, labels, **how):
        given.append(how["names"])
        return beam_rule(scores, labels, **how)

    monkeypatch.setattr(fitting, "beam_rule", noted)
    for metric in ("auto", "micro-F1", "macro-F1"):
        fitted(title_examples(400, num_labels=60), monkeypatch, replace(TREE, metric=metric))
    assert given == [("micro-F1", "macro-F1"), ("micro-F1",)]


def test_a_small_share_of_the_rows_is_not_worth_another_fit(monkeypatch):
    monkeypatch.setattr(phase, "FEW_HELD_OUT", 0.2)
    _, _, sizes = fitted(title_examples(400, num_labels=60), monkeypatch)
    assert sizes == [360]


@pytest.mark.parametrize(("most", "trees"), [(400, 6), (399, 3)])
def test_the_default_number_of_trees_depends_on_the_rows(most, trees, monkeypatch):
    examples = title_examples(400, num_labels=60)
    monkeypatch.setattr(choose, "MANY_TREES_ROWS", most)
    model = train(examples, replace(TREE, trees=None))
    assert (len(model.body.depths), model.settings.trees) == (trees, trees)
    assert len(train(examples, replace(TREE, trees=2)).body.depths) == 2


def test_given_validation_rows_leave_one_fit(monkeypatch):
    _, _, sizes = fitted(title_examples(300, num_labels=60), monkeypatch, validation=title_examples(50, num_labels=60, seed=1))
    assert sizes == [300]


def test_both_fits_have_checkpoints_of_their_own(tmp_path):
    settings = replace(TREE, checkpoint_seconds=0.0)
    model = train(title_examples(400, num_labels=60), settings, run=tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    first, final = ({path.name for path in each.glob("tree-*")} for each in (folder, folder / "final"))
    assert first
    assert first == final
    (tmp_path / "run" / "model" / "model.json").unlink()
    assert same_weights(model, train(title_examples(400, num_labels=60), settings, run=tmp_path / "run", resume=True))


def test_with_very_many_labels_one_threshold_is_tuned_on_the_best_labels_of_every_held_out_row(monkeypatch):
    examples = title_examples(400, num_labels=60)
    _, table, _ = fitted(examples, monkeypatch)
    monkeypatch.setattr(phase, "LARGEST_TABLE", 39 * 60)
    model, tuning, sizes = fitted(examples, monkeypatch)
    assert isinstance(tuning.logits, TopScores)
    assert len(tuning.logits) == 40
    assert sizes == [360, 400]
    best = tune_rule(table.logits, table.labels, objective="micro-F1", folds=0)
    assert rule_value(table.logits, table.labels, "micro-F1", model.rule) >= best.value - 1e-9
    assert model.about["why"]["rule"].startswith("one threshold, the best for micro-F1 on each row's best labels")
    assert "best for micro-F1" in model.about["tuned"]


@pytest.mark.parametrize("objective", [*OBJECTIVES, "sets"])
def test_the_threshold_of_best_labels_is_tuned_for_what_was_asked(objective, monkeypatch):
    monkeypatch.setattr(phase, "LARGEST_TABLE", 39 * 60)
    model, tuning, _ = fitted(title_examples(400, num_labels=60), monkeypatch, replace(TREE, tune=objective))
    goal = "SubACC" if objective == "sets" else objective
    assert f"the best for {goal} " in model.about["why"]["rule"]
    assert f"best for {goal} (" in model.about["tuned"]
    wanted = tune_top(tuning.logits, tuning.labels, objective=goal, rule=DecisionRule(min_labels=model.rule.min_labels))
    assert model.rule.threshold == wanted[0].threshold


def test_settings_that_one_threshold_does_not_use_are_refused(monkeypatch):
    monkeypatch.setattr(phase, "LARGEST_TABLE", 39 * 60)
    with pytest.raises(ValueError, match=r"`shrink` must be left out: one threshold is tuned for all labels .*they are many"):
        train(title_examples(400, num_labels=60), replace(TREE, shrink=3.0))


def test_a_calibration_is_fitted_to_the_table_of_scores(monkeypatch):
    monkeypatch.setattr(phase, "LARGEST_TABLE", 39 * 60)
    model, tuning, _ = fitted(title_examples(400, num_labels=60), monkeypatch, replace(TREE, calibrate="platt"))
    assert isinstance(tuning.logits, torch.Tensor)
    assert model.calibration is not None


@pytest.mark.parametrize(
    ("long", "many", "given", "ngrams", "trees"),
    [(2, 300, None, 2, 1), (200, 300, None, 1, 6), (200, 299, None, 2, 1), (2, 299, 1, 1, 6), (200, 300, 3, 3, 1)],
)
def test_trees_on_long_texts_and_on_many_use_pairs_of_words_by_default(long, many, given, ngrams, trees, monkeypatch):
    monkeypatch.setattr(texts, "LONG_TEXT", long)
    monkeypatch.setattr(texts, "MANY_TEXTS", many)
    model = train(title_examples(300, num_labels=60), replace(TREE, trees=None, ngrams=given, word_starts=None))
    assert len(model.inputs.words.keys) == ngrams
    assert (model.settings.ngrams, model.settings.trees) == (ngrams, trees)


def test_other_bodies_use_single_words_by_default(monkeypatch):
    monkeypatch.setattr(texts, "LONG_TEXT", 2)
    model = train(title_examples(300, num_labels=60), TrainSettings(model="linear", threads=1, epochs=1))
    assert (model.settings.ngrams, len(model.inputs.words.keys)) == (1, 1)
