"""Index lists as bits (CUDA): all labels of a short row at once, and eight of a long one, instead of one after the other."""

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
    return words_between(indices, start, tl.load(offsets + rows + 1, mask=in_rows, other=0), 0, SEGMENT)


@triton.jit
def words_between(indices, start, stop, first, SEGMENT: tl.constexpr):
    """The same of the entries from ``start`` to ``stop``, for the labels from the ``first`` on; others have no bit."""
    left = (stop - start).to(tl.int32)
    # A row of two labels lists no more than two.
    LANES: tl.constexpr = min(AT_ONCE, SEGMENT)
    lanes = tl.arange(0, LANES)[None, :]
    low = tl.zeros([start.shape[0]], tl.int64)
    high = low
    done = 0
    while done < tl.max(left, axis=0):
        entry = done + lanes
        place = tl.load(indices + start[:, None] + entry, mask=entry < left[:, None], other=-1).to(tl.int32) - first
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


@triton.jit
def listed_tile(indices, first, cursor, stop, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    """Which of BLOCK labels of one row from the ``first`` on are listed, ``[1, BLOCK]``, and the cursor behind them. A thread
    has GROUP neighbours."""
    SHIFT: tl.constexpr = 3 if GROUP == 8 else 2
    groups = tl.arange(0, BLOCK // GROUP)[:, None]
    bits = groups * 0
    more = cursor < stop
    while more:
        passed = 0
        for step in tl.static_range(AT_ONCE):
            entry = cursor + step
            label = tl.load(indices + entry, mask=entry < stop, other=first + BLOCK).to(tl.int32) - first
            bits = bits | tl.where(groups == label >> SHIFT, 1 << (label & (GROUP - 1)), 0)
            passed += tl.where(label < BLOCK, 1, 0)
        cursor += passed
        more = (passed == AT_ONCE) & (cursor < stop)
    return tl.reshape(((bits >> tl.arange(0, GROUP)[None, :]) & 1) != 0, [1, BLOCK]), cursor


@triton.jit
def marked_tile(bits, first, in_rows, ROWS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    """Which of BLOCK labels are marked (``flat_lists.mark_kernel``), from the place ``first`` of each row on, a multiple of
    GROUP; what lies behind a row is of the next one."""
    at = first[:, None, None] + tl.arange(0, BLOCK // GROUP)[None, :, None] * GROUP
    near = tl.load(bits + at // 8, mask=in_rows[:, None, None], other=0).to(tl.int32)
    if GROUP == 4:
        near = near >> (at % 8).to(tl.int32)
    return tl.reshape((near & (1 << tl.arange(0, GROUP)[None, None, :])) != 0, [ROWS, BLOCK])
