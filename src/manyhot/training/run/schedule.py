"""The learning rate over the steps of a fit: a linear warm-up, then linear or cosine decay to zero, or a constant rate."""

from __future__ import annotations

import math

SCHEDULES = ("linear", "cosine", "constant")


def scheduled_rate(step: int, total: int, *, peak: float, warmup: float, schedule: str) -> float:
    """The learning rate of a step.

    Args:
        step: steps done before, from 0.
        total: steps of the whole fit.
        peak: the rate at the end of the warm-up.
        warmup: share of ``total`` in which the rate rises.
        schedule: ``linear``, ``cosine`` or ``constant``.

    Example:
        >>> [scheduled_rate(step, 4, peak=1.0, warmup=0.5, schedule="linear") for step in range(4)]
        [0.5, 1.0, 1.0, 0.5]
    """
    warm = round(warmup * total)
    if step < warm:
        return peak * (step + 1) / warm
    share = (step - warm) / max(total - warm, 1)
    if schedule == "constant":
        return peak
    return peak * (1 - share if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * share)))
