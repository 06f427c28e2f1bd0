"""Bodies by name: one entry is enough for a new body, from the settings to a saved model."""

import pytest
import torch
from torch import nn

from manyhot import TrainSettings, load_model, train
from manyhot.training.rows.bodies.registry import BODIES, CROSSED, BodyInfo, bodies_for, get_body
from training.problems import feature_examples, same_weights, text_examples


class CosineBody(nn.Module):
    """A toy body: cosines of random directions, a head."""

    def __init__(self, shape):
        super().__init__()
        self.register_buffer("directions", torch.randn(shape["width"], shape["hidden"]))
        self.head = nn.Linear(shape["hidden"], shape["num_labels"])

    def forward(self, batch):
        return self.head((batch @ self.directions).cos())


COSINE = BodyInfo("cosine", "a toy body", reads=("features",), build=CosineBody, dropout=None)


def test_one_entry_is_enough_for_a_body_that_is_trained_saved_and_loaded(monkeypatch, tmp_path):
    monkeypatch.setitem(BODIES, COSINE.name, COSINE)
    examples = feature_examples(120)
    model = train(examples, TrainSettings(model="cosine", epochs=4, learning_rate=0.05), run=tmp_path / "run")
    again = load_model(tmp_path / "run")
    assert same_weights(again, model)
    assert again.describe()["body"] == "cosine"
    assert torch.equal(again.logits(examples), model.logits(examples))
    with pytest.raises(ValueError, match="`model` must be linear or wide or bag or tree or encoder for texts; got 'cosine'"):
        train(text_examples(40), TrainSettings(model="cosine"))


def test_a_name_without_an_entry_is_refused_with_the_nearest_one():
    with pytest.raises(ValueError, match=r"`model` must be one of .*Did you mean 'linear'"):
        TrainSettings(model="linar")


def test_every_kind_of_examples_has_a_body_that_auto_takes():
    for kind in ("texts", "features", "images"):
        for sparse in (True, False):
            assert [
                entry for entry in bodies_for(kind) if entry.fits(sparse=sparse, width=10**6, num_labels=10**6, device="cpu")
            ]


def test_a_linear_body_is_cross_fitted_on_sparse_inputs_alone():
    linear = get_body("linear")
    assert linear.fitting_on(sparse=True) == CROSSED
    assert linear.fitting_on(sparse=False) != CROSSED
    assert linear.num_epochs(100_000, sparse=True) < linear.num_epochs(100_000, sparse=False)
