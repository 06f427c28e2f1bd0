"""Cuts: candidate thresholds. A cut lies in a gap between two scores, outside the rounding error of both."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from manyhot.decisions.threshold_values import round_down

INF = math.inf
# A cut keeps this distance from every score, in units of the relative precision of floats (eps). Sums in another order were
# seen to differ by up to a hundred.
MARGIN = 256
# The share of the objective that may be given up for a cut in a gap that is wide enough.
SLACK = 1e-3
# How far from a cut to search for a wider gap, relative to max(1, |cut|).
WINDOW = 0.1


def rounding(scores: Tensor) -> Tensor:
    """float64: the distance that a cut must keep from a score because of rounding; 0 for an infinite score.

    The score of a row differs a little in another batch, on another device and in other software.
    """
    near = scores.abs().double().clamp_(min=1.0).mul_(MARGIN * torch.finfo(scores.dtype).eps)
    return near.nan_to_num_(nan=0.0, posinf=0.0)


Margins = tuple[Tensor, Tensor]


def margins_of(upper: Tensor, lower: Tensor) -> Margins:
    """``rounding`` of the scores above and below gaps."""
    return rounding(upper), rounding(lower)


def midway(upper: Tensor, lower: Tensor, margins: Margins | None = None) -> Tensor:
    """float64: a cut that predicts ``upper`` and not ``lower``. If one of them is infinite, the cut lies next to the other."""
    high, low = upper.double(), lower.double()
    above, below = margins_of(upper, lower) if margins is None else margins
    middle = (high + low) / 2
    middle = torch.where(low == -INF, high - above, torch.where(high == INF, low + below, middle))
    middle = torch.where((low == -INF) & (high == INF), torch.finfo(upper.dtype).max, middle)
    # There is no number between large neighbouring floats; the cut is then the lower one.
    return torch.where((middle < high) & (middle >= low), middle, low)


def just_above(score: Tensor) -> Tensor:
    """float64: a cut that predicts neither a score nor any lower one; 0 if the score is ``-inf``."""
    return torch.where(score == -INF, 0.0, score.double() + rounding(score))


def clearance(upper: Tensor, lower: Tensor, margins: Margins | None = None) -> Tensor:
    """float64 from 0 to 1: the relative width of a gap; 1 if a cut midway is outside the rounding error of both scores."""
    above, below = margins_of(upper, lower) if margins is None else margins
    gap = upper.double() - lower.double()
    return (gap / (2 * torch.maximum(above, below))).nan_to_num(0.0, posinf=1.0).clamp(0.0, 1.0)


def best_gap(value: Tensor, clear: Tensor) -> int:
    """The index of the gap to cut in: the best gap if it is wide enough, otherwise the widest of the nearly best.

    A gap is nearly best if its value is at most the share ``SLACK`` below the best; among equally wide ones the best is chosen.

    Args:
        value: ``[C]``, the objective of a cut in each gap; ``-inf`` excludes a gap. Ties go to the first.
        clear: ``[C]``, from ``clearance``.
    """
    best = int(value.argmax())
    if float(clear[best]) >= 1:
        return best
    near = value >= value[best] - SLACK * value[best].abs()
    widest = clear[near].max()
    return int(torch.where(near & (clear == widest), value, -INF).argmax())


def clear_cut(scores: Tensor, cut: float) -> float:
    """``cut``, unless it lies within the rounding error of a score; then the middle of the nearest gap that is wide enough.

    Args:
        scores: ``[N]``, the scores that are compared with the cut.
        cut: a threshold that need not lie midway between two scores.
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
    """The values that are not below ``least``, with one axis."""
    if values.device.type != "cpu":
        return values[values >= least]
    # NumPy picks several times faster than torch does on a CPU.
    plain = values.numpy()
    return torch.from_numpy(plain[plain >= least])


def falling(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` highest values of each row in falling order, and their positions."""
    found = values.topk(k, dim=1) if 4 * k < values.shape[1] else values.sort(dim=1, descending=True)
    return found.values[:, :k], found.indices[:, :k]
