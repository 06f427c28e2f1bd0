"""The settings of a comparison: one budget for every method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from manyhot._checks import check_at_least, check_choice, check_unit
from manyhot._suggest import nearest

DEVICES = ("auto", "cpu", "cuda")
COMPARED_MODELS = ("linear", "mlp")
# Whole numbers: the least and the most. All trials of a seed are trained together, so their number is limited.
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


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class CompareSettings:
    """The budget of every method of a comparison.

    Example:
        >>> CompareSettings.from_dict({"trials": 4}).trials
        4
    """

    trials: int = _setting(6, "trials per method and seed: learning rates, and two values of a loss's own parameter")
    epochs: int = _setting(100, "most epochs")
    steps: int = _setting(1500, "most optimiser steps, for larger data; never fewer than 8 epochs")
    patience: int = _setting(10, "early stopping: epochs without improvement")
    batch_size: int = _setting(0, "rows per step. Default: a sixteenth of the rows, 16 to 128")
    validation: float = _setting(0.2, "share of the training rows for early stopping, selection and tuning")
    test_size: float = _setting(0.3, "share of test rows if a data set is one file; each seed samples its own")
    weight_decay: float = _setting(0.01, "decoupled weight decay")
    warmup: float = _setting(0.05, "share of the steps in which the learning rate rises; then it falls to zero")
    hidden: int = _setting(128, "width of the hidden layer (mlp)")
    dropout: float = _setting(0.3, "dropout probability (mlp; with R-Drop on linear, of the inputs)")
    max_features: int = _setting(20_000, "most words in the vocabulary, the most frequent ones (text)")
    device: str = _setting("auto", "device: auto (a GPU, if there is one, for larger data sets), cpu or cuda")

    def __post_init__(self) -> None:
        who = "CompareSettings"
        check_choice(who, "device", self.device, DEVICES)
        for name in ("validation", "test_size", "dropout", "warmup"):
            check_unit(who, name, getattr(self, name), open_end=True)
        for name, least, most in WHOLE:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ValueError(f"{who}: `{name}` must be a whole number >= {least} and <= {most}; got {value!r}.")
        check_at_least(who, "weight_decay", self.weight_decay, 0)
        for name in ("validation", "test_size"):
            check_at_least(who, name, getattr(self, name), 0, strict=True)

    def to_dict(self) -> dict[str, Any]:
        """All settings, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CompareSettings:
        """From some or all settings."""
        names = tuple(each.name for each in fields(cls))
        for name in data:
            if name not in names:
                raise ValueError(f"CompareSettings: unknown setting {name!r}.{nearest(str(name), names)}")
        return cls(**data)
