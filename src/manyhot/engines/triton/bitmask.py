"""Index lists as a bitmask with one bit per score: host side.

Reading a list is a chain of dependent loads; a bit is loaded together with its score. For large inputs an extra launch builds
the bitmask first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.triton import plans
from manyhot.engines.triton.calls import Call, can_be_ragged, starts_anywhere
from manyhot.engines.triton.launch.launcher import launcher
from manyhot.engines.triton.plans import blocks


def to_bitmask(x: Tensor, offsets: Tensor, indices: Tensor, size: int) -> Tensor:
    """The bitmask of ``x [R, L]`` in words of 32 bits, padded to ``size`` bits."""
    from manyhot.engines.triton.rows.bitmask import ROWS_PER_PROGRAM, WORDS_PER_PROGRAM, bitmask_kernel

    num_words, (num_rows, num_labels) = blocks(size, 32), x.shape
    bits = x.new_empty(num_words, dtype=torch.int32)
    types, numbers = (x.device, bits.dtype, offsets.dtype, indices.dtype), (num_rows, num_labels, num_words)
    parts = blocks(num_labels, WORDS_PER_PROGRAM)
    start = launcher(bitmask_kernel, (ROWS_PER_PROGRAM, parts, WORDS_PER_PROGRAM), 4, types, numbers)
    start(blocks(num_rows, ROWS_PER_PROGRAM) * parts, bits, (offsets, indices), numbers)
    return bits


def can_use_bitmask(call: Call, *others: Tensor) -> bool:
    """Whether index lists are converted to a bitmask: hard labels, many contiguous scores, and tiles that begin at a group of
    16 bytes, whose bits are read together. ``others`` are read like the scores."""
    x, layout = call.x, call.layout
    if layout.kinds[0] != "lists" or not layout.hard or x.numel() < plans.BITMASK_FROM or not x.is_contiguous():
        return False
    return not starts_anywhere(x) or can_be_ragged(call, *others)


def use_bitmask(call: Call) -> None:
    """Pass a bitmask to the kernel in place of dense labels, padded because tiles may read past the last row."""
    x, plan = call.x, call.layout.plan
    _, offsets, indices, *others = call.inputs
    assert offsets is not None
    assert indices is not None
    bits = to_bitmask(x, offsets, indices, x.numel() + plan.rows * plan.chunks * plan.segment)
    call.inputs = (bits.view(torch.uint8), offsets, indices, *others)  # type: ignore[assignment]
