"""A metric steers training: every metric changes what it says it does, and the model says why it is what it is."""

from dataclasses import replace

import pytest
import torch

from manyhot import METRICS, Examples, SparseLabels, TrainSettings, decide, evaluate, load_model, train
from manyhot.metrics.info import CERTAINTY
from manyhot.training.rows.steering import STEERINGS, TUNINGS, steering_of, stopped_by, tuned_for
from training.problems import feature_examples, same_weights, text_examples

NAMES = [name.replace("@k", "@2") for name in METRICS]
QUICK = TrainSettings(epochs=6, batch_size=32, hidden=16, learning_rate=0.02, members=2, threads=1)


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_has_an_entry_that_names_a_rule_there_is(name):
    entry = steering_of(name)
    assert entry.aim
    assert tuned_for(name) in TUNINGS
    assert stopped_by(name) in NAMES
    assert entry.rule_why
    assert (entry.calibrate != "none") == (entry.aim == CERTAINTY)


def test_every_entry_is_the_aim_of_some_metric():
    assert {info.aim for info in METRICS.values()} == set(STEERINGS) - {""}


@pytest.mark.parametrize("name", ["SubACC", "MLC-F1", "micro-F1", "macro-F1", "jaccard", "hamming-error", "AvgPrec", "Brier"])
def test_training_stops_by_the_metric_that_was_asked_for_or_a_smooth_one(name):
    seen = []
    train(feature_examples(), replace(QUICK, metric=name), progress=lambda event: seen.append(event))
    assert {event.metric for event in seen if event.kind == "epoch"} == {"Brier" if name == "Brier" else "AvgPrec"}
    assert any(name in event.message for event in seen if event.kind == "note")


@pytest.mark.parametrize(
    ("name", "tuned"),
    [
        ("SubACC", "sets"),
        ("MLC-F1", "MLC-F1"),
        ("macro-F1-present", "macro-F1"),
        ("P@2", "balanced"),
        ("micro-recall", "balanced"),
    ],
)
def test_the_rule_is_tuned_for_the_metric(name, tuned):
    model = train(feature_examples(), replace(QUICK, metric=name))
    assert model.settings.tune == tuned
    assert model.about["why"]["metric"].startswith(name)
    assert STEERINGS[METRICS[name.replace("@2", "@k")].aim].rule_why in model.about["why"]["rule"]


def test_a_metric_of_probabilities_gets_them_calibrated_and_settings_go_before_it():
    assert train(feature_examples(), replace(QUICK, metric="Brier")).calibration.kind == "platt"
    assert train(feature_examples(), replace(QUICK, metric="Brier", calibrate="none")).calibration is None


def test_propensities_weigh_positives_for_the_metric_that_is_about_them():
    plain, rare = (train(feature_examples(), replace(QUICK, metric=name)) for name in ("P@2", "PSP@2"))
    assert rare.settings.propensity_weights
    assert not same_weights(plain, rare)


def test_settings_go_before_the_metric():
    model = train(feature_examples(), replace(QUICK, metric="SubACC", tune="macro-F1", loss="bce"))
    assert (model.settings.tune, model.settings.loss) == ("macro-F1", "bce")
    assert model.about["why"]["rule"] == "tuned for macro-F1: as the settings say"


def ambiguous_examples(seed, rows=300):
    """Texts whose word leaves open which of two label sets a row has: no threshold takes one of them, a rule for sets does."""
    draw = torch.Generator().manual_seed(seed)
    lists, texts = [], []
    for place in torch.randint(0, 6, (rows,), generator=draw).tolist():
        word, own = divmod(place, 2)
        lists.append([3 * word, 3 * word + 1] if own else [3 * word + 2])
        texts.append(f"word{word} noise{int(torch.randint(0, 5, (1,), generator=draw))}")
    return Examples(SparseLabels.from_lists(lists, num_labels=9), tuple("abcdefghi"), texts=texts)


def test_asking_for_whole_sets_gets_more_of_them_right_and_the_rule_is_saved_with_the_model(tmp_path):
    rows, test = ambiguous_examples(0), ambiguous_examples(1)
    plain, sets = (train(rows, TrainSettings(metric=name, threads=1)) for name in ("auto", "SubACC"))
    assert evaluate(sets, test)["SubACC"] > evaluate(plain, test)["SubACC"] + 0.2
    sets.save(tmp_path)
    again = load_model(tmp_path)
    assert again.rule == sets.rule
    assert again.rule.sets is not None
    assert again.predict(test).lists() == sets.predict(test).lists()
    assert torch.equal(decide(again.logits(test), again.rule), sets.predict(test).dense(torch.bool))


def test_a_body_that_never_stops_early_says_so_and_takes_the_metric():
    model = train(text_examples(), TrainSettings(model="bag", hidden=8, epochs=2, metric="P@2", threads=1))
    assert model.about["why"]["stopping"] == "all epochs are trained, without early stopping"


def test_without_rows_to_judge_by_a_metric_is_refused():
    with pytest.raises(ValueError, match="`metric` must be left out: no rows are held out"):
        train(feature_examples(), replace(QUICK, metric="SubACC", validation=0.0, tune="none"))


def test_on_texts_a_metric_of_the_first_labels_gets_a_margin_with_probabilities_fitted_to_it():
    settings = TrainSettings(metric="P@2", threads=1)
    model = train(text_examples(), settings)
    assert (model.settings.loss, model.calibration.kind, model.settings.pos_weight) == ("squared_hinge", "platt", None)
    assert "margin" in model.about["why"]["loss"]
    assert settings.loss == "auto"
    assert train(text_examples(), replace(settings, loss="zlpr")).settings.loss == "zlpr"
    assert train(text_examples(), replace(settings, metric="RankLoss")).settings.loss == "zlpr"
    assert train(text_examples(), replace(settings, metric="Brier")).settings.loss == "zlpr"


@pytest.mark.parametrize(
    ("metric", "loss"),
    [
        *((name, "squared_hinge") for name in ("micro-F1", "MLC-F1", "AvgPrec", "P@2")),
        ("macro-F1", "bce"),
        *((name, "zlpr") for name in ("auto", "SubACC", "RankLoss", "Brier")),
    ],
)
def test_on_sparse_features_some_metrics_get_a_loss_of_their_own(metric, loss):
    model = train(feature_examples(as_sparse=True), TrainSettings(model="linear", metric=metric, threads=1))
    assert model.settings.loss == loss
    averaged = {"MLC-F1": "squared_hinge,bce", "RankLoss": "zlpr,bce"}.get(metric, "none")
    assert model.settings.mean_of == averaged
    assert ("margin" in model.about["why"]["loss"]) == (loss == "squared_hinge" and averaged == "none")
    assert evaluate(model, feature_examples(seed=1, as_sparse=True), ["AvgPrec"])["AvgPrec"] > 0.9
