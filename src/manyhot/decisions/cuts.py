"""Cuts: thresholds midway between scores, and clear of their rounding."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from manyhot.decisions.threshold_values import round_down

INF = math.inf
# A cut keeps this many units of rounding from every score: sums in another order were seen to differ by up to a hundred.
ROOM = 256
# The share of an objective that may be given up to cut in a gap that is wide enough.
SLACK = 1e-3
# How far from a cut a wider gap is looked for, relative to max(1, |cut|).
WINDOW = 0.1


def rounding(scores: Tensor) -> Tensor:
    """float64: how far from a score a cut must lie to be clear of its rounding; 0 for an infinite score.

    The same row scores a little differently in another batch, on another device and in other software.
    """
    near = scores.abs().double().clamp(min=1.0) * (ROOM * torch.finfo(scores.dtype).eps)
    return torch.where(near.isfinite(), near, 0.0)


def midway(upper: Tensor, lower: Tensor) -> Tensor:
    """float64: a cut that includes ``upper`` and excludes ``lower``; next to the other one if one of them is infinite."""
    high, low = upper.double(), lower.double()
    middle = (high + low) / 2
    middle = torch.where(low == -INF, high - rounding(upper), torch.where(high == INF, low + rounding(lower), middle))
    middle = torch.where((low == -INF) & (high == INF), torch.finfo(upper.dtype).max, middle)
    # Between neighbouring floats of a large size there is nothing, and the cut is the lower one.
    return torch.where((middle < high) & (middle >= low), middle, low)


def just_above(score: Tensor) -> Tensor:
    """float64: a cut that excludes a score and all below it; 0 where that is ``-inf``."""
    return torch.where(score == -INF, 0.0, score.double() + rounding(score))


def clearance(upper: Tensor, lower: Tensor) -> Tensor:
    """float64 from 0 to 1: the width of a gap in which to cut, 1 where a cut midway is clear of the rounding of both sides."""
    gap = upper.double() - lower.double()
    return (gap / (2 * torch.maximum(rounding(upper), rounding(lower)))).nan_to_num(0.0, posinf=1.0).clamp(0.0, 1.0)


def best_gap(value: Tensor, clear: Tensor) -> int:
    """The gap to cut in: the best that is clear, if none is better by more than ``SLACK``; else the widest of the nearly best.

    Args:
        value: ``[C]``, what a cut in each gap reaches; ``-inf`` bars a gap. Ties go to the first.
        clear: ``[C]``, of ``clearance``.
    """
    best = int(value.argmax())
    if float(clear[best]) >= 1:
        return best
    near = value >= value[best] - SLACK * value[best].abs()
    widest = clear[near].max()
    return int(torch.where(near & (clear == widest), value, -INF).argmax())


def clear_cut(scores: Tensor, cut: float) -> float:
    """``cut``, or the middle of the next gap that is wide enough where it lies within the rounding of one of ``scores [N]``.

    Args:
        scores: what the cut is compared with.
        cut: one that was not found as a gap between them.
    """
    apart, reach = scores.double() - cut, WINDOW * max(1.0, abs(cut))
    near = scores[apart.abs() <= reach]
    if not bool(((near.double() - cut).abs() < rounding(near)).any()):
        return cut
    near = ascending(near)
    above = torch.where(apart > reach, scores, INF).amin().reshape(1)
    below = torch.where(apart < -reach, scores, -INF).amax().reshape(1)
    upper, lower = torch.cat([near, above]), torch.cat([below, near])
    place = int(torch.searchsorted(near, round_down(near.new_tensor([cut], dtype=torch.float64), near.dtype), right=True))
    passed = -(torch.arange(len(upper), device=near.device) - place).abs().double()
    wide = clearance(upper, lower) >= 1
    chosen = int(torch.where(wide, passed, -INF).argmax()) if bool(wide.any()) else place
    return float(midway(upper[chosen], lower[chosen]))


def ascending(values: Tensor) -> Tensor:
    """The values in rising order."""
    # NumPy sorts several times faster than torch if only the values are needed.
    return torch.from_numpy(np.sort(values.numpy())) if values.device.type == "cpu" else values.sort().values


def at_least(values: Tensor, least: float) -> Tensor:
    """``[N]``: the values that are not below ``least``."""
    if values.device.type != "cpu":
        return values[values >= least]
    # NumPy picks several times faster than torch does on a CPU.
    plain = values.numpy()
    return torch.from_numpy(plain[plain >= least])


def falling(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` highest values of each row in falling order, and their positions."""
    found = values.topk(k, dim=1) if 4 * k < values.shape[1] else values.sort(dim=1, descending=True)
    return found.values[:, :k], found.indices[:, :k]
