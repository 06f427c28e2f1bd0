"""Explanations of trained models: parts add up, places are right, and taking an input away does what its part says."""

import numpy as np
import pytest
import torch

from manyhot.decisions.rule import DecisionRule
from manyhot.training.rows.inputs.places import feature_name, find_places
from manyhot.training.rows.inputs.row_batches import SparseRows
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import feature_examples, image_examples, text_examples
from training.rows.bodies.test_encoder import encoder  # noqa: F401 - a fixture

QUICK = {"epochs": 3, "threads": 1}
KINDS = {
    "linear": (text_examples, TrainSettings(model="linear", ngrams=2, char_ngrams=3, **QUICK)),
    "bag": (text_examples, TrainSettings(model="bag", hidden=8, **QUICK)),
    "linear-features": (feature_examples, TrainSettings(model="linear", **QUICK)),
    "mlp": (feature_examples, TrainSettings(model="mlp", hidden=16, **QUICK)),
    "sparse-mlp": (lambda: feature_examples(as_sparse=True), TrainSettings(model="mlp", hidden=80, **QUICK)),
    "conv": (image_examples, TrainSettings(model="conv", hidden=16, **QUICK)),
    "linear-sets": (text_examples, TrainSettings(model="linear", strategy="lp", **QUICK)),
    "mlp-sets": (feature_examples, TrainSettings(model="mlp", strategy="lp", hidden=16, **QUICK)),
    "mean-with-sets": (feature_examples, TrainSettings(model="mlp", mean_of="zlpr,powerset", hidden=16, **QUICK)),
}
EXACT = ("linear", "bag", "linear-features")


@pytest.fixture(scope="module")
def models():
    return {name: (train(make(), settings), make()[:6]) for name, (make, settings) in KINDS.items()}


@pytest.mark.parametrize("name", KINDS)
def test_base_contributions_rest_and_error_add_up_to_the_score(models, name):
    model, rows = models[name]
    logits = model.logits(rows)
    for found, own in zip(model.explain(rows, top=2, most=3), logits, strict=True):
        assert found.method == ("exact" if name in EXACT else "integrated gradients")
        for label in found.labels:
            total = label.base + sum(each.part for each in label.contributions) + label.rest + label.error
            assert total == pytest.approx(label.score, abs=1e-9)
            assert label.score == pytest.approx(float(own[model.label_names.index(label.label)]), abs=1e-4)
            if name in EXACT:
                assert abs(label.error) < 1e-9


@pytest.mark.parametrize("name", ["mlp", "sparse-mlp", "conv"])
def test_more_steps_leave_less_unexplained(models, name):
    model, rows = models[name]
    once, often = (
        sum(abs(label.error) for found in model.explain(rows, steps=steps) for label in found.labels) for steps in (1, 64)
    )
    assert often < once or once < 1e-3


@pytest.mark.parametrize("name", ["linear", "bag"])
def test_taking_a_feature_away_lowers_the_score_by_its_part(models, name):
    model, rows = models[name]
    prepared = model.inputs.rows(rows)
    for place, found in enumerate(model.explain(rows, top=1, most=5)):
        row = prepared[place]
        for label in found.labels:
            number = model.label_names.index(label.label)
            for each in label.contributions:
                kept = [i for i, column in enumerate(row.indices) if feature_name(model.inputs, int(column)) != each.feature]
                assert len(kept) == len(row.indices) - 1
                parts = (row.indices[kept].astype(np.int64), np.array([0, len(kept)]), row.data[kept])
                with torch.inference_mode():
                    after = float(model.body(SparseRows(*(torch.from_numpy(part) for part in parts)))[0, number])
                assert label.score - after == pytest.approx(each.part, abs=1e-5)


def test_every_feature_of_a_text_has_a_place_and_no_other():
    settings = TrainSettings(model="linear", ngrams=3, char_ngrams=4, min_count=1, **QUICK)
    examples = text_examples(60)
    model = train(examples, settings)
    odd = ["  Bread\tand\u00a0SALT, bread  salt! ", "\u0130noise1 knife\u0130 oven", "", "   ", "noise1"]
    for text in [*odd, *examples.texts[:20]]:
        row = model.inputs.rows([text])
        found = find_places(model.inputs, text)
        assert {feature for feature, _, _ in found.places} == set(row.indices.tolist())
        for feature, start, end in found.places:
            name, there = feature_name(model.inputs, feature), text[start:end].lower()
            if name.endswith("*"):
                assert there == name[:-1]
            elif name.startswith("\u2018"):
                assert " ".join(there.split()) == name[1:-1].replace("\u2423", " ").strip() or "\u0130" in text
            else:
                assert there.split() == name.split() or not name.replace(" ", "").isalnum()


def test_words_of_a_text_carry_the_whole_of_the_parts():
    model = train(text_examples(100), TrainSettings(model="linear", ngrams=2, **QUICK))
    text = "Salt salt, and BREAD from the oven"
    label = model.explain([text], labels=["salt"], most=100)[0].labels[0]
    words = {text[start:end]: part for start, end, part in label.words}
    assert words["Salt"] > 0
    assert sum(words.values()) == pytest.approx(label.score - label.base, abs=1e-6)
    spans = next(each.spans for each in label.contributions if each.feature == "salt")
    assert spans == ((0, 4), (5, 9))


def test_labels_asked_for_come_and_unknown_ones_are_named():
    model = train(text_examples(100), TrainSettings(model="linear", **QUICK))
    found = model.explain(["salt"], labels=["oven", "salt"])[0]
    assert [label.label for label in found.labels] == ["oven", "salt"]
    with pytest.raises(ValueError, match=r"got 'sallt'\. Did you mean 'salt'\?"):
        model.explain(["salt"], labels=["sallt"])
    with pytest.raises(TypeError, match="list of label names"):
        model.explain(["salt"], labels="salt")


def test_predicted_labels_come_first_and_the_best_others_fill_up():
    model = train(text_examples(300), TrainSettings(model="linear", **QUICK))
    found = model.explain(["salt bread"], top=4)[0]
    assert len(found.labels) == 4
    assert {label.label for label in found.labels if label.predicted} == {"salt", "bread"}
    scores = [label.score for label in found.labels]
    assert scores == sorted(scores, reverse=True)
    model.rule = DecisionRule(top_k=3)
    assert all(label.threshold is None for label in model.explain(["salt bread"], top=1)[0].labels)


@pytest.mark.parametrize("name", ["linear", "bag"])
def test_the_words_of_a_label_are_its_words(models, name):
    model, _ = models[name]
    for each in model.label_words(most=4):
        assert each.label in [feature.strip("*\u2018\u2019\u2423") for feature, _ in each.speak_for]
        assert all(weight > 0 for _, weight in each.speak_for)
        assert all(weight < 0 for _, weight in each.speak_against)


def test_a_bent_body_has_no_words_of_its_own(models):
    with pytest.raises(ValueError, match=r"linear in its inputs.*Use `explain` on rows"):
        models["mlp"][0].label_words()


def test_an_encoder_is_explained_by_its_tokens(encoder):  # noqa: F811
    settings = TrainSettings(model="encoder", encoder=str(encoder), epochs=6, batch_size=16, learning_rate=3e-3, threads=1)
    model = train(text_examples(), settings)
    text = "noise1 bread noise2"
    found = model.explain([text], labels=["bread"], steps=16)[0]
    (label,) = found.labels
    assert found.method == "integrated gradients"
    assert label.predicted
    best = max(label.words, key=lambda word: word[2])
    assert text[best[0] : best[1]] == "bread"
    assert label.score == pytest.approx(float(model.logits([text])[0, 1]), abs=1e-5)


def test_an_encoder_with_label_powerset_is_explained_too(encoder):  # noqa: F811
    settings = TrainSettings(model="encoder", encoder=str(encoder), strategy="lp", epochs=1, batch_size=16, threads=1)
    model = train(text_examples(100), settings)
    (label,) = model.explain(["noise1 bread noise2"], labels=["bread"], steps=2)[0].labels
    assert len(label.words) == 3
