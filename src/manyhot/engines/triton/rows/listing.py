"""The scores between two levels, listed in one read of all scores (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("capacity",))
def listing_kernel(
    x, levels, values, places, state, level, top, num_scores, capacity, tiles, ON_DEVICE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Append scores from ``level`` to ``top`` and their places, in any order. ``state``, int64 and zero before: how many were
    found, also beyond the capacity, and the key of the highest score below ``level``, as an integer that sorts like the scores
    and is above 0. With ON_DEVICE, both levels are read from ``levels``."""
    if ON_DEVICE:
        level = tl.load(levels)
        top = tl.load(levels + 1)
    columns = tl.arange(0, BLOCK)
    below = -float("inf")
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        first = tl.cast(tile, tl.int64) * BLOCK
        s = tl.load(x + first + columns, mask=columns < num_scores - first, other=-float("inf"))
        # Most tiles have no score to list: their maximum says so, and is all that is needed of them.
        highest = tl.max(s)
        if highest >= level:
            kept = (s >= level) & (s <= top) & (columns < num_scores - first)
            rank = tl.cumsum(kept.to(tl.int32), 0) - 1
            number = tl.sum(kept.to(tl.int32))
            begin = tl.atomic_add(state, number.to(tl.int64), sem="relaxed")
            fits = kept & (rank < capacity - begin)
            tl.store(values + begin + rank, s, mask=fits)
            tl.store(places + begin + rank, first + columns, mask=fits)
            highest = tl.max(tl.where(s < level, s, -float("inf")))
        below = tl.maximum(below, highest)
    # As integers, the bits of floats sort like the floats if those of negative ones are flipped. Both zeros become +0.
    bits = tl.where(below == 0, 0.0, below).to(tl.int32, bitcast=True)
    key = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) + 2147483648
    tl.atomic_max(state + 1, key, sem="relaxed")
