"""The training budget of a model: batch size and epochs."""

from __future__ import annotations

import math

from manyhot.comparison.settings import CompareSettings


def batch_size(rows: int, settings: CompareSettings) -> int:
    """Rows per step: the power of two nearest to a sixteenth of the rows, from 16 to 128, at most all rows."""
    if settings.batch_size:
        return min(settings.batch_size, rows)
    nearest = 1 << max(0, round(math.log2(max(rows, 1) / 16)))
    return min(max(16, min(128, nearest)), rows)


def num_epochs(steps_per_epoch: int, settings: CompareSettings) -> int:
    """The number of epochs: ``epochs``, or fewer to stay within ``steps`` steps, but at least 8."""
    return min(settings.epochs, max(8, settings.steps // max(steps_per_epoch, 1)))
