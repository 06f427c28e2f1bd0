"""Strategies by name: an entry poses other labels to the body, its reader gives scores of the labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from manyhot import DecisionRule, Examples, SparseLabels, TrainSettings, evaluate, load_model, train
from manyhot.training.rows.strategies import STRATEGIES, Posed, Strategy, get_strategy
from training.problems import feature_examples, same_weights, text_examples


class Flipped(nn.Module):
    """Scores of labels from those of their opposites."""

    def __init__(self, num_labels):
        super().__init__()
        self.register_buffer("sign", -torch.ones(num_labels))

    def forward(self, logits):
        return self.sign * logits


def opposites(labels):
    """The body is trained on the labels that a row does not have."""
    return Posed(SparseLabels.from_dense(~labels.dense(torch.bool)), Flipped(labels.num_labels))


TOY = Strategy("opposites", ("op",), "a toy strategy", opposites, make_reader=lambda shape: Flipped(shape["read_labels"]))


@pytest.mark.parametrize("make", [feature_examples, text_examples])
@pytest.mark.parametrize("model", ["auto", "bag"])
def test_one_entry_is_enough_for_a_strategy_with_a_reader(make, model, monkeypatch, tmp_path):
    if model == "bag" and make is feature_examples:
        pytest.skip("bags read texts")
    monkeypatch.setitem(STRATEGIES, TOY.name, TOY)
    examples = make(300)
    settings = TrainSettings(strategy="op", model=model, loss="bce", tune="none", epochs=10)
    trained = train(examples, settings, run=tmp_path / "run")
    loaded = load_model(tmp_path / "run")
    assert same_weights(loaded, trained)
    truth, found = examples.labels.dense(torch.bool), loaded.predict(examples).dense(torch.bool)
    assert (truth == found).float().mean() > 0.85


def test_a_strategy_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="`strategy` must be one of 'plain'"):
        TrainSettings(strategy="none")
    assert get_strategy("plain").name == "plain"


def set_examples(rows=600, seed=0):
    """Two labels come together or not at all, and a third alone: three sets, none of them of independent labels."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(rows, 4)).astype(np.float32)
    lists = [([0, 1], [2], [])[place] for place in features[:, :3].argmax(axis=1)]
    return Examples(SparseLabels.from_lists(lists, num_labels=3), tuple("abc"), features=features)


@pytest.mark.parametrize(
    ("word", "name", "loss"),
    [
        ("br", "binary-relevance", "bce"),
        ("lr", "label-ranking", "pairwise"),
        ("lp", "label-powerset", "softmax"),
        ("label powerset", "label-powerset", "softmax"),
    ],
)
def test_the_words_of_the_literature_are_understood(word, name, loss):
    settings = TrainSettings(strategy=word)
    assert (settings.strategy, settings.loss) == (name, loss)
    assert TrainSettings.from_dict(settings.to_dict()) == settings


def test_a_loss_of_another_strategy_is_refused():
    assert TrainSettings(strategy="br", loss="focal").loss == "focal"
    with pytest.raises(ValueError, match=r"`loss` must be bce, .* or auto for the strategy binary-relevance; got 'zlpr'"):
        TrainSettings(strategy="br", loss="zlpr")


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (set_examples, TrainSettings(strategy="lp", epochs=25, hidden=32, learning_rate=0.02)),
        (set_examples, TrainSettings(strategy="lp", model="linear", epochs=25, learning_rate=0.05)),
        (lambda rows=600, seed=0: text_examples(rows, seed=seed), TrainSettings(strategy="lp", epochs=10, batch_size=16)),
        (lambda rows=600, seed=0: text_examples(rows, seed=seed), TrainSettings(strategy="lp", model="bag", epochs=15)),
    ],
    ids=["mlp", "linear-dense", "linear-text", "bag"],
)
def test_label_powerset_predicts_the_most_probable_set(make, settings, tmp_path):
    examples, test = make(), make(seed=1)
    model = train(examples, settings)
    sets = {tuple(row) for row in examples.labels.lists()}
    predicted = model.predict(test)
    assert {tuple(row) for row in predicted.lists()} <= sets
    assert evaluate(model, test, ["SubACC"])["SubACC"] > 0.55
    assert (model.link, model.rule, model.settings.tune) == ("hard", DecisionRule(), "none")
    inner = model.body.body
    raw = torch.cat([inner(batch) for batch in _batches(model, test)])
    members = model.body.reader.members
    assert predicted.lists() == SparseLabels.from_dense(members[raw.argmax(dim=1)] > 0).lists()
    model.save(tmp_path)
    assert load_model(tmp_path).predict(test).lists() == predicted.lists()


def _batches(model, examples):
    from manyhot.training.rows.inputs.row_batches import take_rows

    rows = model.inputs.rows(examples)
    return [take_rows(rows, slice(0, len(examples)))]


def test_label_powerset_wants_hard_and_known_labels():
    examples = set_examples()
    soft = replace(examples, labels=SparseLabels.from_dense(0.9 * examples.labels.dense(torch.float32)))
    with pytest.raises(ValueError, match="must have hard labels"):
        train(soft, TrainSettings(strategy="lp"))
    unknown = SparseLabels.from_lists([[2]] + [[]] * 599, num_labels=3)
    with pytest.raises(ValueError, match="must have all labels known"):
        train(replace(examples, unknown=unknown), TrainSettings(strategy="lp"))
