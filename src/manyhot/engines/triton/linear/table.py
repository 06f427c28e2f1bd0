"""Row-wise AdaGrad on the rows of a table that occur in a sparse batch, in one kernel (CUDA)."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.triton.engine import available
from manyhot.engines.triton.launch.launcher import interpreted
from manyhot.engines.triton.linear.inputs import launch

WIDEST = 4096
# Numbers of a tile: entries times the width.
TILE = 8192


def serves(weight: Tensor) -> bool:
    """Whether the kernel can update ``weight``."""
    return weight.is_cuda != interpreted() and weight.shape[1] <= WIDEST and available()[0]


def update(
    weight: Tensor, squares: Tensor, rate: Tensor, columns: Tensor, rows: Tensor, values: Tensor, gradient: Tensor
) -> None:
    """Move the rows of ``weight [F, H]`` by ``x^T g``, with ``x`` given by entries.

    Args:
        weight: changed.
        squares: ``[F]``, the sums of mean squared gradients; changed.
        rate: one number on the device.
        columns: ``[E]``, of the entries.
        rows: ``[E]``, of the entries.
        values: ``[E]``.
        gradient: float32 ``[B, H]``.
    """
    from manyhot.engines.triton.linear.table_kernel import table_update_kernel

    ordered, order = columns.sort(stable=True)
    size, width = columns.shape[0], weight.shape[1]
    block = 1 << max(width - 1, 0).bit_length()
    launch(
        table_update_kernel,
        size,
        (weight, ordered, order, rows, values, gradient, squares, rate),
        (size, width, weight.stride(0), gradient.stride(0)),
        (max(min(TILE // block, 16), 1), block),
        4 if block <= 1024 else 8,
    )
    torch.autograd.graph.increment_version(weight)
