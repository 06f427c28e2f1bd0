"""A budget of time: candidates are trained whole, compared on rows they did not see, and the best one is the model."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from manyhot import DecisionRule, load_model
from manyhot.data.examples import Examples
from manyhot.decisions.calibrate import fit_calibration
from manyhot.decisions.rule import decide
from manyhot.decisions.tune import tune_rule
from manyhot.labels.sparse import SparseLabels
from manyhot.labels.split import stratified_folds
from manyhot.metrics.catalog import METRICS
from manyhot.metrics.running import Metrics
from manyhot.training.rows.budget import racing
from manyhot.training.rows.budget.candidates import CANDIDATES, candidates_for, tried_anyway
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import feature_examples, same_weights, text_examples, title_examples

USUAL = TrainSettings(budget="1h", epochs=4, members=2, hidden=8, threads=1)


def test_the_best_candidate_is_the_model_and_the_report_knows_why():
    told = []
    model = train(feature_examples(), USUAL, progress=lambda event: told.append(event.line()))
    tried = model.about["candidates"]
    names = [each.name for each in candidates_for(TrainSettings(), feature_examples())]
    assert [each["name"] for each in tried] == [*names, "mean"]
    best = max(tried, key=lambda each: each["value"])
    if best["value"] <= tried[-1]["value"] + 0.01:
        best = tried[-1]
    assert model.about["why"]["candidate"].startswith(best["name"])
    assert ", by mean of micro-F1 and macro-F1 on held-out rows: usual 0." in model.about["why"]["candidate"]
    assert any(line.startswith("candidate bce: mean of micro-F1") for line in told)


def test_a_planted_loss_wins(monkeypatch):
    """The choice goes by the value: whichever candidate is given the best one wins."""
    monkeypatch.setattr(racing, "value_of", lambda model, *_: float(model.settings.loss == "bce"))
    chosen = train(feature_examples(), USUAL)
    alone = train(feature_examples(), TrainSettings(**{**USUAL.to_dict(), "loss": "bce", "budget": ""}))
    assert same_weights(chosen, alone)
    assert chosen.rule == alone.rule


def test_of_a_metric_that_falls_the_least_wins(monkeypatch):
    monkeypatch.setattr(racing, "value_of", lambda model, *_: 0.5 - 0.2 * (model.settings.loss == "bce"))
    told = train(feature_examples(), replace(USUAL, metric="RankLoss"))
    assert told.settings.loss == "bce"
    assert "bce is best, by RankLoss on held-out rows: usual 0.5000, bce 0.3000" in told.about["why"]["candidate"]


@pytest.mark.parametrize("changes", [{"metric": "RankLoss"}, {"mean_of": "zlpr,bce"}])
def test_the_given_settings_are_fitted_as_they_are_without_a_budget(changes):
    given = TrainSettings(epochs=4, hidden=8, threads=1, **changes)
    alone, usual = train(feature_examples(), given), train(feature_examples(), replace(given, budget="0.001s"))
    assert [each["name"] for each in usual.about["candidates"]] == ["usual"]
    assert usual.settings.mean_of == alone.settings.mean_of != "none"
    assert same_weights(usual, alone)


def test_losses_that_are_named_are_those_of_every_candidate():
    given = TrainSettings(mean_of="zlpr,bce")
    names = [each.name for each in candidates_for(given, feature_examples())]
    assert names == ["usual", "small-steps"]
    small = CANDIDATES["small-steps"].settings(given, 0.3, "zlpr,bce")
    assert (small.mean_of, round(small.learning_rate, 3)) == ("zlpr,bce", 0.1)
    # Another loss is fitted alone, where a metric implies several.
    assert CANDIDATES["bce-small-steps"].settings(TrainSettings(metric="RankLoss"), 0.3, "zlpr,bce,powerset").mean_of == "none"


def test_a_candidate_must_be_better_than_the_mean_by_a_point(monkeypatch):
    monkeypatch.setattr(racing, "candidates_for", lambda *_: (CANDIDATES["usual"], CANDIDATES["bce"]))
    for best, winner in ((0.509, "mean is at most a point behind"), (0.511, "bce is best")):
        values = iter((0.4, best, 0.5))
        monkeypatch.setattr(racing, "value_of", lambda *_, values=values: next(values))
        assert train(feature_examples(), USUAL).about["why"]["candidate"].startswith(winner)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_the_mean_has_the_mean_of_the_calibrated_scores_and_is_saved(model, tmp_path, monkeypatch):
    rows, held = feature_examples(), {}
    for name, changes in (("usual", {}), ("bce", {"loss": "bce"})):
        settings = TrainSettings(
            **{**USUAL.to_dict(), "model": model, "hidden": 8 if model == "mlp" else 0, **changes, "budget": ""}
        )
        trained = train(rows, settings, held_out=lambda _, tuning, name=name: held.update({name: tuning}))
        calibration = fit_calibration(held[name].logits, held[name].labels, kind="platt")
        held[name] = calibration(trained.logits(rows).double()).logit()
    monkeypatch.setattr(racing, "candidates_for", lambda *_: (CANDIDATES["usual"], CANDIDATES["bce"]))
    given = TrainSettings(**{**settings.to_dict(), "loss": "auto", "budget": "1h"})
    values = iter((0.0, 0.0, 1.0))
    monkeypatch.setattr(racing, "value_of", lambda *_: next(values))
    mean = train(rows, given, run=tmp_path / "run")
    assert mean.about["candidates"][-1]["changes"] == "the mean of usual, bce"
    wanted = (held["usual"] + held["bce"]) / 2
    torch.testing.assert_close(mean.logits(rows).double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(load_model(tmp_path / "run").logits(rows), mean.logits(rows))


def test_what_is_given_is_not_tried_otherwise():
    names = [each.name for each in candidates_for(TrainSettings(loss="focal", learning_rate=0.1), feature_examples())]
    assert names == ["usual"]
    assert "powerset" in [each.name for each in candidates_for(TrainSettings(metric="SubACC"), feature_examples())]
    assert "small-steps" not in [each.name for each in candidates_for(TrainSettings(), text_examples())]
    assert [each.name for each in candidates_for(TrainSettings(metric="Brier"), feature_examples())] == ["usual", "small-steps"]


def test_a_small_budget_trains_the_usual_settings_alone():
    model = train(feature_examples(), TrainSettings(**{**USUAL.to_dict(), "budget": "0.001s"}))
    assert [each["name"] for each in model.about["candidates"]] == ["usual"]


def test_a_candidate_that_is_refused_is_named_and_the_others_go_on(monkeypatch):
    bad = CANDIDATES["bce"].__class__("bad", {"hidden": 3, "rdrop": 1.0, "dropout": 0.0})
    monkeypatch.setitem(CANDIDATES, "bad", bad)
    settings = TrainSettings(**{**USUAL.to_dict(), "hidden": 0, "epochs": 1})
    model = train(feature_examples(), settings)
    (refused,) = [each for each in model.about["candidates"] if each["name"] == "bad"]
    assert "rdrop" in refused["refused"]


def test_a_race_that_was_killed_goes_on_with_the_candidate_it_was_at(tmp_path, monkeypatch):
    class KilledError(BaseException):
        pass

    rows, whole = feature_examples(), train(feature_examples(), USUAL, run=tmp_path / "whole")
    count = len(whole.about["candidates"])
    for place in range(count):
        values = iter(range(2))

        def die(*given, values=values, value_of=racing.value_of):
            if next(values):
                raise KilledError
            return value_of(*given)

        with monkeypatch.context() as patch:
            patch.setattr(racing, "value_of", die)
            with pytest.raises(KilledError) if place < count - 1 else pytest.MonkeyPatch.context():
                train(rows, USUAL, run=tmp_path / "broken", resume=place > 0)
        record = json.loads((tmp_path / "broken" / "race.json").read_text())
        assert len(record) == place + 1
    broken = train(rows, USUAL, run=tmp_path / "broken", resume=True)
    assert same_weights(broken, whole)
    assert [each["value"] for each in broken.about["candidates"]] == [each["value"] for each in whole.about["candidates"]]


def test_a_finished_race_gives_its_model_and_its_held_out_scores_again(tmp_path):
    scores = []
    settings = TrainSettings(**{**USUAL.to_dict(), "epochs": 2})
    rows = feature_examples()
    first = train(rows, settings, run=tmp_path / "run", held_out=lambda _, tuning: scores.append(tuning.logits))
    again = train(rows, settings, run=tmp_path / "run", resume=True, held_out=lambda _, tuning: scores.append(tuning.logits))
    assert same_weights(first, again)
    assert same_weights(load_model(tmp_path / "run"), first)
    assert torch.equal(*scores)


def test_rows_are_judged_by_rules_tuned_without_them():
    held = []
    model = train(
        feature_examples(), TrainSettings(metric="micro-F1", per_label=False, epochs=4, hidden=8),
        held_out=lambda _, tuning: held.append(tuning),
    )  # fmt: skip
    (tuning,) = held
    decided = torch.zeros_like(tuning.logits)
    for fold in stratified_folds(tuning.labels, num_folds=5, seed=0):
        kept = torch.ones(len(tuning.labels), dtype=torch.bool)
        kept[fold] = False
        rule = tune_rule(tuning.logits[kept], tuning.labels[kept], baseline=DecisionRule()).recommended
        decided[fold] = 2.0 * decide(tuning.logits[fold], rule) - 1
    wanted = Metrics(["micro-F1"], num_labels=4)
    wanted.update(decided, tuning.labels)
    assert racing.value_of(model, tuning, feature_examples().labels) == pytest.approx(float(wanted.compute()["micro-F1"]))


@pytest.mark.parametrize("name", [name.replace("@k", "@2") for name in METRICS])
def test_every_metric_can_choose(name):
    held = []
    rows = feature_examples(120)
    model = train(rows, TrainSettings(metric=name, epochs=2, hidden=8), held_out=lambda _, tuning: held.append(tuning))
    value = racing.value_of(model, held[0], rows.labels)
    assert 0 <= value <= (4 if name == "coverage-error" else 1)


@pytest.mark.parametrize("text", ["x", "0", "-3s", "1e400", "nan", "5 d"])
def test_a_budget_is_a_time(text):
    with pytest.raises(ValueError, match="`budget` must be a time > 0 such as 60s, 5m or 1h"):
        TrainSettings(budget=text)


def test_candidates_that_cannot_be_compared_are_refused_and_leave_no_folder(tmp_path):
    for model in ("wide", "tree"):
        with pytest.raises(ValueError, match=f"`budget` must be left out for the model {model}"):
            train(title_examples(), TrainSettings(model=model, budget="9s", epochs=1), run=tmp_path / model)
    with pytest.raises(ValueError, match="`budget` must have held-out rows"):
        train(feature_examples(), TrainSettings(validation=0.0, budget="9s", epochs=1), run=tmp_path / "all")
    assert not list(tmp_path.iterdir())


SETS = TrainSettings(metric="SubACC", model="linear", epochs=2, threads=1)


def rows_of_different_sets():
    """Sparse features and labels; no two rows have the same set."""
    draw = np.random.default_rng(0)
    labels = SparseLabels.from_dense(torch.from_numpy((np.arange(1, 101)[:, None] >> np.arange(7)) % 2 == 1))
    features = sparse.csr_matrix(draw.normal(size=(100, 8)).astype(np.float32))
    return Examples(labels, tuple("abcdefg"), features=features)


@pytest.mark.parametrize("better", ["usual", "powerset"])
def test_for_whole_sets_an_mlp_tries_label_powerset_where_it_cannot_average_it(better, monkeypatch):
    monkeypatch.setattr(
        racing, "value_of", lambda model, *_: float((model.settings.strategy == "plain") == (better == "usual"))
    )
    given = TrainSettings(metric="SubACC", model="mlp", epochs=2, hidden=8, threads=1)
    chosen = train(rows_of_different_sets(), given)
    assert [each["name"] for each in chosen.about["candidates"]] == ["usual", "powerset"]
    assert chosen.settings.mean_of == ("zlpr,bce" if better == "usual" else "none")
    assert chosen.settings.strategy == ("plain" if better == "usual" else "label-powerset")
    assert not tried_anyway(given, feature_examples(as_sparse=True), validated=False)
    assert not tried_anyway(TrainSettings(metric="micro-F1", model="mlp"), rows_of_different_sets(), validated=False)


@pytest.mark.parametrize("better", ["usual", "powerset"])
def test_for_whole_sets_a_linear_body_on_sparse_features_tries_label_powerset_without_a_budget(better, monkeypatch):
    rows = feature_examples(as_sparse=True)
    monkeypatch.setattr(
        racing, "value_of", lambda model, *_: float((model.settings.strategy == "plain") == (better == "usual"))
    )
    chosen = train(rows, SETS)
    assert [each["name"] for each in chosen.about["candidates"]] == ["usual", "powerset"]
    assert chosen.about["why"]["candidate"].startswith(f"{better} is best, by SubACC on held-out rows")
    assert (chosen.settings.strategy == "plain") == (better == "usual")


def test_the_candidates_of_a_metric_resume_and_are_saved(tmp_path):
    rows = feature_examples(as_sparse=True)
    model = train(rows, SETS, run=tmp_path / "run")
    assert {path.name for path in (tmp_path / "run" / "candidates").iterdir()} == {"usual", "powerset"}
    (tmp_path / "run" / "model" / "model.json").unlink()
    again = train(rows, SETS, run=tmp_path / "run", resume=True)
    assert same_weights(model, again)
    assert load_model(tmp_path / "run").predict(rows).lists() == model.predict(rows).lists()


@pytest.mark.parametrize(
    "change",
    [
        *({"metric": "auto"}, {"metric": "micro-F1"}, {"loss": "bce"}, {"tune": "SubACC"}, {"strategy": "powerset"}),
        *({"model": "mlp"}, {"smoothing": 0.1}, {"mean_of": "zlpr,bce"}),
    ],
    ids=str,
)
def test_other_settings_are_trained_as_they_are(change):
    given = TrainSettings(**{**SETS.to_dict(), **change})
    assert tried_anyway(given, feature_examples(as_sparse=True), validated=False) == ()


def test_other_rows_are_trained_as_they_are():
    assert tried_anyway(SETS, feature_examples(as_sparse=True), validated=False) == ("usual", "powerset")
    assert tried_anyway(TrainSettings(metric="SubACC"), feature_examples(as_sparse=True), validated=False)
    assert not tried_anyway(SETS, feature_examples(), validated=False)
    assert not tried_anyway(SETS, text_examples(), validated=False)
    few = feature_examples(20, as_sparse=True)
    assert not tried_anyway(SETS, few, validated=False)
    assert tried_anyway(SETS, few, validated=True)
