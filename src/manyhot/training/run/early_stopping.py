"""Early stopping: keep the weights of the best epoch, stop when there was no better one for some epochs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from manyhot.training.run.checkpoint import Tensors


class EarlyStopping:
    """The best value of a metric so far, the epoch it was reached in, and the weights of that epoch.

    Args:
        patience: epochs without a better value before training stops; 0 for never.
        later_of_equals: on ties, keep the weights of the last epoch instead of the first.
        nothing: the value of a model that has learned nothing yet; while no value is better, training continues.

    Example:
        >>> stopping = EarlyStopping(patience=2)
        >>> [stopping.note(value, epoch, dict) for epoch, value in enumerate([0.5, 0.7, 0.6, 0.6], start=1)]
        [True, True, True, False]
        >>> stopping.best, stopping.best_epoch
        (0.7, 2)
        >>> stopping = EarlyStopping(patience=1, nothing=0.0)
        >>> [stopping.note(value, epoch, dict) for epoch, value in enumerate([0.0, 0.0, 0.1, 0.1], start=1)]
        [True, True, True, False]
    """

    def __init__(self, patience: int, *, later_of_equals: bool = False, nothing: float = -math.inf) -> None:
        self.patience, self.later_of_equals, self.nothing = patience, later_of_equals, nothing
        self.best, self.best_epoch = -math.inf, 0
        self.weights: Tensors = {}

    def note(self, value: float, epoch: int, weights: Callable[[], Tensors]) -> bool:
        """Record the metric after an epoch (larger is better); returns whether training should continue."""
        better = value > self.best
        if better or (self.later_of_equals and value == self.best):
            self.weights = weights()
        if better:
            self.best, self.best_epoch = value, epoch
        return not self.patience or self.best <= self.nothing or epoch - self.best_epoch < self.patience

    def to_json(self) -> dict[str, Any]:
        """The state without the weights."""
        return {"best": None if math.isinf(self.best) else self.best, "best_epoch": self.best_epoch}

    def restore(self, data: dict[str, Any], weights: Tensors) -> None:
        """Restore the state of ``to_json`` and the weights saved with it."""
        self.best = -math.inf if data["best"] is None else float(data["best"])
        self.best_epoch, self.weights = int(data["best_epoch"]), weights
