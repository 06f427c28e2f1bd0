"""The sum of row values, and a gradient times a factor: host side."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from manyhot.engines import plain, totals
from manyhot.engines.triton.calls import per_row, type_of
from manyhot.engines.triton.launch.gate import falls_back_to
from manyhot.engines.triton.launch.launcher import Launched, Launcher, launcher
from manyhot.engines.triton.plans import blocks

# Up to this size, multiplying a gradient is cheaper than launching a kernel that checks first whether the factor is 1.
SMALL = 1 << 18
SCALED = 8192
# Up to this many values are summed by one program; more by torch.
MOST_ROWS = 1 << 17


@falls_back_to(totals.total)
def total(values: Tensor, scale: Tensor | float) -> Tensor:
    """``sum scale values``; see ``manyhot.engines.totals.total``."""
    return launch_sum(values, scale)[0]


def launch_sum(values: Tensor, scale: Tensor | float) -> tuple[Tensor, Launched | None]:
    """``sum scale values``, and the launch that computed it; None if torch did."""
    size = values.numel()
    if not 0 < size <= MOST_ROWS:
        return totals.total(values, scale), None
    scales, number = per_row(scale)
    kernel, numbers = _totals(size, number, type_of(scales), values.dtype, values.device)
    out = values.new_empty(())
    kernel(1, values, (scales, out), numbers)
    return out, (kernel, numbers)


@functools.lru_cache(maxsize=1024)
def _totals(size: int, number: float, scale_type: torch.dtype | None, dtype: torch.dtype, device: torch.device) -> Launched:
    """The kernel that sums ``size`` values, and its scalar arguments."""
    from manyhot.engines.triton.rows.totals import total_kernel

    mean, scaled = number == 1.0 / size, scale_type is not None
    block = next((block for block in (1024, 8192, 16384) if size <= block), 32768)
    numbers = (size, 1.0 if mean or scaled else number, float(size) if mean else 1.0)
    return launcher(total_kernel, (scaled, block), min(32, block // 256), (dtype, scale_type, device), numbers), numbers


@falls_back_to(plain.scale_)
def scale_(grad: Tensor, factor: Tensor) -> Tensor:
    """``grad *= factor`` in place, for a factor on the device, which is usually 1."""
    size = grad.numel()
    if size <= SMALL:
        return grad.mul_(factor)
    _scale(size, grad.dtype, factor.dtype, grad.device)(min(blocks(size, SCALED), 256), grad, (factor,), (size,))
    return grad


@functools.lru_cache(maxsize=1024)
def _scale(size: int, dtype: torch.dtype, factor_type: torch.dtype, device: torch.device) -> Launcher:
    """The kernel that multiplies ``size`` numbers."""
    from manyhot.engines.triton.rows.totals import scale_kernel

    return launcher(scale_kernel, (SCALED,), 8, (dtype, factor_type, device), (size,))
