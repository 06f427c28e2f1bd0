"""The mean of fits with several losses: what a table is fitted with when a metric is asked for."""

from dataclasses import replace

import pytest
import torch

from manyhot import SparseLabels, load_model
from manyhot.data.examples import Examples
from manyhot.decisions.calibrate import fit_calibration
from manyhot.labels.powerset import LabelSets
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import feature_examples, same_weights, text_examples

USUAL = TrainSettings(metric="micro-F1", epochs=3, hidden=8, threads=1, batch_size=32, validation=0.2)


def settings_for(model, **changes):
    return replace(USUAL, model=model, hidden=8 if model == "mlp" else 0, **changes)


def scored(rows, settings):
    held = []
    model = train(rows, settings, held_out=lambda _, tuning: held.append(tuning))
    return model, held[0]


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_its_scores_are_the_mean_of_the_losses_as_log_odds(model):
    rows, parts = feature_examples(), []
    for loss in ("zlpr", "bce"):
        alone, tuning = scored(rows, settings_for(model, loss=loss))
        platt = fit_calibration(tuning.all_scores, tuning.labels, kind="platt")
        slope, intercept = float(platt.slope), float(platt.intercept)
        parts.append([slope * each + intercept for each in (alone.logits(rows), tuning.all_scores)])
    both, tuning = scored(rows, settings_for(model, mean_of="zlpr,bce"))
    for own, first, second in zip((both.logits(rows), tuning.all_scores), *parts, strict=True):
        torch.testing.assert_close(own, (first + second) / 2, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_label_powerset_takes_part_by_the_log_odds_of_each_label_and_is_saved(model, tmp_path):
    rows = feature_examples()
    mixed, _ = scored(rows, settings_for(model, mean_of="zlpr,powerset"))
    alone, tuning = scored(rows, settings_for(model, loss="zlpr"))
    platt = fit_calibration(tuning.all_scores, tuning.labels, kind="platt")
    own = float(platt.slope) * alone.logits(rows) + float(platt.intercept)
    sets = LabelSets.of(rows.labels)
    with torch.no_grad():
        logits = mixed.body.body(torch.from_numpy(mixed.inputs.rows(rows)))
    assert logits.shape == (len(rows), rows.num_labels + len(sets))
    torch.testing.assert_close(logits[:, : rows.num_labels], own, atol=1e-4, rtol=1e-4)
    slope, intercept, share = mixed.body.reader.scale.tolist()
    assert share == 0.5
    of_sets = sets.label_scores(logits[:, rows.num_labels :])
    truth = rows.labels.dense(torch.bool)
    assert of_sets[truth].mean() > of_sets[~truth].mean() + 0.3
    torch.testing.assert_close(mixed.logits(rows), (own + slope * of_sets + intercept) / 2, atol=1e-4, rtol=1e-4)
    mixed.save(tmp_path)
    loaded = load_model(tmp_path)
    torch.testing.assert_close(loaded.logits(rows), mixed.logits(rows), rtol=0, atol=0)
    assert loaded.predict(rows).lists() == mixed.predict(rows).lists()


def test_a_metric_chooses_it_for_tables_and_other_choices_are_kept():
    rows = feature_examples()
    quick = {"epochs": 1, "hidden": 8, "threads": 1}
    told = train(rows, TrainSettings(metric="SubACC", **quick))
    assert told.settings.mean_of == "zlpr,bce,powerset"
    assert (told.settings.batch_size, told.settings.validation, told.settings.members) == (16, 0.2, 5)
    assert told.about["why"]["loss"].startswith("the mean of zlpr, bce, powerset")
    assert told.describe()["loss"] == "the mean of zlpr, bce, powerset"
    assert told.about["why"]["fits"].startswith("the mean of 15: 5 with each loss")
    for changes in ({}, {"metric": "SubACC", "loss": "bce"}, {"metric": "SubACC", "mean_of": "none"}, {"metric": "ECE"}):
        assert train(rows, TrainSettings(**quick, **changes)).settings.mean_of == "none"
    assert train(text_examples(60), TrainSettings(metric="SubACC", epochs=1)).settings.mean_of == "none"


def test_label_powerset_stays_out_where_rows_share_no_sets_or_labels_are_unknown():
    rows, quick = feature_examples(40), {"epochs": 1, "hidden": 8, "threads": 1, "metric": "SubACC"}
    lists = [[label for label in range(6) if row >> label & 1] for row in range(40)]
    different = Examples(SparseLabels.from_lists(lists, num_labels=6), tuple("abcdef"), features=rows.features)
    assert train(different, TrainSettings(**quick)).settings.mean_of == "zlpr,bce"
    unknown = SparseLabels.from_lists([[0] if 0 not in own else [] for own in rows.labels.lists()], num_labels=4)
    partly = Examples(rows.labels, rows.label_names, features=rows.features, unknown=unknown)
    assert train(partly, TrainSettings(**quick)).settings.mean_of == "zlpr,bce"


@pytest.mark.parametrize("changes", [{"mean_of": "zlpr,powerset", "members": 2}, {"metric": "RankLoss", "epochs": 1}])
def test_a_run_stopped_after_any_epoch_ends_in_the_same_weights(changes, tmp_path):
    settings = replace(USUAL, checkpoint_seconds=0.0, **changes)
    unbroken = train(feature_examples(), settings)

    class KilledError(Exception):
        pass

    def stop(event):
        if event.kind == "epoch":
            raise KilledError

    for _ in range(40):
        try:
            resumed = train(feature_examples(), settings, run=tmp_path / "run", resume=True, progress=stop)
            break
        except KilledError:
            continue
    assert same_weights(resumed, unbroken)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mean_of": "zlpr"}, "`mean_of` must be two or more different losses"),
        ({"mean_of": "zlpr,zlpr"}, "`mean_of` must be two or more different losses"),
        ({"mean_of": "zlpr,bec"}, "`mean_of` must be one of"),
        ({"mean_of": "zlpr,bce", "loss": "bce"}, "`loss` must be left out: `mean_of` names the losses"),
        ({"mean_of": "zlpr,bce", "validation": 0.0}, "`mean_of` must be left out: no rows are held out"),
    ],
)
def test_wrong_uses_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        train(feature_examples(), TrainSettings(epochs=1, **given))


@pytest.mark.parametrize(("metric", "losses"), [("RankLoss", "zlpr,bce"), ("MLC-F1", "squared_hinge,bce")])
def test_on_sparse_tables_it_is_the_mean_of_cross_fitted_losses(metric, losses, tmp_path):
    rows, parts = feature_examples(as_sparse=True), []
    quick = TrainSettings(model="linear", threads=1)
    both, tuning = scored(rows, replace(quick, metric=metric))
    assert (both.settings.mean_of, both.settings.calibrate) == (losses, "none")
    assert both.about["why"]["loss"].startswith(f"the mean of {losses.replace(',', ', ')}")
    assert both.about["why"]["fits"].startswith("the final model is trained on all rows with each loss")
    for loss in losses.split(","):
        # The steps of a loss alone end at a third; here a third is not better than the usual step.
        alone, own = scored(rows, replace(quick, metric=metric, loss=loss))
        platt = fit_calibration(own.all_scores, own.labels, kind="platt")
        slope, intercept = float(platt.slope), float(platt.intercept)
        parts.append([slope * each + intercept for each in (alone.logits(rows), own.all_scores)])
    for own, first, second in zip((both.logits(rows), tuning.all_scores), *parts, strict=True):
        torch.testing.assert_close(own, (first + second) / 2, atol=1e-4, rtol=1e-4)
    both.save(tmp_path)
    assert load_model(tmp_path).predict(rows).lists() == both.predict(rows).lists()
    for changes in ({"learning_rate": 0.1}, {"mean_of": "none"}, {"loss": "bce"}, {"tune": "none"}):
        assert train(rows, replace(quick, metric=metric, **changes)).settings.mean_of == "none"


def test_on_sparse_tables_a_finished_run_gives_its_model_and_scores_again(tmp_path):
    rows, settings, found = feature_examples(as_sparse=True), TrainSettings(model="linear", metric="RankLoss", threads=1), []
    for _ in range(2):
        model = train(rows, settings, run=tmp_path / "run", resume=True, held_out=lambda *given: found.append(given))
    assert same_weights(found[0][0], model)
    assert torch.equal(found[0][1].all_scores, found[1][1].all_scores)


def test_on_sparse_tables_label_powerset_takes_part_if_it_is_named():
    rows = feature_examples(as_sparse=True)
    model, tuning = scored(rows, TrainSettings(model="linear", mean_of="zlpr,powerset", metric="micro-F1", threads=1))
    assert model.logits(rows).shape == tuning.all_scores.shape == (300, 4)
    assert model.body.reader.scale.tolist()[2] == 0.5


@pytest.mark.parametrize(("kept", "share"), [((2,), 1.0), ((0, 2), 0.5), ((0, 1), None)])
def test_losses_may_be_left_out_for_ranking_alone_and_only_where_none_are_named(kept, share, monkeypatch):
    monkeypatch.setattr("manyhot.training.rows.mean_losses.kept_losses", lambda *_: kept)
    rows, quick = feature_examples(), {"model": "linear", "epochs": 2, "threads": 1}
    model = train(rows, TrainSettings(metric="RankLoss", **quick))
    assert model.about["why"]["losses"].endswith("is better than with all, by two standard errors")
    assert (model.body.reader.scale.tolist()[2] if share else None) == share
    if kept == (2,):
        assert model.about["why"]["losses"].startswith("powerset alone")
        with torch.no_grad():
            logits = model.body.body(torch.from_numpy(model.inputs.rows(rows)))
        slope, intercept, _ = model.body.reader.scale.tolist()
        of_sets = LabelSets.of(rows.labels).label_scores(logits[:, rows.num_labels :])
        torch.testing.assert_close(model.logits(rows), slope * of_sets + intercept)
    for changes in ({"metric": "RankLoss", "mean_of": "zlpr,bce,powerset"}, {"metric": "AvgPrec"}):
        assert "losses" not in train(rows, TrainSettings(**quick, **changes)).about["why"]


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_for_ranking_label_powerset_has_the_learning_rate_that_is_best_on_held_out_rows(model, monkeypatch, tmp_path):
    rows, settings = feature_examples(), settings_for(model, metric="RankLoss")
    monkeypatch.setattr("manyhot.training.rows.mean_losses.kept_losses", lambda *_: (0, 1, 2))
    for steps in ((1.0, 1e-9), (1e-9, 1.0), (1.0,)):
        # With the tiny rate the biases stay those of the most frequent sets, which rank worse.
        monkeypatch.setattr("manyhot.training.rows.mean_losses.SETS_STEPS", steps)
        told = train(rows, settings)
        assert told.about["why"]["powerset"] == "its learning rate times 1: RankLoss of held-out rows is best"
        if model == "mlp":
            assert told.shape["hidden"] == told.body.body.head.in_features
    # Without the choice the fits are the same.
    usual = train(rows, settings_for(model, metric="RankLoss", mean_of="zlpr,bce,powerset"))
    assert "powerset" not in usual.about["why"]
    torch.testing.assert_close(told.logits(rows), usual.logits(rows), rtol=0, atol=0)
    told.save(tmp_path)
    assert load_model(tmp_path).predict(rows).lists() == told.predict(rows).lists()


def test_learning_rates_of_label_powerset_are_tried_for_ranking_alone():
    quick = {"model": "linear", "epochs": 1, "threads": 1}
    for changes in ({"metric": "AvgPrec"}, {"metric": "RankLoss", "mean_of": "zlpr,powerset"}):
        assert "powerset" not in train(feature_examples(), TrainSettings(**quick, **changes)).about["why"]
    assert train(feature_examples(), TrainSettings(metric="coverage-error", **quick)).about["why"]["powerset"]


def test_texts_refuse_it():
    with pytest.raises(ValueError, match="`mean_of` must be left out: only mlp and linear on tables of features can average"):
        train(text_examples(60), TrainSettings(epochs=1, mean_of="zlpr,bce"))


@pytest.mark.parametrize("as_sparse", [False, True])
def test_a_mean_without_a_tuned_rule_has_no_weight_of_positives(as_sparse):
    settings = TrainSettings(model="linear", mean_of="zlpr,bce", tune="none", epochs=2, threads=1)
    model = train(feature_examples(as_sparse=as_sparse), settings)
    assert model.settings.pos_weight is None
    assert model.rule.threshold == 0.0
