"""Bodies by name: one entry is enough for a new body, from the settings to a saved model."""

import pytest
import torch
from torch import nn

from manyhot import TrainSettings, load_model, train
from manyhot.training.rows.bodies.info import CROSSED, BodyInfo
from manyhot.training.rows.bodies.registry import BODIES, bodies_for, get_body
from training.problems import feature_examples, image_examples, same_weights, text_examples, title_examples


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
    readers = " or ".join(entry.name for entry in bodies_for("texts"))
    with pytest.raises(ValueError, match=f"`model` must be {readers} for texts; got 'cosine'"):
        train(text_examples(40), TrainSettings(model="cosine"))


# Entries with inputs of their own, such as the tokens of an encoder that must be there first, have tests of their own.
TRAINED = [(entry, kind) for entry in BODIES.values() if entry.trains and not entry.inputs for kind in entry.reads]
MAKERS = {"texts": title_examples, "features": feature_examples, "images": image_examples}


@pytest.mark.parametrize(("entry", "kind"), TRAINED, ids=lambda each: getattr(each, "name", each))
def test_every_body_is_trained_saved_and_loaded_on_every_kind_it_reads(entry, kind, tmp_path):
    examples = title_examples(as_sparse=True) if entry.least_labels > 5 and kind == "features" else MAKERS[kind]()
    width = {"hidden": 8} if entry.hidden else {}
    model = train(examples, TrainSettings(model=entry.name, epochs=2, threads=1, **width), run=tmp_path / "run")
    assert model.describe()["body"] == entry.name
    assert model.logits(examples[:5]).shape == (5, examples.num_labels)
    again = load_model(tmp_path / "run")
    assert same_weights(again, model)
    assert again.predict(examples[:5]).lists() == model.predict(examples[:5]).lists()


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
