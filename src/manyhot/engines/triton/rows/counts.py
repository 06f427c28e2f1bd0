"""Counts of the scores above a cut, by label and by row, in one read of the scores (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("num_rows", "col_blocks", "rows_each"), do_not_specialize_on_alignment=("cuts", "out"))
def count_kernel(
    x, cuts, where, out, cut, num_rows, num_labels, x_stride, where_stride, col_blocks, rows_each,
    EQUAL: tl.constexpr, PER_LABEL: tl.constexpr, HAS_WHERE: tl.constexpr, BY_ROW: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Some labels of ``rows_each`` rows. ``out``, int32 and zero before: hits, predicted and positive of each label, then of
    each row; then ``num_rows - row`` of the first row with NaN, and of the first with a label that is not 0 or 1. This kernel
    adds the predictions, and notes NaN. With EQUAL, a score that is equal to the cut counts as above."""
    program = tl.program_id(0)
    columns = program % col_blocks * BLOCK + tl.arange(0, BLOCK)
    first = program // col_blocks * rows_each
    inside = columns < num_labels
    limit = cut
    if PER_LABEL:
        limit = tl.load(cuts + columns, mask=inside, other=0.0)[None, :]
    count = tl.zeros([BLOCK], dtype=tl.int32)
    nan = tl.zeros([BLOCK], dtype=tl.int32)
    for start in range(first, min(first + rows_each, num_rows), ROWS):
        rows = start + tl.arange(0, ROWS)
        there = (rows < num_rows)[:, None] & inside[None, :]
        row = rows.to(tl.int64)[:, None]
        s = tl.load(x + row * x_stride + columns[None, :], mask=there, other=0).to(tl.float32)
        if HAS_WHERE:
            there = there & (tl.load(where + row * where_stride + columns[None, :], mask=there, other=0) != 0)
        above = ((s >= limit if EQUAL else s > limit) & there).to(tl.int32)
        late = (num_rows - rows)[:, None]
        nan = tl.maximum(nan, tl.max(tl.where((s != s) & there, late, 0), axis=0))
        count += tl.sum(above, axis=0)
        if BY_ROW:
            own = tl.sum(above, axis=1)
            tl.atomic_add(out + 3 * num_labels + num_rows + rows, own, mask=(rows < num_rows) & (own > 0), sem="relaxed")
    tl.atomic_add(out + num_labels + columns, count, mask=inside & (count > 0), sem="relaxed")
    latest = tl.max(nan)
    if latest > 0:
        tl.atomic_max(out + 3 * num_labels + 3 * num_rows, latest, sem="relaxed")


@triton.jit(
    do_not_specialize=("num_rows", "x_stride", "where_stride", "col_blocks"),
    do_not_specialize_on_alignment=("x", "cuts", "where", "out"),
)
def truth_kernel(
    truth, x, cuts, where, out, cut, num_rows, num_labels, truth_stride, x_stride, where_stride, col_blocks,
    PER_LABEL: tl.constexpr, HAS_WHERE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Hits and positives of some labels of one row of dense labels, added to the same ``out``; only scores of positives are
    read."""
    program = tl.program_id(0)
    row = tl.cast(program // col_blocks, tl.int64)
    columns = program % col_blocks * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(truth + row * truth_stride + columns, mask=columns < num_labels, other=0)
    if tl.max((t != 0).to(tl.int32), axis=0) > 0:
        there = t != 0
        if HAS_WHERE:
            there = there & (tl.load(where + row * where_stride + columns, mask=there, other=0) != 0)
        positive = there & (t == 1)
        limit = cut
        if PER_LABEL:
            limit = tl.load(cuts + columns, mask=positive, other=0.0)
        hit = positive & (tl.load(x + row * x_stride + columns, mask=positive, other=0).to(tl.float32) > limit)
        one = tl.full([BLOCK], 1, dtype=tl.int32)
        tl.atomic_add(out + columns, one, mask=hit, sem="relaxed")
        tl.atomic_add(out + 2 * num_labels + columns, one, mask=positive, sem="relaxed")
        by_row = out + 3 * num_labels + row
        tl.atomic_add(by_row, tl.sum(hit.to(tl.int32), axis=0), sem="relaxed")
        tl.atomic_add(by_row + 2 * num_rows, tl.sum(positive.to(tl.int32), axis=0), sem="relaxed")
        if tl.max((there & (t != 1)).to(tl.int32), axis=0) > 0:
            tl.atomic_max(out + 3 * num_labels + 3 * num_rows + 1, (num_rows - row).to(tl.int32), sem="relaxed")


@triton.jit(
    do_not_specialize=("num_rows", "num_labels", "x_stride", "where_stride", "num_entries"),
    do_not_specialize_on_alignment=("x", "cuts", "entry_rows", "indices", "where", "out"),
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
