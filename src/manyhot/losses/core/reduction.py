"""The reduction from one value per row to the loss, shared by all losses."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import check_device, check_reduction, check_sample_weight


def reduce(
    who: str, values: Tensor, *, sample_weight: Tensor | None = None, reduction: str = "mean", validate: bool = False
) -> Tensor:
    """Row values ``[...]`` times ``sample_weight``, reduced.

    ``"none"`` gives ``[...]``; ``"sum"`` the sum; ``"mean"`` the weighted mean, ``sum w v / sum w``, so that a weight of 2
    counts the row twice. The mean over no rows, or over rows whose weights are all 0, is 0.
    """
    check_reduction(who, reduction)
    total: Tensor | int = values.numel()
    if sample_weight is not None:
        check_sample_weight(who, sample_weight, values.shape, validate=validate)
        check_device(who, "sample_weight", sample_weight, values.device)
        weight = sample_weight.detach().to(values.dtype).expand(values.shape)
        values = torch.where(weight == 0, 0.0, values * weight)
        total = weight.sum()
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    if isinstance(total, Tensor):
        return values.sum() / torch.where(total == 0, 1.0, total)
    return values.sum() / max(total, 1)


def softplus(x: Tensor) -> Tensor:
    """``log(1 + e^x)``, exact also in float64; torch's default is linear from 20 on."""
    return torch.nn.functional.softplus(x, threshold=40.0)
