"""Index lists as bits, one for each score: host side.

A list is read entry by entry, and each read waits for the one before; a bit comes with its score. So where there are many
scores, one more launch marks the listed ones first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.triton import plans
from manyhot.engines.triton.calls import Call
from manyhot.engines.triton.launch.launcher import launcher
from manyhot.engines.triton.plans import blocks


def mark(x: Tensor, offsets: Tensor, indices: Tensor, size: int) -> Tensor:
    """The marks of ``x [R, L]``, with room for ``size`` in all, in words of 32."""
    from manyhot.engines.triton.rows.flat_lists import MARKED_ROWS, mark_kernel

    bits = x.new_zeros(blocks(size, 32), dtype=torch.int32)
    types = (x.device, bits.dtype, offsets.dtype, indices.dtype)
    start = launcher(mark_kernel, (MARKED_ROWS,), 4, types, tuple(x.shape))
    start(blocks(x.shape[0], MARKED_ROWS), bits, (offsets, indices), tuple(x.shape))
    return bits


def can_be_marked(call: Call, *, ragged: bool) -> bool:
    """Whether the index lists of a call become bits: hard ones of many scores, whose rows are read in groups of 16 bytes."""
    x, layout = call.x, call.layout
    if layout.kinds[0] != "lists" or not layout.hard or x.numel() < plans.MARKED or not x.is_contiguous():
        return False
    return ragged or x.shape[1] * x.element_size() % 16 == 0


def mark_call(call: Call) -> None:
    """Give the kernel of a call bits in the place of labels. A tile may reach beyond the last row."""
    x, plan = call.x, call.layout.plan
    _, offsets, indices, *others = call.inputs
    assert offsets is not None
    assert indices is not None
    bits = mark(x, offsets, indices, x.numel() + plan.rows * plan.chunks * plan.segment)
    call.inputs = (bits.view(torch.uint8), offsets, indices, *others)  # type: ignore[assignment]
