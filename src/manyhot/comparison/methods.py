"""Methods of a comparison: a loss with its options, its natural decision, and its trials."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from manyhot._checks import check_at_least
from manyhot._suggest import nearest
from manyhot.losses.catalog import LOSSES, get_loss
from manyhot.losses.info import LossInfo

POWERSET = "powerset"
AUTO, LABELS = "auto", "labels"
OPTIONS = ("smoothing", "mixup", "rdrop", "threshold", "pos_weight", "min_labels")
# Knobs: tunable parameters of an option or of a loss. The trials are divided between two values of each.
KNOBS: Mapping[str, tuple[str, tuple[float, float]]] = {"smoothing": ("smoothing", (0.1, 0.02)), "rdrop": ("rdrop", (0.5, 2.0))}
MIXUP_ALPHA = 0.4
WEIGHTS = {AUTO: "automatic weight", LABELS: "positives x number of labels"}
STRATEGIES = {"br": "bce", "lr": "pairwise", "lp": POWERSET}
DEFAULT_LOSSES = ("zlpr", "bce", "focal", "asymmetric", "dice1", "dice2", "lsep", "pairwise", "two_way", POWERSET)


@dataclass(frozen=True)
class Method:
    """A loss and its options, written ``zlpr+smoothing=0.1+rdrop``. Made by ``parse_method``.

    Args:
        name: the text it was parsed from.
        loss: a loss of the catalog, or ``"powerset"``.
        options: values by option; None is tuned if the option is in ``KNOBS``.

    Example:
        >>> parse_method("zlpr+pos_weight=10").title
        'ZLPR, positives x 10'
    """

    name: str
    loss: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The strategy it belongs to."""
        return "label powerset" if self.info is None else self.info.family

    @property
    def title(self) -> str:
        """Its name in tables."""
        words = ["label powerset" if self.info is None else self.info.title]
        for option, value in self.options.items():
            if option == "pos_weight":
                words.append(WEIGHTS.get(value) or f"positives x {value:g}")
            elif option == "threshold":
                words.append("learned threshold")
            elif option == "min_labels":
                words.append(f"at least {value}")
            else:
                label = {"rdrop": "R-Drop"}.get(option, option)
                words.append(label if value is None else f"{label} {value:g}")
        return ", ".join(words)

    @property
    def info(self) -> LossInfo | None:
        """Its entry in the catalog; None for label powerset."""
        return None if self.loss == POWERSET else get_loss(self.loss)

    @property
    def link(self) -> str | None:
        """The link from its scores to probabilities; with smoothing or mixup it is that of soft labels."""
        if self.info is None:
            return "hard"
        return self.info.soft_link if {"smoothing", "mixup"} & set(self.options) else self.info.link

    def trials(self, count: int, rates: tuple[float, float]) -> list[dict[str, float]]:
        """``count`` settings to try: learning rates evenly spaced on a log scale, and two values of each knob.

        Trials with equal knobs are adjacent.
        """
        knobs = [self.info.knob] if self.info is not None and self.info.knob is not None else []
        knobs += [KNOBS[option] for option, value in self.options.items() if value is None and option in KNOBS]
        settings: list[dict[str, float]] = [{}]
        for name, values in knobs:
            if len(settings) * 2 <= count:
                settings = [{**one, name: value} for value in values for one in settings]
            else:
                settings = [{**one, name: values[0]} for one in settings]
        sizes = [count // len(settings) + (place < count % len(settings)) for place in range(len(settings))]
        return [
            {"learning_rate": rate, **one}
            for size, one in zip(sizes, settings, strict=True)
            for rate in spread_evenly(*rates, size)
        ]


def spread_evenly(low: float, high: float, count: int) -> list[float]:
    """The midpoints of ``count`` equal parts of a log scale, with three digits.

    Example:
        >>> spread_evenly(0.001, 0.1, 2)
        [0.00316, 0.0316]
    """
    return [float(f"{low * (high / low) ** ((place + 0.5) / count):.3g}") for place in range(count)]


def parse_method(text: str) -> Method:
    """Parse a method: a loss, and options after ``+``. ``br``, ``lr`` and ``lp`` are ``bce``, ``pairwise``, ``powerset``.

    Options: ``smoothing``, ``mixup``, ``rdrop`` (each with ``=value`` or tuned), ``threshold`` (learned; also written
    ``tlpr``), ``pos_weight=`` a number, ``labels`` (the number of labels, at most 100) or ``auto`` (see ``TrackingThreshold``),
    ``min_labels`` (the natural decision predicts at least the best label of each row, or ``=value`` labels).

    Example:
        >>> parse_method("zlpr+smoothing").trials(4, (0.01, 0.1))[0]
        {'learning_rate': 0.0178, 'smoothing': 0.1}
        >>> parse_method("zlp")
        Traceback (most recent call last):
            ...
        ValueError: compare: unknown loss 'zlp'. Did you mean 'zlpr'?
    """
    base, *parts = text.strip().split("+")
    base = STRATEGIES.get(base, base)
    if base == "tlpr":
        base, parts = "zlpr", ["threshold", *parts]
    known = [*(name for name, info in LOSSES.items() if not info.one_label), POWERSET, *STRATEGIES]
    if base not in known:
        if base in LOSSES:
            raise ValueError(f"compare: the loss {base!r} is for one label per row; compare supports {', '.join(known)}.")
        hint = nearest(base, known) or f" There are {', '.join(known)}."
        raise ValueError(f"compare: unknown loss {base!r}.{hint}")
    options: dict[str, Any] = {}
    for part in parts:
        option, _, value = part.partition("=")
        if option not in OPTIONS:
            raise ValueError(f"compare: unknown option {option!r} of {text!r}.{nearest(option, OPTIONS)}")
        options[option] = _option_value(text, base, option, value)
    return Method(text.strip(), base, options)


def parse_methods(texts: Sequence[str]) -> list[Method]:
    """Parse several methods, given as separate texts or separated by commas; duplicates are dropped."""
    names = [name for text in texts for name in text.split(",") if name.strip()]
    return [parse_method(name) for name in dict.fromkeys(name.strip() for name in names)]


def _option_value(text: str, loss: str, option: str, value: str) -> Any:
    takes = inspect.signature(get_loss(loss).function).parameters if loss in LOSSES else {}
    decides = loss in LOSSES and get_loss(loss).decision == "zero"
    fits = {
        "threshold": loss == "zlpr",
        "min_labels": decides,
        "mixup": loss != POWERSET,
        "rdrop": loss in LOSSES and get_loss(loss).why_not("rdrop") is None,
        "smoothing": loss in LOSSES and get_loss(loss).why_not("smoothing") is None,
    }
    # R-Drop compares two passes; a loss that samples pairs would sample different ones in each pass.
    if not fits.get(option, option in takes) or (option == "rdrop" and "generator" in takes):
        raise ValueError(f"compare: {text!r}: the loss {loss!r} does not support {option!r}.")
    if option == "threshold":
        return True
    if option == "min_labels":
        if not (value or "1").isdigit() or int(value or "1") < 1:
            raise ValueError(f"compare: {text!r}: min_labels must be a whole number >= 1; got {value!r}.")
        return int(value or "1")
    if option == "pos_weight" and value in WEIGHTS:
        if loss != "zlpr":
            raise ValueError(f"compare: {text!r}: the weight {value!r} is only for zlpr.")
        return value
    if not value:
        if option == "pos_weight":
            raise ValueError(f"compare: {text!r} must give a weight, as in {loss}+pos_weight=10.")
        return MIXUP_ALPHA if option == "mixup" else None
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"compare: {text!r}: {option} must be a number; got {value!r}.") from None
    check_at_least("compare", option, number, 0, strict=True)
    return number
