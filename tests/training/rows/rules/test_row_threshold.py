"""A threshold for each row is one more class score; the trained body has it in its weights."""

from dataclasses import replace

import pytest
import torch

from manyhot.evaluation import evaluate
from manyhot.losses.zlpr import tlpr_loss, zlpr_loss
from manyhot.training.rows.bodies.registry import make_body
from manyhot.training.rows.bundle import load_model
from manyhot.training.rows.rules.row_threshold import RowThreshold
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import feature_examples, image_examples, same_weights, text_examples

QUICK = TrainSettings(epochs=12, batch_size=32, hidden=32, learning_rate=0.02, threads=1, row_threshold=True)
SHAPE = {"width": 5, "num_labels": 4, "hidden": 6, "dropout": 0.0, "sparse": False}


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_the_folded_body_gives_scores_measured_from_the_row_s_threshold(name):
    torch.manual_seed(0)
    body = make_body({**SHAPE, "body": name})
    for each in body.parameters():
        torch.nn.init.normal_(each)
    wrapped, batch = RowThreshold(body), torch.randn(7, 5)
    out, scores, labels = body(batch), wrapped(batch), torch.rand(7, 3) < 0.4
    torch.testing.assert_close(zlpr_loss(scores, labels), tlpr_loss(out[:, :3], labels, out[:, 3]))
    folded = wrapped.folded()
    torch.testing.assert_close(folded(batch), scores)
    assert {key: value.shape for key, value in folded.state_dict().items()} == {
        key: value.shape for key, value in make_body({**SHAPE, "body": name, "num_labels": 3}).state_dict().items()
    }


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (text_examples, TrainSettings(threads=1, batch_size=16, row_threshold=True)),
        (text_examples, replace(QUICK, model="bag")),
        (feature_examples, replace(QUICK, epochs=30)),
        (image_examples, replace(QUICK, epochs=6)),
    ],
)
def test_every_body_learns_a_threshold_for_each_row(make, settings, tmp_path):
    model = train(make(), settings)
    assert not same_weights(model, train(make(), replace(settings, row_threshold=False)))
    test = make(seed=1)
    assert evaluate(model, test)["micro-F1"] > 0.85
    model.save(tmp_path)
    torch.testing.assert_close(load_model(tmp_path).logits(test), model.logits(test))


def test_decisions_are_those_that_are_more_likely_than_not():
    model = train(feature_examples(), replace(QUICK, tune="none"))
    test = feature_examples(seed=1)
    assert torch.equal(model.predict(test).dense(), model.probabilities(test) > 0.5)


@pytest.mark.parametrize("refused", [{"loss": "bce"}, {"learn_threshold": True}, {"pos_weight": "auto"}], ids=str)
def test_it_goes_with_zlpr_and_no_other_threshold(refused):
    with pytest.raises(ValueError, match="TrainSettings: `"):
        TrainSettings(row_threshold=True, **refused)
