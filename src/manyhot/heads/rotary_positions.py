"""Rotary position embeddings: products of rotated vectors depend on the distance of their tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import check_logits, shape_text
from manyhot.engines.terms import accumulation_dtype

BASE = 10000.0


def rotary(x: Tensor) -> Tensor:
    """Rotate each pair of neighbouring features by an angle that grows with the position.

    At position t the pair ``(x_{2m}, x_{2m+1})`` is rotated by ``t theta_m``, ``theta_m = 10000^{-2m/d}``. A product of two
    rotated vectors, ``(R_i q) . (R_j k)``, depends on ``j - i`` alone. Angles are computed in float32 (float64 for float64), so
    that distant positions stay distinct in half precision.

    Args:
        x: ``[..., T, d]``, d even.

    Returns:
        ``[..., T, d]`` in the type of ``x``.

    Example:
        >>> rotary(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
        tensor([[1.0000, 0.0000],
                [0.5403, 0.8415]])
    """
    check_logits("rotary", x, "x")
    if x.ndim < 2 or x.shape[-1] % 2:
        raise ValueError(
            f"rotary: `x` must be [..., T, d] with an even d, because features rotate in pairs; got {shape_text(x.shape)}."
        )
    dtype = accumulation_dtype(x.dtype)
    pairs = torch.arange(x.shape[-1] // 2, dtype=dtype, device=x.device)
    positions = torch.arange(x.shape[-2], dtype=dtype, device=x.device)
    angles = positions.unsqueeze(1) * BASE ** (-2 * pairs / x.shape[-1])
    even, odd = x.to(dtype).reshape(*x.shape[:-1], -1, 2).unbind(dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2).to(x.dtype)
