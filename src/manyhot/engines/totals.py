"""The reduced value of a loss from the values of its rows."""

from __future__ import annotations

import torch
from torch import Tensor


def total(values: Tensor, scale: Tensor | float) -> Tensor:
    """``sum scale values``, by one operation where it is a sum or a mean; rows with a scale of 0 are left out."""
    if not isinstance(scale, Tensor):
        if scale == 1:
            return values.sum()
        return values.mean() if scale == 1.0 / values.numel() else values.sum() * scale
    return torch.where(scale == 0, 0.0, values * scale).sum()
