"""Final steps of a loss (CUDA): the reduction of the values of the rows, and the gradient times a factor."""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.rows.early import start_early

ADDED = tl.constexpr(1024)


@triton.jit
def _sum_rows(values, row_scale, size, HAS_SCALE: tl.constexpr, BLOCK: tl.constexpr, FRESH: tl.constexpr):
    """``sum scale values``, always in the same order; rows with a scale of 0 are skipped. FRESH values were written by this
    kernel."""
    lanes = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        place = start + tl.arange(0, BLOCK)
        value = tl.load(values + place, mask=place < size, other=0, volatile=FRESH)
        if HAS_SCALE:
            scale = tl.load(row_scale + place, mask=place < size, other=0).to(tl.float32)
            value = tl.where(scale == 0, 0.0, value * scale)
        lanes += value
    return tl.sum(lanes, axis=0)


@triton.jit
def total_kernel(values, row_scale, out, size, scale_number, divisor, HAS_SCALE: tl.constexpr, BLOCK: tl.constexpr):
    """``sum scale values / divisor`` by one program."""
    tl.store(out, tl.div_rn(_sum_rows(values, row_scale, size, HAS_SCALE, BLOCK, False) * scale_number, divisor))


@triton.jit
def store_sum(out, value, scale, counts, SCALE: tl.constexpr):
    """Store the sum of a program's values that count, each times the scale of its row if rows have scales."""
    if SCALE == "rows":
        value, counts = value * scale, counts & (scale != 0)
    tl.store(out, tl.sum(tl.where(counts, value, 0.0), axis=0))


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
            store_sum(out + row // ROWS, value, scale, counts, SCALE)
        else:
            if chunk == 0:
                store_sum(out + row, value, scale, counts, SCALE)


@triton.jit
def add_up(
    out, ended, sums, num_rows, scale_number, chunk, SCALE: tl.constexpr, CHUNKS: tl.constexpr, TOTAL: tl.constexpr
):  # fmt: skip
    """The last program reduces the partial sums of all programs in ``sums`` to the "sum" of the rows or their "mean". ``ended``
    counts the finished programs; the last one resets it to 0. Of a row in chunks, only the first chunk takes part.
    """
    if TOTAL == "sum" or TOTAL == "mean":  # noqa: SIM102 - a compile-time condition, then a runtime one
        if chunk == 0:
            tl.debug_barrier()
            num_sums = tl.num_programs(0) // CHUNKS
            if tl.atomic_add(ended, 1, sem="acq_rel", scope="gpu") == num_sums - 1:
                total = _sum_rows(sums, sums, num_sums, False, ADDED, True)
                if TOTAL == "mean":
                    total = tl.div_rn(total, tl.cast(num_rows, tl.float32))
                elif SCALE == "number":
                    total *= scale_number
                tl.store(out, total)
                tl.store(ended, 0)


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
