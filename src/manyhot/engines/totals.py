"""Reduces the values of rows to the loss."""

from __future__ import annotations

import torch
from torch import Tensor


def total(values: Tensor, scale: Tensor | float) -> Tensor:
    """``sum scale values``: one operation for a plain sum or mean; rows with a scale of 0 are left out."""
    if not isinstance(scale, Tensor):
        if scale == 1:
            return values.sum()
        return values.mean() if scale == 1.0 / values.numel() else values.sum() * scale
    return torch.where(scale == 0, 0.0, values * scale).sum()
