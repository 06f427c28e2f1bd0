"""Rows too long for registers, read twice as words of 64 bits (CUDA).

As in ``kernel``, little is done per label. But a program has more labels than its registers hold: it sums them tile by tile,
and the programs of a row merge their sums. Then it reads its tiles again for the gradient, the last one first, because that is
the one most likely to be in a cache still.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import exp
from manyhot.engines.triton.packed.lists import store_taken, take_listed
from manyhot.engines.triton.packed.ranges import has_no_label, is_in_range, read_offset
from manyhot.engines.triton.packed.tiles import read_rest, read_words, store_gradient
from manyhot.engines.triton.packed.words import negative_sums, word_sums
from manyhot.engines.triton.rows.lists import LISTS, find_listed
from manyhot.engines.triton.rows.merge import conclude
from manyhot.engines.triton.rows.scans import careful_store, careful_sums
from manyhot.engines.triton.rows.tiles import add_pairs
from manyhot.engines.triton.rows.totals import add_up, is_finished, note_factor


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def word_segment_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, offset, row_scale, grad_pos, grad_neg,
    out_value, out_slope, out_grad, state, partial, arrived, out_total, ended,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    offset_number, scale_number, pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    OFFSET: tl.constexpr, SCALE: tl.constexpr, FORM: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr,
    CHUNKS: tl.constexpr, MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """SEGMENT labels of one row in tiles of BLOCK, without a mask and without weights per label. Rows are as in
    ``packed_kernel``."""
    if TOTAL == "again":  # noqa: SIM102 - a compile-time condition, then a runtime one
        if is_finished(row_scale, scale_number, state):
            return
    PER: tl.constexpr = 64 // x.dtype.element_ty.primitive_bitwidth
    HALF: tl.constexpr = x.dtype.element_ty == tl.float16
    GROUP: tl.constexpr = 2 * PER
    WORDS: tl.constexpr = BLOCK // PER
    RAGGED: tl.constexpr = UNIT % PER != 0 or (LABELS == "lists" and UNIT % GROUP != 0)
    HARD: tl.constexpr = LABELS == "lists" or labels.dtype.element_ty.primitive_bitwidth == 8
    SHIFTED: tl.constexpr = FORM == "split" and OFFSET != "zero"
    # Differs from WORDS: Triton uses one layout for all tiles of a shape, and the safe path reads single labels.
    STEP: tl.constexpr = 512 if WORDS == 1024 else 1024
    SPAN: tl.constexpr = SEGMENT + STEP if RAGGED and CHUNKS > 1 else SEGMENT
    program = tl.program_id(0)
    chunk = program % CHUNKS
    row = tl.cast(program // CHUNKS, tl.int64)
    rows = row + tl.arange(0, 1)
    in_rows = tl.full([1], True, tl.int1)
    first = chunk * (SEGMENT // PER)
    lead, begin, end = _bounds(rows, chunk, num_labels, RAGGED, CHUNKS, SEGMENT, GROUP)
    cursor, stop = tl.zeros([1], tl.int64), tl.zeros([1], tl.int64)
    if LABELS == "lists":
        cursor, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
        if CHUNKS > 1:
            cursor, stop = find_listed(indices, cursor, stop, begin, end)
    pos_sum, neg_sum, seen = _sum_tiles(
        x, labels, indices, num_labels, x_stride, label_stride, smoothing, row, rows, in_rows, lead, first, end, cursor, stop,
        LABELS, HARD, FORM, EVEN, RAGGED, SEGMENT, WORDS, PER, HALF, UNIT,
    )  # fmt: skip
    if RAGGED:
        columns, rest, pos_rest, neg_rest = read_rest(
            x, labels, indices, num_labels, smoothing, rows, in_rows, lead, begin, end, cursor, stop, LABELS, HARD, 1, GROUP
        )
        pos_more, neg_more = tl.reduce((pos_rest, neg_rest), 1, add_pairs)
        pos_sum, neg_sum = pos_sum + pos_more, neg_sum + neg_more
    zero = tl.zeros([1], tl.float32)
    c, hidden = read_offset(offset, offset_number, num_rows, rows, in_rows, OFFSET, 1)
    pos_by, neg_by = zero + pos_number, zero + neg_number
    if SHIFTED:
        pos_by, neg_by = pos_by * exp(c), neg_by * exp(-c)
    if not LEAN or SHIFTED:
        pos_sum, neg_sum = pos_sum * pos_by, neg_sum * neg_by
    empty = pos_sum == 0
    if FORM == "joint":
        if LABELS == "lists":
            empty = tl.where(cursor >= stop, empty, False)
        else:
            empty = tl.where(has_no_label(seen, smoothing), empty, False)
            if RAGGED:
                ends = tl.load(labels + rows[:, None] * num_labels + columns, mask=rest, other=0)
                empty = tl.where(has_no_label(ends, smoothing), empty, False)
    if is_in_range(pos_sum, neg_sum, empty, c, in_rows, SHIFTED, FORM, False):
        pos_factor, neg_factor = conclude(
            zero, pos_sum, zero, neg_sum, c, out_value, out_slope, row_scale, scale_number, partial, arrived,
            row, rows, in_rows, chunk, OFFSET, SCALE, FORM, CHUNKS, MANY, 1, True, TOTAL,
        )  # fmt: skip
        if not LEAN or SHIFTED:
            pos_factor, neg_factor = pos_factor * pos_by, neg_factor * neg_by
        _store_tiles(
            out_grad, x, labels, num_labels, x_stride, label_stride, smoothing, rows, in_rows, lead, first,
            pos_factor, neg_factor, hidden, LABELS, HARD, SCALE, EVEN, RAGGED, SEGMENT, WORDS, PER, HALF, UNIT,
        )  # fmt: skip
        if RAGGED:
            grad = neg_rest * neg_factor[:, None] - pos_rest * pos_factor[:, None]
            tl.store(out_grad + rows[:, None] * num_labels + columns, grad.to(out_grad.dtype.element_ty), mask=rest)
        if LABELS == "lists":
            store_taken(out_grad + row * num_labels, x + row * x_stride, indices, end, pos_factor, cursor, stop)
    else:
        pos_top, neg_top, pos_sum, neg_sum = careful_sums(
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, end, rows, in_rows, begin, c, cursor, stop,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, False, FORM, 1, SPAN, STEP,
        )  # fmt: skip
        pos_factor, neg_factor = conclude(
            pos_top, pos_sum, neg_top, neg_sum, c, out_value, out_slope, row_scale, scale_number, partial, arrived,
            row, rows, in_rows, chunk, OFFSET, SCALE, FORM, CHUNKS, MANY, 1, True, TOTAL,
        )  # fmt: skip
        careful_store(
            out_grad, num_labels,
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, end, rows, in_rows, begin, c, cursor, stop,
            pos_top, neg_top, pos_factor, neg_factor,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, False, 1, SPAN, STEP,
        )  # fmt: skip
    note_factor(row_scale, scale_number, state, grad_neg, SCALE, TOTAL)
    add_up(out_total, out_value, num_rows, scale_number, chunk, SCALE, CHUNKS, TOTAL)


@triton.jit
def _bounds(
    rows, chunk, num_labels, RAGGED: tl.constexpr, CHUNKS: tl.constexpr, SEGMENT: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """How many labels come before the first whole word of the row, ``[1]``; a chunk's first label, and the one after its last.

    The chunks of a ragged row start at its first whole word; the first chunk also has the labels before it.
    """
    lead = tl.zeros([1], tl.int32)
    begin, end = chunk * SEGMENT, chunk * SEGMENT + SEGMENT
    if RAGGED:
        lead = ((GROUP - rows * num_labels % GROUP) % GROUP).to(tl.int32)
        if CHUNKS > 1:
            begin = tl.where(chunk == 0, 0, begin + tl.max(lead, axis=0))
            end += tl.max(lead, axis=0)
    return lead, begin, tl.minimum(end, num_labels)


@triton.jit
def _sum_tiles(
    x, labels, indices, num_labels, x_stride, label_stride, smoothing, row, rows, in_rows, lead, first, end, cursor, stop,
    LABELS: tl.constexpr, HARD: tl.constexpr, FORM: tl.constexpr, EVEN: tl.constexpr, RAGGED: tl.constexpr,
    SEGMENT: tl.constexpr, WORDS: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """The sums ``[1]`` of both sides over all tiles from the word ``first`` on, and where words have a label (joint form)."""
    neg_lanes = tl.zeros([1, WORDS], tl.float32)
    pos_lanes = neg_lanes
    seen = tl.zeros([1, WORDS], tl.int1)
    listed = tl.zeros([1], tl.float32)
    ahead = tl.max(lead, axis=0)
    limit = (num_labels - ahead) // (2 * PER) * (2 * PER)
    if LABELS == "lists":
        place = tl.load(indices + cursor, mask=cursor < stop, other=num_labels).to(tl.int32)
    for start in range(0, SEGMENT // PER, WORDS):
        s, t, in_tile, _ = read_words(
            x, labels, num_labels, x_stride, label_stride, rows, in_rows, lead, first + start,
            LABELS, HARD, RAGGED, EVEN, 1, WORDS, PER, HALF, UNIT, "evict_last",
        )  # fmt: skip
        if LABELS == "lists":
            after = tl.minimum((first + start + WORDS) * PER + ahead, end)
            if place < after:
                last = cursor
                while place < after:
                    last += 1
                    place = tl.load(indices + last, mask=last < stop, other=num_labels).to(tl.int32)
                s, _, more = take_listed(
                    s, s, first + start, x + row * x_stride, indices, end, cursor, last, ahead, limit,
                    WORDS, 0, RAGGED, PER, HALF,
                )  # fmt: skip
                listed += more
                cursor = last
            neg_lanes += negative_sums(s, False, PER, HALF)
        else:
            pos, neg = word_sums(s, t, smoothing, HARD, False, PER, HALF)
            if not HARD:
                # Padding needs a mask: no score makes both terms of a soft label 0.
                pos, neg = tl.where(in_tile, pos, 0.0), tl.where(in_tile, neg, 0.0)
            pos_lanes += pos
            neg_lanes += neg
            if FORM == "joint":
                seen = seen | (t != 0)
    pos_sum, neg_sum = tl.reduce((pos_lanes, neg_lanes), 1, add_pairs)
    return pos_sum + listed, neg_sum, seen


@triton.jit
def _store_tiles(
    out_grad, x, labels, num_labels, x_stride, label_stride, smoothing, rows, in_rows, lead, first,
    pos_factor, neg_factor, hidden,
    LABELS: tl.constexpr, HARD: tl.constexpr, SCALE: tl.constexpr, EVEN: tl.constexpr, RAGGED: tl.constexpr,
    SEGMENT: tl.constexpr, WORDS: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Write the gradient of all tiles from the word ``first`` on, the last tile first, with listed labels as negatives."""
    for back in range(WORDS, SEGMENT // PER + WORDS, WORDS):
        s, t, in_tile, grad_at = read_words(
            x, labels, num_labels, x_stride, label_stride, rows, in_rows, lead, first + (SEGMENT // PER - back),
            LABELS, HARD, RAGGED, EVEN, 1, WORDS, PER, HALF, UNIT, "evict_first",
        )  # fmt: skip
        store_gradient(
            out_grad, grad_at, s, t, in_tile, smoothing, pos_factor, neg_factor, hidden,
            LABELS, SCALE, HARD, False, PER, HALF, "evict_first",
        )  # fmt: skip
