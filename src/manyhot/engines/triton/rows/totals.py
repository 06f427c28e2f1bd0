"""Final steps of a loss (CUDA): the reduction of the values of the rows, and the gradient times a factor."""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.rows.early import start_early
from manyhot.engines.triton.rows.waiting import count_look

# Slots read at once.
ADDED = tl.constexpr(1024)
# The bit of a slot that says that it holds a number.
FILLED = tl.constexpr(1 << 32)


@triton.jit
def _sum_rows(values, row_scale, size, HAS_SCALE: tl.constexpr, BLOCK: tl.constexpr):
    """``sum scale values``, always in the same order; rows with a scale of 0 are skipped."""
    lanes = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        place = start + tl.arange(0, BLOCK)
        value = tl.load(values + place, mask=place < size, other=0)
        if HAS_SCALE:
            scale = tl.load(row_scale + place, mask=place < size, other=0).to(tl.float32)
            value = tl.where(scale == 0, 0.0, value * scale)
        lanes += value
    return tl.sum(lanes, axis=0)


@triton.jit
def total_kernel(values, row_scale, out, size, scale_number, divisor, HAS_SCALE: tl.constexpr, BLOCK: tl.constexpr):
    """``sum scale values / divisor`` by one program."""
    start_early()
    tl.store(out, tl.div_rn(_sum_rows(values, row_scale, size, HAS_SCALE, BLOCK) * scale_number, divisor))


@triton.jit
def fill_slot(slots, place, value):
    """Store a program's sum for ``add_up``: the number and the sign that it is there in one word, so that neither needs a
    fence, which would wait for all that the program has written."""
    bits = value.to(tl.int32, bitcast=True).to(tl.int64) & (FILLED - 1)
    tl.store(tl.cast(slots, tl.pointer_type(tl.int64)) + place, bits | FILLED)


@triton.jit
def store_sum(slots, place, value, scale, counts, SCALE: tl.constexpr):
    """Store the sum of a program's values that count, each times the scale of its row if rows have scales."""
    if SCALE == "rows":
        value, counts = value * scale, counts & (scale != 0)
    fill_slot(slots, place, tl.sum(tl.where(counts, value, 0.0), axis=0))


@triton.jit
def store_values(
    out, value, scale, row, rows, counts, chunk,
    SCALE: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """Store the values of a program's rows; only the program of a row's first chunk does. With a TOTAL of "sum" or "mean",
    store their sum; with "again", nothing."""
    if TOTAL == "none":
        tl.store(out + rows, value, mask=counts & (tl.zeros([ROWS], tl.int32) + chunk == 0))
    elif TOTAL != "again":
        if CHUNKS == 1:
            store_sum(out, row // ROWS, value, scale, counts, SCALE)
        else:
            if chunk == 0:
                store_sum(out, row, value, scale, counts, SCALE)


@triton.jit
def add_up(
    out, slots, num_rows, scale_number, chunk, SCALE: tl.constexpr, CHUNKS: tl.constexpr, TOTAL: tl.constexpr
):  # fmt: skip
    """The last program reduces the sums of all programs in ``slots`` to the "sum" of the rows or their "mean". Of a row in
    chunks, only the first chunk takes part.

    A device starts programs in the order of their numbers, so the last one waits only for programs that have started.
    """
    if TOTAL == "sum" or TOTAL == "mean":
        num_sums = tl.num_programs(0) // CHUNKS
        if chunk == 0 and tl.program_id(0) // CHUNKS == num_sums - 1:
            total = _take_slots(tl.cast(slots, tl.pointer_type(tl.int64)), num_sums)
            if TOTAL == "mean":
                total = tl.div_rn(total, tl.cast(num_rows, tl.float32))
            elif SCALE == "number":
                total *= scale_number
            tl.store(out, total)


@triton.jit
def _take_slots(slots, size):
    """Wait for the numbers of all slots and add them up, always in the same order. The slots are left empty."""
    total, there, looks = 0.0, 0, 0
    while there == 0:
        # All slots are read again if one is empty, so that no load waits for the one before.
        lanes, filled = tl.zeros([ADDED], tl.float32), tl.full([ADDED], 1, tl.int32)
        for start in range(0, size, ADDED):
            place = start + tl.arange(0, ADDED)
            word = tl.load(slots + place, mask=place < size, other=FILLED, volatile=True)
            filled = filled & (word >> 32).to(tl.int32)
            lanes += word.to(tl.int32).to(tl.float32, bitcast=True)
        total, there = tl.sum(lanes, axis=0), tl.min(filled, axis=0)
        looks = count_look(looks)
    for start in range(0, size, ADDED):
        place = start + tl.arange(0, ADDED)
        tl.store(slots + place, tl.zeros([ADDED], tl.int64), mask=place < size)
    return total


@triton.jit
def is_finished(factor, scale_number, used):
    """Whether the gradient was already written with the current factor."""
    return tl.load(factor) * scale_number == tl.load(used)


@triton.jit
def note_factor(factor, scale_number, used, expected, SCALE: tl.constexpr, TOTAL: tl.constexpr):
    """If one factor on the device scales all rows, store it: as the factor used, or with "again" as the one to expect."""
    if SCALE == "one":  # noqa: SIM102 - a compile-time condition, then a runtime one
        if tl.program_id(0) == 0:
            tl.store(expected if TOTAL == "again" else used, tl.load(factor) * scale_number)


@triton.jit
def scale_kernel(grad, factor, size, BLOCK: tl.constexpr):
    """``grad *= factor`` with the factor on the device; a factor of 1 writes nothing."""
    start_early()
    by = tl.load(factor).to(tl.float32)
    if by != 1.0:
        for start in range(tl.program_id(0).to(tl.int64) * BLOCK, size, tl.num_programs(0).to(tl.int64) * BLOCK):
            place = start + tl.arange(0, BLOCK)
            value = tl.load(grad + place, mask=place < size).to(tl.float32)
            tl.store(grad + place, (value * by).to(grad.dtype.element_ty), mask=place < size)
