"""One row by several programs (CUDA): they publish their sums, wait for each other, and merge them in one order.

A device starts programs in the order of their numbers, as CUB's single-pass scan takes for granted too. So the programs of a
row start one behind the other, and none of them waits for one that has no place, provided that a row has no more programs than
the device runs at once; the host sees to that. The result does not depend on who came first.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.kernels.triton_math import distance, exp
from manyhot.kernels.triton_plans import APART
from manyhot.kernels.triton_tiles import add_pairs, finish

COUNTERS_APART = tl.constexpr(APART)


@triton.jit
def publish(partial, rows, chunk, pos_top, pos_sum, neg_top, neg_sum, in_rows, CHUNKS: tl.constexpr):
    """Write the four numbers of a chunk."""
    place = partial + (rows * CHUNKS + chunk) * 4
    tl.store(place, pos_top, mask=in_rows)
    tl.store(place + 1, pos_sum, mask=in_rows)
    tl.store(place + 2, neg_top, mask=in_rows)
    tl.store(place + 3, neg_sum, mask=in_rows)


@triton.jit
def _larger_pairs(a, b, c, d):
    return tl.maximum(a, c), tl.maximum(b, d)


@triton.jit
def merge_chunks(partial, row, FORM: tl.constexpr, CHUNKS: tl.constexpr, MANY: tl.constexpr):
    """Each side's largest exponent and sum ``[1]`` from those of a row's chunks, by a tree that is always the same."""
    chunks = tl.arange(0, MANY)
    place = partial + (row.to(tl.int64) * CHUNKS + chunks) * 4
    pos_top = tl.load(place, mask=chunks < CHUNKS, other=0, volatile=True)
    pos_sum = tl.load(place + 1, mask=chunks < CHUNKS, other=0, volatile=True)
    neg_top = tl.load(place + 2, mask=chunks < CHUNKS, other=0, volatile=True)
    neg_sum = tl.load(place + 3, mask=chunks < CHUNKS, other=0, volatile=True)
    if FORM == "split":
        pos_high, neg_high = tl.reduce((pos_top, neg_top), 0, _larger_pairs)
    else:
        seen = tl.where(pos_sum == 0, -float("inf"), pos_top), tl.where(neg_sum == 0, -float("inf"), neg_top)
        pos_high, neg_high = tl.reduce(seen, 0, _larger_pairs)
    pos_high = tl.where(pos_high == -float("inf"), 0.0, pos_high)
    neg_high = tl.where(neg_high == -float("inf"), 0.0, neg_high)
    pos_terms = tl.where(pos_sum == 0, 0.0, pos_sum * exp(distance(pos_top, pos_high)))
    neg_terms = tl.where(neg_sum == 0, 0.0, neg_sum * exp(distance(neg_top, neg_high)))
    pos_all, neg_all = tl.reduce((pos_terms, neg_terms), 0, add_pairs)
    one = tl.zeros([1], tl.float32)
    return one + pos_high, one + pos_all, one + neg_high, one + neg_all


@triton.jit
def wait_for_row(arrived, row, CHUNKS: tl.constexpr):
    """Say that this program has published, and wait until all programs of its row have."""
    tl.debug_barrier()
    counter = arrived + row * COUNTERS_APART
    tl.atomic_add(counter, 1, sem="release", scope="gpu")
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < CHUNKS:
        pass
    tl.debug_barrier()


@triton.jit
def conclude(
    pos_top, pos_sum, neg_top, neg_sum, c, out_value, out_slope, row_scale, scale_number, partial, arrived,
    row, rows, in_rows, chunk,
    OFFSET: tl.constexpr, HAS_SCALE: tl.constexpr, FORM: tl.constexpr, CHUNKS: tl.constexpr, MANY: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """From the sums of a tile to the loss of its rows, which is stored, and the factors of its terms in the gradient."""
    pos_here, neg_here = pos_top, neg_top
    if CHUNKS > 1:
        publish(partial, rows, chunk, pos_top, pos_sum, neg_top, neg_sum, in_rows, CHUNKS)
        wait_for_row(arrived, row, CHUNKS)
        pos_top, pos_sum, neg_top, neg_sum = merge_chunks(partial, row, FORM, CHUNKS, MANY)
    value, slope, pos_factor, neg_factor = finish(pos_top, pos_sum, neg_top, neg_sum, c, FORM)
    mine = in_rows & (tl.zeros([ROWS], tl.int32) + chunk == 0)
    tl.store(out_value + rows, value, mask=mine)
    if OFFSET == "row":
        tl.store(out_slope + rows, slope, mask=mine)
    scale = tl.zeros([ROWS], tl.float32) + scale_number
    if HAS_SCALE:
        scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
    pos_factor, neg_factor = pos_factor * scale, neg_factor * scale
    if CHUNKS > 1:
        pos_factor *= exp(distance(pos_here, pos_top))
        neg_factor *= exp(distance(neg_here, neg_top))
    return pos_factor, neg_factor
