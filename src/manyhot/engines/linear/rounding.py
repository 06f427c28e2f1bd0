"""Stochastic rounding to bfloat16 in plain torch, bitwise identical to the kernels."""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)
_WORD = 0xFFFFFFFF


def _shift(x: Tensor, bits: int) -> Tensor:
    """``x >> bits`` of unsigned 64-bit numbers in int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def rounding_noise(seed: Tensor, step: Tensor, first: int, num_labels: int, width: int) -> Tensor:
    """int32 ``[num_labels, width]`` from 0 to 65535: the noise of the weights of the labels from ``first`` on.

    Args:
        seed: int64 scalar.
        step: int64 scalar; each step has its own noise.
        first: the number of the first label.
        num_labels: how many labels.
        width: how many columns.
    """
    labels = torch.arange(first, first + num_labels, device=seed.device)
    keys = _mix(_mix(seed + step * _GOLDEN) + labels * _GOLDEN)
    low, high = (keys & _WORD).unsqueeze(1), _shift(keys, 32).unsqueeze(1)
    h = (torch.arange(width, device=seed.device) + low) & _WORD
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & _WORD
    h = ((h ^ (h >> 15) ^ high) * 0x846CA68B) & _WORD
    return ((h ^ (h >> 16)) >> 16).to(torch.int32)


def round_stochastically(x: Tensor, noise: Tensor) -> Tensor:
    """float32 ``x`` as bfloat16, up or down by chance: with uniform ``noise`` the mean is ``x``.

    Sixteen bits of noise are added below the last digit of bfloat16, and the result is truncated. Values that bfloat16
    represents exactly are unchanged, as are infinities and NaN.

    Args:
        x: float32.
        noise: integers from 0 to 65535, of the shape of ``x``.

    Returns:
        bfloat16, of the shape of ``x``.
    """
    bits = x.contiguous().view(torch.int32)
    special = (bits & 0x7F800000) == 0x7F800000
    up = (bits.long() + noise) & 0xFFFF0000
    signed = torch.where(up >= 1 << 31, up - (1 << 32), up).to(torch.int32)
    return torch.where(special, bits, signed).view(torch.float32).to(torch.bfloat16)
