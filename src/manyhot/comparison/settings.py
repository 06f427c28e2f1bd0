"""The settings of a comparison: one budget for every method."""

from __future__ import annotations

from dataclasses import dataclass

from manyhot._checks import check_at_least, check_choice, check_unit
from manyhot.training.run.settings import Settings, check_whole, setting

DEVICES = ("auto", "cpu", "cuda")
COMPARED_MODELS = ("linear", "mlp")
# Integer settings with their minimum and maximum. All trials of a seed are trained together, so their number is limited.
LARGE = 1_000_000_000
WHOLE = (
    ("trials", 1, 1000),
    ("epochs", 1, LARGE),
    ("steps", 1, LARGE),
    ("patience", 1, LARGE),
    ("hidden", 1, 1_000_000),
    ("max_features", 1, LARGE),
    ("batch_size", 0, LARGE),
)


@dataclass(frozen=True)
class CompareSettings(Settings):
    """The budget of every method of a comparison.

    Example:
        >>> CompareSettings.from_dict({"trials": 4}).trials
        4
    """

    trials: int = setting(
        6, "trials per method and seed, with different learning rates, and two values of the loss's own parameter if it has one"
    )
    epochs: int = setting(100, "maximum number of epochs")
    steps: int = setting(1500, "maximum number of optimiser steps, for large data; never fewer than 8 epochs")
    patience: int = setting(10, "early stopping: epochs without improvement")
    batch_size: int = setting(0, "rows per step. Default: a sixteenth of the rows, 16 to 128")
    validation: float = setting(0.2, "share of the training rows for early stopping, selection and tuning")
    test_size: float = setting(0.3, "share of the rows for testing, if a data set is one file; each seed samples its own")
    weight_decay: float = setting(0.01, "decoupled weight decay")
    warmup: float = setting(0.05, "share of the steps for warm-up; the learning rate then decays to zero")
    hidden: int = setting(128, "width of the hidden layer (mlp)")
    dropout: float = setting(0.3, "dropout probability of the hidden layer (mlp), or of the inputs (linear with R-Drop)")
    max_features: int = setting(20_000, "maximum number of words in the vocabulary; the most frequent are kept (text)")
    device: str = setting("auto", "device: auto (a GPU, if there is one, for larger data sets), cpu or cuda")

    def __post_init__(self) -> None:
        who = "CompareSettings"
        check_choice(who, "device", self.device, DEVICES)
        for name in ("validation", "test_size", "dropout", "warmup"):
            check_unit(who, name, getattr(self, name), open_end=True)
        for name, least, most in WHOLE:
            check_whole(who, name, getattr(self, name), least, most)
        check_at_least(who, "weight_decay", self.weight_decay, 0)
        for name in ("validation", "test_size"):
            check_at_least(who, name, getattr(self, name), 0, strict=True)
