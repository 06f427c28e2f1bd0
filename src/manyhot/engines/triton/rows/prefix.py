"""Prefix sums of tiles (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("size",))
def prefix_kernel(x, before, out, size, SUMS: tl.constexpr, HAS_BEFORE: tl.constexpr, BLOCK: tl.constexpr):
    """The prefix sums of a tile of BLOCK values. With SUMS only the last of them, to ``out [tiles]``; otherwise all, plus the
    number in ``before [tiles]`` of the tile before."""
    tile = tl.program_id(0).to(tl.int64)
    places = tile * BLOCK + tl.arange(0, BLOCK)
    total = tl.cumsum(tl.load(x + places, mask=places < size, other=0.0), 0)
    if SUMS:
        last = tl.arange(0, BLOCK) == BLOCK - 1
        tl.store(out + tile, tl.sum(tl.where(last, total, 0.0), axis=0))
    else:
        if HAS_BEFORE:
            total += tl.load(before + tile - 1, mask=tile > 0, other=0.0)
        tl.store(out + places, total, mask=places < size)
