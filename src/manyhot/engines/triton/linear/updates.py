"""Host side of the update kernels: cuBLAS computes the gradient of a chunk's weights, and one kernel over rows applies it."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from manyhot.engines.triton.calls import blocks
from manyhot.engines.triton.engine import available
from manyhot.engines.triton.launch.launcher import interpreted, launcher
from manyhot.engines.triton.linear.inputs import aligned_parts

# Rows per program.
ROWS = 4
WIDEST = 8192
# The largest part of the weights' gradient that exists at once.
CHANGE_BYTES = 64 << 20


def serves(weight: Tensor) -> bool:
    """Whether the kernels can update ``weight``."""
    return available()[0] and weight.is_cuda != interpreted() and weight.shape[1] <= WIDEST


def apply(update: Any, hidden: Tensor, start: int, stop: int, grad: Tensor) -> None:
    """Update the labels ``start`` to ``stop``; see ``manyhot.engines.linear.updates.FusedUpdate``."""
    size = max(CHANGE_BYTES // (update.weight.shape[1] * update.weight.element_size()) // 512, 1) * 512
    for first in range(start, stop, size):
        for begin, end in aligned_parts(min(first + size, stop) - first):
            _apply(update, hidden, first + begin, first + end, grad[:, first - start + begin : first - start + end])


def _apply(update: Any, hidden: Tensor, start: int, stop: int, grad: Tensor) -> None:
    weight, squares = update.weight, update.squares
    change = _product(grad.mT, hidden, weight.dtype)
    width = weight.shape[1]
    constants = (update.kind, weight.dtype == torch.bfloat16, ROWS, 1 << max(width - 1, 0).bit_length())
    numbers = (
        stop - start,
        start,
        update.offset,
        width,
        weight.stride(0),
        change.stride(0),
        update.weight_decay,
        update.epsilon,
    )
    types = (weight.device, weight.dtype, change.dtype, None if squares is None else squares.dtype)
    run = launcher(_kernel(), constants, 4, types, numbers)
    run(blocks(stop - start, ROWS), weight, (change, squares, update.seed, update.step, update.rate), numbers)


def _product(a: Tensor, b: Tensor, kind: torch.dtype) -> Tensor:
    """``a @ b``, in float32 for weights of float32."""
    if kind == torch.float32 and a.dtype != kind and a.is_cuda:
        return torch.mm(a, b, out_dtype=kind)
    return torch.mm(a, b)


@functools.cache
def _kernel() -> Any:
    from manyhot.engines.triton.linear.update_kernel import row_update_kernel

    return row_update_kernel
