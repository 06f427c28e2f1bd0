"""Groups of equal values in a sorted list."""

from __future__ import annotations

import torch
from torch import Tensor


def tie_bounds(fresh: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the last place of the group that each entry of a sorted list belongs to, along the last axis.

    Args:
        fresh: bool ``[..., N]``, True where an entry differs from the one before it; the first entry counts as True.

    Returns:
        Two int64 tensors ``[..., N]``.

    Example:
        >>> tie_bounds(torch.tensor([True, False, True, False, False]))
        (tensor([0, 0, 2, 2, 2]), tensor([1, 1, 4, 4, 4]))
    """
    size = fresh.shape[-1]
    if fresh.numel() == 0:
        return fresh.long(), fresh.long()
    place = torch.arange(size, device=fresh.device)
    first = torch.where(fresh, place, 0).cummax(dim=-1).values
    closing = torch.nn.functional.pad(fresh[..., 1:], (0, 1), value=True)
    last = torch.where(closing, place, size).flip(-1).cummin(dim=-1).values.flip(-1)
    return first, last


def differs(values: Tensor) -> Tensor:
    """bool ``[..., N]``: the entry is not equal to the one before it, along the last axis; True for the first."""
    if values.shape[-1] == 0:
        return values.bool()
    return torch.nn.functional.pad(values[..., 1:] != values[..., :-1], (1, 0), value=True)
