"""A kernel that writes down the bits of listed labels as ``rows.bits`` gives them."""

import triton
import triton.language as tl

from manyhot.engines.triton.rows.bits import listed_near, listed_words


@triton.jit
def near_kernel(
    out, offsets, indices, num_rows, ROWS: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr, PER: tl.constexpr
):
    """PER neighbours to an integer, of PARTS x BLOCK labels of ROWS rows."""
    rows = tl.arange(0, ROWS)
    low, high = listed_words(offsets, indices, rows, rows < num_rows, BLOCK * PARTS)
    words = tl.arange(0, BLOCK // PER)
    for part in tl.static_range(PARTS):
        near = listed_near(low, high, part * BLOCK, BLOCK, PER)
        tl.store(out + rows[:, None] * (BLOCK * PARTS // PER) + part * (BLOCK // PER) + words[None, :], near)
