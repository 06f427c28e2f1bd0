"""Strategies by name: an entry poses other labels to the body, its reader gives scores of the labels."""

import pytest
import torch
from torch import nn

from manyhot import SparseLabels, TrainSettings, load_model, train
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
