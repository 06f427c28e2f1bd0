"""Training: every body learns, the same seed gives the same model, partial labels and weights count."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhot.data.examples import Examples
from manyhot.evaluation import evaluate
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import feature_examples, image_examples, same_weights, text_examples

QUICK = TrainSettings(epochs=12, batch_size=32, hidden=32, learning_rate=0.02, threads=1)

BODIES = [
    pytest.param(text_examples, TrainSettings(threads=1, batch_size=16), "linear", id="linear-text"),
    pytest.param(text_examples, replace(QUICK, model="bag"), "bag", id="bag-text"),
    pytest.param(feature_examples, replace(QUICK, epochs=30), "mlp", id="mlp-dense"),
    pytest.param(feature_examples, replace(QUICK, model="linear", hidden=0, epochs=30), "linear", id="linear-dense"),
    pytest.param(
        lambda **k: feature_examples(as_sparse=True, **k), replace(QUICK, model="mlp", epochs=30), "mlp", id="mlp-sparse"
    ),
    pytest.param(image_examples, replace(QUICK, epochs=6), "conv", id="conv"),
]


@pytest.mark.parametrize(("make", "settings", "body"), BODIES)
def test_every_body_learns_what_can_be_learned(make, settings, body):
    model = train(make(seed=0), settings)
    assert model.shape["body"] == body
    test = make(seed=1)
    assert evaluate(model, test)["micro-F1"] > 0.85
    torch.testing.assert_close(model.logits(test, batch_size=7), model.logits(test), rtol=1e-4, atol=1e-4)
    assert model.predict(test).lists() == [row for part in (test[:50], test[50:]) for row in model.predict(part).lists()]


@pytest.mark.parametrize(("make", "settings", "body"), BODIES[:3])
def test_the_same_seed_gives_the_same_model_and_leaves_torch_s_generator_alone(make, settings, body):
    before = torch.get_rng_state()
    short = replace(settings, epochs=2)
    one = train(make(), short)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    assert same_weights(one, train(make(), short))
    assert not same_weights(one, train(make(), replace(short, seed=1)))


@pytest.mark.parametrize(
    "changed",
    [
        {"loss": "bce"},
        {"loss": "asymmetric", "pos_weight": None},
        {"learn_threshold": True},
        {"smoothing": 0.05},
        {"rdrop": 0.5},
        {"mixup": 0.2},
        {"loss": "pairwise", "tune": "micro-F1"},
        {"schedule": "cosine", "learning_rate": None},
        {"calibrate": "platt"},
    ],
    ids=str,
)
def test_every_setting_of_the_loss_trains(changed):
    model = train(feature_examples(), replace(QUICK, epochs=20, **changed))
    assert evaluate(model, feature_examples(seed=1))["micro-F1"] > 0.7


def learned_threshold(settings, **more):
    """The model, and the threshold that training tells of."""
    told = []
    settings = replace(settings, members=1)
    model = train(feature_examples(), settings, progress=lambda event: told.append(event.message), **more)
    (line,) = [line for line in told if "learned threshold" in line]
    return model, float(line.partition("learned threshold is ")[2].split(";")[0])


@pytest.mark.parametrize("change", [{"learn_threshold": True}, {"loss": "tlpr"}], ids=str)
def test_decisions_and_probabilities_are_measured_from_the_learned_threshold(change):
    model, threshold = learned_threshold(replace(QUICK, tune="none", **change))
    assert threshold != 0
    assert model.rule.threshold == 0
    examples = feature_examples(seed=1)
    likely = model.probabilities(examples) > 0.5
    assert torch.equal(likely, model.predict(examples).dense())
    assert not same_weights(model, train(feature_examples(), replace(QUICK, tune="none", pos_weight=1.0)))


def test_the_loss_tlpr_learns_the_threshold_as_learn_threshold_does():
    same = replace(QUICK, epochs=4, pos_weight=1.0)
    tlpr = train(feature_examples(), replace(same, loss="tlpr"))
    assert same_weights(tlpr, train(feature_examples(), replace(same, learn_threshold=True)))
    assert not same_weights(tlpr, train(feature_examples(), same))


def test_unknown_labels_are_left_out():
    examples = feature_examples()
    wrong = examples.labels.dense().clone()
    unknown = torch.zeros_like(wrong)
    unknown[::3] = True
    wrong[::3] = ~wrong[::3]
    spoiled = replace(examples, labels=SparseLabels.from_dense(wrong), unknown=SparseLabels.from_dense(unknown))
    known = torch.zeros_like(wrong)
    known[::3] = False
    settings = replace(QUICK, epochs=20, tune="none")
    test = feature_examples(seed=1)
    with_gaps, misled = train(spoiled, settings), train(replace(spoiled, unknown=None), settings)
    assert evaluate(with_gaps, test)["micro-F1"] > evaluate(misled, test)["micro-F1"] + 0.1


def test_rows_of_weight_zero_do_not_count():
    examples = text_examples()
    wrong = examples.labels.dense().clone()
    wrong[150:] = ~wrong[150:]
    weight = torch.ones(len(examples))
    weight[150:] = 0
    spoiled = replace(examples, labels=SparseLabels.from_dense(wrong))
    settings = TrainSettings(tune="none", threads=1, batch_size=16, learning_rate=80.0, epochs=8)
    test = text_examples(seed=1)
    assert evaluate(train(spoiled, settings, sample_weight=weight), test)["micro-F1"] > 0.8
    assert evaluate(train(spoiled, settings), test)["micro-F1"] < 0.7


def test_validation_rows_may_have_other_labels_in_another_order():
    examples, other = text_examples(), text_examples(seed=1)
    shuffled = other.with_labels(["spoon", *reversed(other.label_names)])
    model = train(examples, TrainSettings(threads=1), validation=shuffled)
    assert model.label_names == examples.label_names
    assert evaluate(model, shuffled)["micro-F1"] > 0.85


def test_a_few_rows_are_enough_to_end_in_a_model():
    examples = text_examples(2)
    assert len(train(examples, TrainSettings(threads=1)).predict(examples)) == 2
    few = feature_examples(3)
    assert len(train(few, replace(QUICK, learning_rate=None)).predict(few)) == 3


def test_gaps_in_the_features_are_filled():
    examples = feature_examples()
    features = examples.features.copy()
    features[::5, 0] = np.nan
    model = train(replace(examples, features=features), QUICK)
    assert bool(model.logits(features).isfinite().all())


def test_progress_and_log_tell_the_same(tmp_path):
    events = []
    train(text_examples(), TrainSettings(loss="zlpr", threads=1), run=tmp_path / "run", progress=events.append)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == [event.kind for event in events]
    assert {"start", "epoch", "note", "rule", "end"} == {event.kind for event in events}
    epoch = next(event for event in events if event.kind == "epoch")
    assert epoch.line().startswith("epoch 1/10  loss ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "conv"}, "must be linear or .* for texts"),
        ({"rdrop": 0.3}, "`rdrop` must be left out: the body linear on sparse inputs has no dropout"),
        ({"model": "bag", "rdrop": 0.3}, "`rdrop` must be left out: two passes without dropout"),
        ({"hidden": 3}, "`hidden` must be left out"),
        ({"loss": "dice1", "pos_weight": 3.0}, "`pos_weight` must be left out"),
        ({"device": "cuda:7"}, "no GPU"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_named(change, words):
    if "device" in change and torch.cuda.is_available():
        pytest.skip("a GPU is there")
    with pytest.raises(ValueError, match=words):
        train(text_examples(50), TrainSettings(**change))


def test_no_rows_and_no_labels_are_errors():
    nothing = Examples(SparseLabels.from_lists([], num_labels=2), ("a", "b"), texts=[])
    with pytest.raises(ValueError, match="must have rows and labels"):
        train(nothing)
