"""The length of a run on spans and its starting scores, both derived from its windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from manyhot.losses.catalog import get_loss
from manyhot.training.spans.inputs import Array, Encoded
from manyhot.training.spans.settings import SpanSettings

# Batch size in windows: about TOKENS tokens, but at most WINDOWS and at least FEWEST_WINDOWS windows.
WINDOWS, FEWEST_WINDOWS, TOKENS = 32, 4, 2048
EPOCHS, MOST_EPOCHS, STEPS = 20, 200, 1000
# Starting scores are computed from at most this many windows.
DRAWN = 2000
# Starting scores are found by bisection: its range and its number of steps.
LOWEST, HIGHEST, HALVINGS = -40.0, 10.0, 40


def budgeted(settings: SpanSettings, rows: Sequence[Encoded]) -> SpanSettings:
    """Fill in the batch size, epochs and patience that the settings leave to the data.

    The budget is counted in steps: if ``EPOCHS`` epochs take fewer than ``STEPS`` steps, the run gets more epochs.
    """
    size, epochs, patience = settings.batch_size, settings.epochs, settings.patience
    if not size:
        mean = sum(map(len, rows)) / max(len(rows), 1)
        size = max(FEWEST_WINDOWS, min(WINDOWS, int(TOKENS / max(mean, 1))))
    if epochs is None:
        steps = max(math.ceil(len(rows) / size), 1)
        epochs = max(EPOCHS, min(math.ceil(STEPS / steps), MOST_EPOCHS))
        patience = max(patience, patience * epochs // EPOCHS)
    return replace(settings, batch_size=size, epochs=epochs, patience=patience)


def starting_scores(rows: Sequence[Encoded], num_types: int, loss: str) -> Array:
    """The score of each type, ``[H]``, at which training starts: the constant score with the lowest loss.

    With a constant score s, ZLPR of a window with p spans and n other cells is ``log(1 + p e^{-s}) + log(1 + n e^{s})``. Its
    mean over windows has one minimum, found by bisection. Label-wise losses start at the log odds of a cell.

    Example:
        >>> rows = [Encoded(np.zeros((2, 1)), np.zeros((2, 0)), np.array([[0, 0, 1]]))]
        >>> [round(float(score), 3) for score in starting_scores(rows, 1, "bce")]
        [-0.511]
        >>> [round(float(score), 3) for score in starting_scores(rows, 1, "zlpr")]
        [-0.347]
    """
    drawn = [rows[place] for place in np.linspace(0, len(rows) - 1, min(len(rows), DRAWN)).astype(np.int64)]
    cells = np.array([len(row) * (len(row) + 1) / 2 for row in drawn])[:, None]
    spans = np.zeros((len(drawn), num_types))
    for place, row in enumerate(drawn):
        np.add.at(spans[place], row.spans[:, 0], 1.0 if row.values is None else row.values)
    others = np.maximum(cells - spans, 0.0)
    if not get_loss(loss).lazy:
        odds: Array = np.log((spans.sum(axis=0) + 0.5) / (others.sum(axis=0) + 0.5)).clip(LOWEST, HIGHEST)
        return odds
    low, high = np.full(num_types, LOWEST), np.full(num_types, HIGHEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        # The derivative of the summed loss by the score: other cells push it down, spans push it up.
        slope = (1 / (1 + np.exp(-middle) / np.maximum(others, 1e-9))).sum(axis=0)
        slope -= (1 / (1 + np.exp(middle) / np.maximum(spans, 1e-9))).sum(axis=0)
        low, high = np.where(slope < 0, middle, low), np.where(slope < 0, high, middle)
    found: Array = (low + high) / 2
    return found
