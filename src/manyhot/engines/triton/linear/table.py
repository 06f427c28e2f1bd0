"""Sums of the rows of a table that a sparse batch names, and row-wise AdaGrad on them (CUDA).

A frequent word occurs in half of the rows of a batch. Its gradient is summed in parts by several programs: one alone would take
longer than all others together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.triton.calls import blocks
from manyhot.engines.triton.engine import available
from manyhot.engines.triton.launch.launcher import interpreted
from manyhot.engines.triton.linear.inputs import launch

WIDEST = 4096
# The column of a padding entry; see ``table_kernel``.
NO_COLUMN = 2**31 - 1
SUMMED = (torch.float32, torch.bfloat16, torch.float16, torch.int8)
# Elements of a tile: entries times the width.
TILE = 8192
# Entries that one program sums.
PART = 64


def serves(weight: Tensor) -> bool:
    """Whether the kernel can update ``weight``."""
    return weight.is_cuda != interpreted() and weight.shape[1] <= WIDEST and available()[0]


def sums_rows(table: Tensor) -> bool:
    """Whether ``bag`` serves a table. Kernels sum in float32, and are not used in a compiled graph, which cannot trace them."""
    return table.dtype in SUMMED and serves(table) and not torch.compiler.is_compiling()


def bag(table: Tensor, columns: Tensor, offsets: Tensor, values: Tensor | None) -> Tensor:
    """``[R, H]``: the sums of ``values[e] table[columns[e]]`` over the entries of each row, ``table [F, H]``.

    They have the type of the table, float32 for int8. Entries after the last offset are in no row.
    """
    from manyhot.engines.triton.linear.table_kernel import bag_kernel

    rows, width = offsets.shape[0] - 1, table.shape[1]
    out = table.new_empty((rows, width), dtype=torch.float32 if table.dtype == torch.int8 else table.dtype)
    block = 1 << max(width - 1, 0).bit_length()
    constants = (values is not None, max(min(TILE // block, 16), 1), block)
    numbers = (width, table.stride(0), out.stride(0))
    launch(bag_kernel, rows, (table, columns, offsets, values, out), numbers, constants, 4 if block <= 1024 else 8)
    return out


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
    from manyhot.engines.triton.linear.table_kernel import table_join_kernel, table_update_kernel

    ordered, order = columns.sort(stable=True)
    size, width = columns.shape[0], weight.shape[1]
    block, parts = 1 << max(width - 1, 0).bit_length(), blocks(columns.shape[0], PART)
    partial = gradient.new_empty((parts, 2, width))
    at_once, warps = max(min(TILE // block, 16), 1), 4 if block <= 1024 else 8
    launch(
        table_update_kernel,
        size,
        (weight, ordered, order, rows, values, gradient, squares, rate, partial),
        (size, width, weight.stride(0), gradient.stride(0)),
        (PART, at_once, block),
        warps,
    )
    numbers = (size, width, weight.stride(0))
    launch(table_join_kernel, parts - 1, (weight, ordered, squares, rate, partial), numbers, (PART, at_once, block), warps)
    torch.autograd.graph.increment_version(weight)
