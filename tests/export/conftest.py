"""Models of every body that can be exported, small."""

import pytest
import torch

from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.row_f1 import RowF1
from manyhot.decisions.rule import DecisionRule
from manyhot.decisions.set_values import SetValues
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import feature_examples, image_examples, text_examples
from training.rows.bodies.test_encoder import encoder  # noqa: F401 - a fixture

QUICK = {"epochs": 3, "threads": 1}
KNOTS = torch.tensor([-2.0, -0.5, 0.1, 3.0]).double()
LEVELS = torch.tensor([0.0, 0.2, 0.7, 1.0]).double()
MAKERS = {
    "linear": (text_examples, TrainSettings(model="linear", ngrams=2, char_ngrams=3, calibrate="platt", **QUICK)),
    "bag": (text_examples, TrainSettings(model="bag", hidden=8, calibrate="per-label", **QUICK)),
    "wide": (text_examples, TrainSettings(model="wide", loss="zlpr", hidden=8, **QUICK)),
    "linear-features": (feature_examples, TrainSettings(model="linear", **QUICK)),
    "sparse-features": (lambda: feature_examples(as_sparse=True), TrainSettings(model="linear", **QUICK)),
    "mlp": (feature_examples, TrainSettings(model="mlp", hidden=16, calibrate="isotonic", **QUICK)),
    "conv": (image_examples, TrainSettings(model="conv", hidden=16, **QUICK)),
}
RULES = {
    "thresholds": DecisionRule(threshold=(0.1, -0.2)),
    "at least one": DecisionRule(threshold=0.5, min_labels=1),
    "one or two": DecisionRule(threshold=-1.0, min_labels=1, max_labels=2),
    "at most one": DecisionRule(threshold=-1.0, max_labels=1),
    "two": DecisionRule(top_k=2),
    "never the first": DecisionRule(threshold=(float("inf"), 0.0)),
    "the softmax of a row": DecisionRule(threshold=-0.7, softmax=True),
    "a threshold for each row": DecisionRule(row_f1=RowF1(1.3, -0.2)),
    "a threshold for each row, moved for each label": DecisionRule(threshold=(0.2, -0.1), min_labels=1, row_f1=RowF1(0.8, 0.1)),
    "whole sets": DecisionRule(threshold=0.3, sets=SetValues(((0,), (0, 1)), (0.7, 0.2), -0.4)),
    "listed sets of one label": DecisionRule(
        threshold=(0.3, -0.1), max_labels=1, sets=SetValues(((0, 1), (1,)), (2.0, 0.2), -0.4)
    ),
}
LINKS = {
    "soft": "soft",
    "softmax": "softmax",
    "isotonic": Calibration("isotonic", knots=KNOTS, levels=LEVELS),
    "ranks": None,
}


@pytest.fixture(scope="session")
def trained():
    """``(model, examples)`` by name."""
    return {name: (train(make(), settings), make()) for name, (make, settings) in MAKERS.items()}


@pytest.fixture(scope="module")
def encoder_model(encoder):  # noqa: F811
    """A tiny fine-tuned encoder and its examples."""
    settings = TrainSettings(model="encoder", encoder=str(encoder), epochs=4, batch_size=16, learning_rate=3e-3, threads=1)
    return train(text_examples(), settings), text_examples(60, seed=3)
