"""How long members train: rows of a step and passes over the data."""

from __future__ import annotations

import math

from manyhot.comparison.settings import CompareSettings


def batch_size(rows: int, settings: CompareSettings) -> int:
    """Rows of a step: the power of two nearest to a sixteenth of the rows, from 16 to 128; never more than there are."""
    if settings.batch_size:
        return min(settings.batch_size, rows)
    nearest = 1 << max(0, round(math.log2(max(rows, 1) / 16)))
    return min(max(16, min(128, nearest)), rows)


def num_epochs(steps_per_epoch: int, settings: CompareSettings) -> int:
    """Epochs at most: those asked for, fewer where they would take more than ``steps`` steps, but 8 at least."""
    return min(settings.epochs, max(8, settings.steps // max(steps_per_epoch, 1)))
