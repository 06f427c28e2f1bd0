"""One row computed by several programs (CUDA): they publish their sums, wait for each other, and merge them.

There are two methods. (1) Each program stores its sums, and every program merges them in the order of the chunks. (2) The sums
are added atomically as integers, so that the order does not matter, in words that also count the arrivals: one read returns
both the counts and the sums, without memory fences. The second method is faster, but it needs free registers and unshifted sums
that fit into the integers; all other sums use the first.

A device starts programs in the order of their numbers, which CUB's single-pass scan assumes too. So the programs of a row start
one after the other, and none waits for a program that cannot start, as long as a row has no more programs than the device runs
at once; the host guarantees that.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import distance, exp
from manyhot.engines.triton.plans import COUNTER_STRIDE
from manyhot.engines.triton.rows.tiles import add_pairs, finish, larger_pairs
from manyhot.engines.triton.rows.totals import store_values
from manyhot.engines.triton.rows.waiting import count_look

STRIDE = tl.constexpr(COUNTER_STRIDE)
# Offset of the arrival counter in a row's line.
PUBLISHED = tl.constexpr(16)
# A sum is two integers, in units of 2^-24 and 2^-72, so every float from 2^-48 on is represented exactly. 255 sums below 2^24
# do not overflow into the eight bits of the counter.
SMALLEST = tl.constexpr(2.0**-48)
LARGEST = tl.constexpr(2.0**24)
UNITS = tl.constexpr(2.0**24)
PARTS = tl.constexpr(2.0**48)
COUNT = tl.constexpr(56)
LANES = tl.constexpr(128)


@triton.jit
def publish(partial, rows, chunk, pos_top, pos_sum, neg_top, neg_sum, in_rows, CHUNKS: tl.constexpr):
    """Write the four numbers of a chunk."""
    place = partial + (rows * CHUNKS + chunk) * 4
    tl.store(place, pos_top, mask=in_rows)
    tl.store(place + 1, pos_sum, mask=in_rows)
    tl.store(place + 2, neg_top, mask=in_rows)
    tl.store(place + 3, neg_sum, mask=in_rows)


@triton.jit
def merge_chunks(partial, row, FORM: tl.constexpr, CHUNKS: tl.constexpr, MANY: tl.constexpr):
    """Each side's largest exponent and sum ``[1]`` from those of a row's chunks, by a fixed reduction tree."""
    chunks = tl.arange(0, MANY)
    place = partial + (row.to(tl.int64) * CHUNKS + chunks) * 4
    pos_top = tl.load(place, mask=chunks < CHUNKS, other=0, volatile=True)
    pos_sum = tl.load(place + 1, mask=chunks < CHUNKS, other=0, volatile=True)
    neg_top = tl.load(place + 2, mask=chunks < CHUNKS, other=0, volatile=True)
    neg_sum = tl.load(place + 3, mask=chunks < CHUNKS, other=0, volatile=True)
    if FORM == "split":
        pos_high, neg_high = tl.reduce((pos_top, neg_top), 0, larger_pairs)
    else:
        seen = tl.where(pos_sum == 0, -float("inf"), pos_top), tl.where(neg_sum == 0, -float("inf"), neg_top)
        pos_high, neg_high = tl.reduce(seen, 0, larger_pairs)
    pos_high = tl.where(pos_high == -float("inf"), 0.0, pos_high)
    neg_high = tl.where(neg_high == -float("inf"), 0.0, neg_high)
    pos_terms = tl.where(pos_sum == 0, 0.0, pos_sum * exp(distance(pos_top, pos_high)))
    neg_terms = tl.where(neg_sum == 0, 0.0, neg_sum * exp(distance(neg_top, neg_high)))
    pos_all, neg_all = tl.reduce((pos_terms, neg_terms), 0, add_pairs)
    one = tl.zeros([1], tl.float32)
    return one + pos_high, one + pos_all, one + neg_high, one + neg_all


@triton.jit
def _fits(value):
    return (value == 0) | ((value >= SMALLEST) & (value < LARGEST))


@triton.jit
def _add_triples(a, b, c, d, e, f):
    return a + d, b + e, c + f


@triton.jit
def add_chunks(arrived, row, pos_top, pos_sum, neg_top, neg_sum, CHUNKS: tl.constexpr):
    """Add this program's sums to those of its row, and wait for all programs of the row. Returns both sums of the row, and the
    number of programs whose sums could not be added, because a top is not 0 or a sum is out of range.

    Five words of the row's line hold two integers for the negative sum, two for the positive sum, and that number.
    """
    lanes = tl.arange(0, LANES)
    words = tl.cast(arrived + row * STRIDE, tl.pointer_type(tl.int64)) + lanes
    fits = (pos_top == 0) & (neg_top == 0) & _fits(pos_sum) & _fits(neg_sum)
    units = tl.where(fits, tl.where(lanes < 2, neg_sum, pos_sum), 0.0) * UNITS
    whole = tl.floor(units)
    word = tl.where(lanes % 2 == 0, whole, (units - whole) * PARTS).to(tl.int64)
    word = tl.where(lanes == 4, tl.where(fits, 0, 1).to(tl.int64), word)
    tl.atomic_add(words, word + (1 << COUNT), mask=lanes < 5, sem="relaxed", scope="gpu")
    seen = tl.load(words, mask=lanes < 5, other=-1, volatile=True)
    looks = 0
    while tl.min(((seen >> COUNT) & 255).to(tl.int32), axis=0) < CHUNKS:
        looks = count_look(looks)
        seen = tl.load(words, mask=lanes < 5, other=-1, volatile=True)
    value = (seen & ((1 << COUNT) - 1)).to(tl.float32)
    part = tl.where(lanes % 2 == 0, value * (1.0 / UNITS), value * (1.0 / UNITS) * (1.0 / PARTS))
    negative, positive = lanes < 2, (lanes >= 2) & (lanes < 4)
    parts = tl.where(positive, part, 0.0), tl.where(negative, part, 0.0), tl.where(lanes == 4, value, 0.0)
    return tl.reduce(parts, 0, _add_triples)


@triton.jit
def wait_for_row(arrived, row, CHUNKS: tl.constexpr):
    """Signal that this program has published, and wait for all programs of its row."""
    tl.debug_barrier()
    counter = arrived + row * STRIDE + PUBLISHED
    tl.atomic_add(counter, 1, sem="release", scope="gpu")
    looks = 0
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < CHUNKS:
        looks = count_look(looks)
    tl.debug_barrier()


@triton.jit
def _merge_published(
    pos_top, pos_sum, neg_top, neg_sum, partial, arrived, row, rows, in_rows, chunk,
    FORM: tl.constexpr, CHUNKS: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    """The first method: publish, wait, merge."""
    publish(partial, rows, chunk, pos_top, pos_sum, neg_top, neg_sum, in_rows, CHUNKS)
    wait_for_row(arrived, row, CHUNKS)
    return merge_chunks(partial, row, FORM, CHUNKS, MANY)


@triton.jit
def conclude(
    pos_top, pos_sum, neg_top, neg_sum, c, out_value, out_slope, row_scale, scale_number, partial, arrived,
    row, rows, in_rows, chunk,
    OFFSET: tl.constexpr, SCALE: tl.constexpr, FORM: tl.constexpr, CHUNKS: tl.constexpr, MANY: tl.constexpr,
    ROWS: tl.constexpr, INTEGERS: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """Compute the loss of a tile's rows from its sums and store it. Returns the factors of the tile's terms in the gradient.

    With a TOTAL of "sum" or "mean", the sum of the losses is stored, one number per tile; with "again", no loss is stored.
    SCALE says what scales the gradient: a "number", one value per row ("rows"), or "one" value on the device.
    """
    pos_here, neg_here = pos_top, neg_top
    no_pos, no_neg = pos_sum == 0, neg_sum == 0
    if CHUNKS > 1:
        if INTEGERS:
            pos_all, neg_all, others = add_chunks(arrived, row, pos_top, pos_sum, neg_top, neg_sum, CHUNKS)
            if others == 0:
                pos_sum, neg_sum = tl.zeros([ROWS], tl.float32) + pos_all, tl.zeros([ROWS], tl.float32) + neg_all
            else:
                pos_top, pos_sum, neg_top, neg_sum = _merge_published(
                    pos_top, pos_sum, neg_top, neg_sum, partial, arrived, row, rows, in_rows, chunk, FORM, CHUNKS, MANY
                )
        else:
            pos_top, pos_sum, neg_top, neg_sum = _merge_published(
                pos_top, pos_sum, neg_top, neg_sum, partial, arrived, row, rows, in_rows, chunk, FORM, CHUNKS, MANY
            )
    value, slope, pos_factor, neg_factor = finish(pos_top, pos_sum, neg_top, neg_sum, c, FORM)
    if OFFSET == "row":
        tl.store(out_slope + rows, slope, mask=in_rows & (tl.zeros([ROWS], tl.int32) + chunk == 0))
    scale = tl.zeros([ROWS], tl.float32) + scale_number
    if SCALE == "rows":
        scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
    elif SCALE == "one":
        scale = scale * tl.load(row_scale)
    store_values(out_value, value, scale, row, rows, in_rows, chunk, SCALE, CHUNKS, ROWS, TOTAL)
    pos_factor, neg_factor = pos_factor * scale, neg_factor * scale
    if CHUNKS > 1:
        pos_factor *= exp(distance(pos_here, pos_top))
        neg_factor *= exp(distance(neg_here, neg_top))
        if FORM != "split":
            # A chunk without terms of a side has 0 as its exponent, which may be far above those of the other chunks.
            pos_factor, neg_factor = tl.where(no_pos, 0.0, pos_factor), tl.where(no_neg, 0.0, neg_factor)
    return pos_factor, neg_factor
