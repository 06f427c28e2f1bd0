"""Prefix sums of float64 in an order that depends on nothing but the place: host side.

Those of torch on a GPU differ from run to run. Here tiles of a fixed size are summed by themselves, and the sums of the tiles
before a tile are added, which are prefix sums again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.triton.calls import type_of
from manyhot.engines.triton.launch.gate import GATE as GATE
from manyhot.engines.triton.launch.gate import LaunchError, interpreted, refusal
from manyhot.engines.triton.launch.launcher import launcher
from manyhot.engines.triton.plans import blocks

# Values of a tile, and warps per program.
TILE, WARPS = 1024, 4


def prefix_sums(values: Tensor) -> Tensor | None:
    """The prefix sums of ``values``, float64 ``[N]``; None if no kernel supports the call. Does not wait for the device."""
    if values.dtype != torch.float64 or values.is_cuda == interpreted() or not values.is_contiguous() or not len(values):
        return None
    if type(values) is not Tensor or refusal(values.get_device() if values.is_cuda else None):
        return None
    try:
        return launch(values)
    except LaunchError as failure:
        GATE.close(failure)
        return None


def launch(values: Tensor) -> Tensor:
    """Launch the kernels of ``prefix_sums``."""
    tiles = blocks(len(values), TILE)
    before = None
    if tiles > 1:
        before = values.new_empty(tiles)
        _start(values, None, before, sums=True)
        before = launch(before)
    out = torch.empty_like(values)
    _start(values, before, out, sums=False)
    return out


def _start(values: Tensor, before: Tensor | None, out: Tensor, *, sums: bool) -> None:
    from manyhot.engines.triton.rows.prefix import prefix_kernel

    others, numbers = (before, out), (len(values),)
    types = (values.device, *map(type_of, (values, *others)))
    start = launcher(prefix_kernel, (sums, before is not None, TILE), WARPS, types, numbers)
    start(blocks(len(values), TILE), values, others, numbers)
