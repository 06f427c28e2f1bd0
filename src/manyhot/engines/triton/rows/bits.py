"""Index lists of short rows as bits (CUDA): all labels of a row at once, instead of one after the other."""

from __future__ import annotations

import triton
import triton.language as tl

# The most listed labels of a row that are read at once; longer lists take several rounds.
AT_ONCE = tl.constexpr(8)


@triton.jit
def _either(a, b):
    return a | b


@triton.jit
def listed_words(offsets, indices, rows, in_rows, SEGMENT: tl.constexpr):
    """The listed labels of each row as bits of two words, of 64 labels each."""
    start = tl.load(offsets + rows, mask=in_rows, other=0)
    left = (tl.load(offsets + rows + 1, mask=in_rows, other=0) - start).to(tl.int32)
    # A row of two labels lists no more than two.
    LANES: tl.constexpr = min(AT_ONCE, SEGMENT)
    lanes = tl.arange(0, LANES)[None, :]
    low = tl.zeros([rows.shape[0]], tl.int64)
    high = low
    done = 0
    while done < tl.max(left, axis=0):
        entry = done + lanes
        place = tl.load(indices + start[:, None] + entry, mask=entry < left[:, None], other=-1).to(tl.int32)
        bit = tl.full([1, 1], 1, tl.int64) << (place & 63).to(tl.int64)
        low = low | tl.reduce(tl.where((place >> 6) == 0, bit, 0), 1, _either)
        if SEGMENT > 64:
            high = high | tl.reduce(tl.where((place >> 6) == 1, bit, 0), 1, _either)
        done += LANES
    return low, high


@triton.jit
def listed_bits(low, high, first, columns, BLOCK: tl.constexpr, NEAR: tl.constexpr):
    """Which labels of the tile are listed. A thread has NEAR neighbours: it shifts once, and tests bits that are known."""
    shift, bit = columns & (63 & ~(NEAR - 1)), columns & (NEAR - 1)
    if first >= 64:
        word = high[:, None]
    elif first + BLOCK > 64:
        word = tl.where((columns < 64)[None, :], low[:, None], high[:, None])
    else:
        word = low[:, None]
    near = (word >> shift[None, :].to(tl.int64)).to(tl.int32)
    return (near & (1 << bit)[None, :]) != 0
