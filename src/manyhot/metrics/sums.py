"""Metrics over batches in one process.

Importing torchmetrics takes seconds, and a single process does not need it. ``Metrics`` does the same with several processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.rule import DecisionRule
from manyhot.metrics.metric_sums import MetricSums


class Sums(MetricSums, nn.Module):
    """``Metrics`` in one process; arguments are the same."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        num_labels: int,
        rule: DecisionRule | None = None,
        link: str | Calibration | None = "hard",
        empty: float = 1.0,
        propensities: Tensor | None = None,
        bins: int = 200,
        calibration_bins: int = 15,
    ) -> None:
        super().__init__()
        self._defaults = {}
        self._set_up(names, num_labels, rule, link, empty, propensities, bins, calibration_bins)

    def add_state(self, name: str, default: Any, how: str) -> None:
        """Add a state; ``how`` says how the states of several processes would be merged."""
        del how
        self._defaults[name] = default
        if isinstance(default, Tensor):
            self.register_buffer(name, default, persistent=False)
        else:
            setattr(self, name, default)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of the sums."""
        return self.row_counts.device

    def _synced(self) -> Any:
        return contextlib.nullcontext()
