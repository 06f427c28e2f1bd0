"""Progress of a run: events for a callback, also written as JSON lines to the run folder."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    Args:
        kind: ``"start"`` (body, sizes), ``"note"`` (a choice or a finding, in ``message``), ``"step"`` (inside a long epoch,
            every few seconds), ``"epoch"`` (an epoch is done), ``"rule"`` (what tuning found) or ``"end"``.
        message: the event in a sentence.
        epoch: the epoch that is done or running, counted from 1.
        epochs: the most epochs.
        loss: mean training loss.
        metric: the metric's name, if one was measured.
        value: the metric on held-out rows.
        rows_per_second: training speed.
        seconds: since the run started or was resumed.
        remaining: an estimate of the seconds left, at most.
        extra: further numbers, fit for JSON.

    Example:
        >>> Event("epoch", epoch=2, epochs=30, loss=0.5, metric="micro-F1", value=0.8).line()
        'epoch 2/30  loss 0.5000  micro-F1 0.8000'
    """

    kind: str
    message: str = ""
    epoch: int = 0
    epochs: int = 0
    loss: float = math.nan
    metric: str = ""
    value: float = math.nan
    rows_per_second: float = math.nan
    seconds: float = math.nan
    remaining: float = math.nan
    extra: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """One line for a terminal."""
        if self.kind not in ("epoch", "step"):
            return self.message
        parts = [f"epoch {self.epoch}/{self.epochs}"]
        if self.kind == "step":
            parts.append(f"batch {self.extra.get('batch', 0):,}/{self.extra.get('batches', 0):,}")
        if not math.isnan(self.loss):
            parts.append(f"loss {self.loss:.4f}")
        if not math.isnan(self.value):
            parts.append(f"{self.metric} {self.value:.4f}")
        if not math.isnan(self.rows_per_second):
            parts.append(f"{self.rows_per_second:,.0f} rows/s")
        if not math.isnan(self.remaining):
            parts.append(f"{self.remaining:.0f} s left")
        return "  ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The event as a dictionary for a line of JSON, without unknown numbers."""
        known = {name: value for name, value in vars(self).items() if name != "extra" and value not in ("", 0)}
        known = {name: value for name, value in known.items() if not (isinstance(value, float) and math.isnan(value))}
        return {**known, **self.extra}


Progress = Callable[[Event], None]


def json_line(event: Event) -> str:
    """The event as one line of JSON, with a line feed."""
    return json.dumps(event.to_json(), ensure_ascii=False) + "\n"
