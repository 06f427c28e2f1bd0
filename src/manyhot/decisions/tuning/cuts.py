"""Numbers to cut at: midway between scores, exact in the type of the scores."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

INF = math.inf


def round_down(cuts: Tensor, dtype: torch.dtype) -> Tensor:
    """In the type of the scores, not above the float64 given, so that every comparison ``s > cut`` has the same result."""
    near = cuts.to(dtype)
    return torch.where(near.double() > cuts, near.nextafter(near.new_tensor(-INF)), near)


def midway(upper: Tensor, lower: Tensor) -> Tensor:
    """float64: a cut that includes ``upper`` and excludes ``lower``; just below ``upper`` if nothing is below it."""
    high, low = upper.double(), lower.double()
    middle = (high + low) / 2
    just_below = upper.nextafter(torch.full_like(upper, -INF)).double()
    middle = torch.where(low == -INF, just_below, middle)
    return torch.where((middle < high) & middle.isfinite(), middle, torch.where(low == -INF, just_below, low))


def ascending(values: Tensor) -> Tensor:
    """The values in rising order."""
    # NumPy sorts several times faster than torch if only the values are needed.
    return torch.from_numpy(np.sort(values.numpy())) if values.device.type == "cpu" else values.sort().values


def falling(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` highest of each row in falling order, and where they were."""
    found = values.topk(k, dim=1) if 4 * k < values.shape[1] else values.sort(dim=1, descending=True)
    return found.values[:, :k], found.indices[:, :k]


def finite(cut: float) -> float:
    """``cut``, or 0 where every score is ``-inf``."""
    return 0.0 if math.isinf(cut) and cut < 0 else cut
