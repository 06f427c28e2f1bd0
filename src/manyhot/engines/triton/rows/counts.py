"""Counts of the scores above a cut, by label and by row, in one read of the scores (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("num_rows", "rows_each"), do_not_specialize_on_alignment=("cuts", "out"))
def count_kernel(
    x, cuts, truth, where, out,
    cut, num_rows, num_labels, x_stride, truth_stride, where_stride, col_blocks, rows_each,
    EQUAL: tl.constexpr, PER_LABEL: tl.constexpr, HAS_TRUTH: tl.constexpr, HAS_WHERE: tl.constexpr, BY_ROW: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Some labels of ``rows_each`` rows. ``out``, int32 and zero before: hits, predicted and positive of each label, then of
    each row; then ``num_rows - row`` of the first row with NaN, and of the first with a label that is not 0 or 1. With EQUAL, a
    score that is equal to the cut counts as above.

    The three counts share an integer, 10 bits each, so with ``truth`` a program has fewer than 1,024 labels and rows.
    """
    program = tl.program_id(0)
    columns = program % col_blocks * BLOCK + tl.arange(0, BLOCK)
    first = program // col_blocks * rows_each
    inside = columns < num_labels
    limit = cut
    if PER_LABEL:
        limit = tl.load(cuts + columns, mask=inside, other=0.0)[None, :]
    count = tl.zeros([BLOCK], dtype=tl.int32)
    nan = tl.zeros([BLOCK], dtype=tl.int32)
    soft = tl.zeros([BLOCK], dtype=tl.int32)
    for start in range(first, min(first + rows_each, num_rows), ROWS):
        rows = start + tl.arange(0, ROWS)
        there = (rows < num_rows)[:, None] & inside[None, :]
        row = rows.to(tl.int64)[:, None]
        s = tl.load(x + row * x_stride + columns[None, :], mask=there, other=0).to(tl.float32)
        if HAS_WHERE:
            there = there & (tl.load(where + row * where_stride + columns[None, :], mask=there, other=0) != 0)
        above = (s >= limit if EQUAL else s > limit) & there
        late = (num_rows - rows)[:, None]
        nan = tl.maximum(nan, tl.max(tl.where((s != s) & there, late, 0), axis=0))
        code = above.to(tl.int32)
        if HAS_TRUTH:
            t = tl.load(truth + row * truth_stride + columns[None, :], mask=there, other=0)
            positive = (t == 1) & there
            code = (code << 10) + (positive & above).to(tl.int32) + (positive.to(tl.int32) << 20)
            soft = tl.maximum(soft, tl.max(tl.where((t != 0) & (t != 1) & there, late, 0), axis=0))
        count += tl.sum(code, axis=0)
        if BY_ROW:
            _add(out + 3 * num_labels + rows, tl.sum(code, axis=1), rows < num_rows, num_rows, HAS_TRUTH)
    _add(out + columns, count, inside, num_labels, HAS_TRUTH)
    faults = out + 3 * num_labels + 3 * num_rows
    latest = tl.max(nan)
    if latest > 0:
        tl.atomic_max(faults, latest, sem="relaxed")
    if HAS_TRUTH:
        latest = tl.max(soft)
        if latest > 0:
            tl.atomic_max(faults + 1, latest, sem="relaxed")


@triton.jit
def _add(target, code, mask, step, HAS_TRUTH: tl.constexpr):
    """Add up counts; the three kinds are ``step`` apart."""
    if HAS_TRUTH:
        tl.atomic_add(target, code & 1023, mask=mask & (code & 1023 != 0), sem="relaxed")
        tl.atomic_add(target + step, code >> 10 & 1023, mask=mask & (code >> 10 & 1023 != 0), sem="relaxed")
        tl.atomic_add(target + 2 * step, code >> 20, mask=mask & (code >> 20 != 0), sem="relaxed")
    else:
        tl.atomic_add(target + step, code, mask=mask & (code != 0), sem="relaxed")


@triton.jit(
    do_not_specialize=("num_entries", "num_rows"),
    do_not_specialize_on_alignment=("cuts", "entry_rows", "indices", "where", "out"),
)
def listed_kernel(
    x, cuts, entry_rows, indices, where, out,
    cut, num_rows, num_labels, x_stride, where_stride, num_entries,
    PER_LABEL: tl.constexpr, HAS_WHERE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Hits and positives of index lists, added to the same ``out``."""
    entries = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = entries < num_entries
    rows = tl.load(entry_rows + entries, mask=there, other=0)
    columns = tl.load(indices + entries, mask=there, other=0)
    there = there & (columns >= 0) & (columns < num_labels)
    if HAS_WHERE:
        there = there & (tl.load(where + rows * where_stride + columns, mask=there, other=0) != 0)
    limit = cut
    if PER_LABEL:
        limit = tl.load(cuts + columns, mask=there, other=0.0)
    hit = there & (tl.load(x + rows * x_stride + columns, mask=there, other=0).to(tl.float32) > limit)
    one = tl.full([BLOCK], 1, dtype=tl.int32)
    by_row = out + 3 * num_labels + rows
    tl.atomic_add(out + columns, one, mask=hit, sem="relaxed")
    tl.atomic_add(by_row, one, mask=hit, sem="relaxed")
    tl.atomic_add(out + 2 * num_labels + columns, one, mask=there, sem="relaxed")
    tl.atomic_add(by_row + 2 * num_rows, one, mask=there, sem="relaxed")
