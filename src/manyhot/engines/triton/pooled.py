"""Which scores a best common cut may predict, and that cut, from sorted scores: host side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines.triton.launch.launcher import launcher

# Scores that are compared at once, and warps.
BLOCK, WARPS = 4096, 16


def launch_level(sample: Tensor, hits: Tensor, share: float, errors: float, extra: int, *, error: bool) -> Tensor:
    """``[2]``: the lowest score that a best cut may predict, probably, and inf; see ``level_kernel``."""
    from manyhot.engines.triton.rows.pooled import level_kernel

    levels = sample.new_empty(2)
    numbers = (len(sample), len(hits), float(share), float(errors), float(extra))
    _start(level_kernel, (sample, hits, levels), numbers, error=error)
    return levels


def launch_cut(scores: Tensor, hits: Tensor, levels: Tensor, near: int, *, error: bool) -> Tensor:
    """float64: the best cut at one of the ``hits``, and the scores near it; see ``cut_kernel``."""
    from manyhot.engines.triton.rows.pooled import cut_kernel

    out = scores.new_empty(3 + 2 * (2 * near + 2), dtype=torch.float64)
    _start(cut_kernel, (scores, hits, levels, out), (len(scores), len(hits), near), error=error)
    return out


def _start(kernel: Any, tensors: tuple[Tensor, ...], numbers: Any, *, error: bool) -> None:
    types = (tensors[0].device, *[tensor.dtype for tensor in tensors])
    launcher(kernel, (error, BLOCK), WARPS, types, numbers)(1, tensors[0], tensors[1:], numbers)
