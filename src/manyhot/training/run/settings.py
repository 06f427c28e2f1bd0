"""What settings share, those of rows and of spans most of all: how a field is declared, checked, saved and read back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from typing import Any, ClassVar, Self

import numpy as np

from manyhot._checks import check_at_least
from manyhot._suggest import nearest

PRECISIONS = ("auto", "float32", "bfloat16")
# Every body diverges at much smaller rates and weights; beyond about 1e38 a step cannot be computed at all.
LARGEST_RATE = LARGEST_WEIGHT = 1e6
# The parts of a run use the seed times 1,000 plus a number, which must fit into 63 bits.
LARGEST_SEED = 2**53 - 1
# Thread libraries abort the process if they cannot start the requested number of threads.
MOST_THREADS = 1024


def setting(default: Any, text: str) -> Any:
    """A field of a settings class with its default and one line of help, which the command-line flag shows."""
    return field(default=default, metadata={"help": text})


def check_whole(who: str, name: str, value: Any, least: int, most: int | None = None) -> None:
    """Check that ``value`` is a whole number >= ``least``, and <= ``most`` if it is given."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        limit = "" if most is None else f" and <= {most}"
        raise ValueError(f"{who}: `{name}` must be a whole number >= {least}{limit}; got {value!r}.")


def seconds_of(who: str, name: str, text: str) -> float:
    """The seconds of a time such as ``60s``, ``5m`` or ``1h``; a bare number is seconds.

    Example:
        >>> seconds_of("train", "budget", "1.5m")
        90.0
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1:]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(f"{who}: `{name}` must be a time > 0 such as 60s, 5m or 1h; got {text!r}.")
    return seconds


class Settings:
    """A frozen dataclass of settings, to and from dictionaries."""

    def to_dict(self) -> dict[str, Any]:
        """All settings, for JSON or TOML."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From some or all settings; an unknown name is an error that names the nearest one."""
        names = tuple(each.name for each in fields(cls))  # type: ignore[arg-type]
        for name in data:
            if name not in names:
                raise ValueError(f"{cls.__name__}: unknown setting {name!r}.{nearest(str(name), names)}")
        return cls(**data)


class RunSettings(Settings):
    """The settings of a run."""

    # Settings whose value may change when a run is resumed, but not from 0 to another number or back.
    may_change: ClassVar[tuple[str, ...]] = ()
    seed: int
    threads: int
    batch_size: int
    learning_rate: float | None
    weight_decay: float
    rdrop: float
    warmup: float
    schedule: str
    clip: float
    patience: int
    precision: str
    checkpoint_seconds: float
    tensorboard: bool

    def check_shared(self, who: str) -> None:
        """Check the numbers that rows and spans have in common; NumPy numbers become Python numbers, for JSON and TOML."""
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if isinstance(value, np.generic):
                object.__setattr__(self, each.name, value.item())
        check_whole(who, "batch_size", self.batch_size, 0)
        check_whole(who, "threads", self.threads, 0, MOST_THREADS)
        check_whole(who, "seed", self.seed, 0, LARGEST_SEED)
        for name in ("rdrop", "weight_decay"):
            check_at_least(who, name, getattr(self, name), 0, most=LARGEST_WEIGHT)
        for name in ("clip", "checkpoint_seconds"):
            check_at_least(who, name, getattr(self, name), 0)
        if self.learning_rate is not None:
            check_at_least(who, "learning_rate", self.learning_rate, 0, strict=True, most=LARGEST_RATE)
