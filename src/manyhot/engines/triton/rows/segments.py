"""Rows too long for registers: the loss and its gradient with one read from memory and a second from cache (CUDA).

A row is divided into segments, one program each. A program sums its segment block by block, publishes four numbers, waits for
the other programs of its row and merges their numbers in the order of the segments. Then it reads its segment again, from the
L2 cache, for the gradient.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.rows.lists import LISTS
from manyhot.engines.triton.rows.merge import conclude
from manyhot.engines.triton.rows.scans import careful_store, careful_sums
from manyhot.engines.triton.rows.tiles import (
    SAFE,
    add_pairs,
    first_listed,
    place_columns,
    plain_terms,
    side_terms,
    tile_gradient,
    tile_where,
)
from manyhot.engines.triton.rows.totals import add_up, is_finished, note_factor

UNROLL = tl.constexpr(2)


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def segment_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, offset, row_scale, grad_pos, grad_neg,
    out_value, out_slope, out_grad, state, partial, arrived, out_total, ended,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    offset_number, scale_number, pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    OFFSET: tl.constexpr, SCALE: tl.constexpr, FORM: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr,
    CHUNKS: tl.constexpr, MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """One segment of one row: a pass for the sums, a pass for the gradient."""
    if TOTAL == "again":  # noqa: SIM102 - a compile-time condition, then a runtime one
        if is_finished(row_scale, scale_number, state):
            return
    num_labels, x_stride = num_labels // UNIT * UNIT, x_stride // UNIT * UNIT
    label_stride, where_stride = label_stride // UNIT * UNIT, where_stride // UNIT * UNIT
    program = tl.program_id(0)
    chunk = program % CHUNKS
    first = chunk * SEGMENT
    row = (program // CHUNKS).to(tl.int64)
    rows = row + tl.arange(0, 1)
    in_rows = tl.full([1], True, tl.int1)
    SHIFTED: tl.constexpr = FORM == "split" and OFFSET != "zero"
    c = tl.zeros([1], tl.float32) + offset_number
    if OFFSET == "row":
        c = tl.load(offset + rows).to(tl.float32)
    listed, stop = first_listed(offsets, indices, row, rows, in_rows, first, LABELS, 1, CHUNKS > 1, SEGMENT)
    pos_top, neg_top = tl.zeros([1], tl.float32), tl.zeros([1], tl.float32)
    pos_sum, neg_sum = tl.zeros([1], tl.float32), tl.zeros([1], tl.float32)
    plain = FORM == "split"
    if plain:
        pos_lanes, neg_lanes = tl.zeros([1, BLOCK], tl.float32), tl.zeros([1, BLOCK], tl.float32)
        cursor = listed
        for start in tl.range(0, SEGMENT, BLOCK, loop_unroll_factor=UNROLL):
            columns, in_tile = place_columns(num_labels, in_rows, first + start, 1, BLOCK, EVEN)
            pos, neg, cursor = plain_terms(
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
                LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, 1, BLOCK, "evict_last",
            )  # fmt: skip
            pos, neg = side_terms(pos, neg, LEAN)
            pos_lanes, neg_lanes = pos_lanes + pos, neg_lanes + neg
        pos_sum, neg_sum = tl.reduce((pos_lanes, neg_lanes), 1, add_pairs)
        plain = tl.max(tl.where(pos_sum + neg_sum <= SAFE, 0, 1), axis=0) == 0
    if not plain:
        pos_top, neg_top, pos_sum, neg_sum = careful_sums(
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, num_labels, rows, in_rows, first, c, listed, stop,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, FORM, 1, SEGMENT, BLOCK,
        )  # fmt: skip

    pos_factor, neg_factor = conclude(
        pos_top, pos_sum, neg_top, neg_sum, c, out_value, out_slope, row_scale, scale_number, partial, arrived,
        row, rows, in_rows, chunk, OFFSET, SCALE, FORM, CHUNKS, MANY, 1, False, TOTAL,
    )  # fmt: skip
    if plain:
        cursor = listed
        for start in tl.range(0, SEGMENT, BLOCK, loop_unroll_factor=UNROLL):
            columns, in_tile = place_columns(num_labels, in_rows, first + start, 1, BLOCK, EVEN)
            pos, neg, cursor = plain_terms(
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
                LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, 1, BLOCK, "evict_first",
            )  # fmt: skip
            grad = tile_gradient(pos, neg, pos_factor, neg_factor, LEAN)
            if HAS_WHERE:
                width: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
                grad = tl.where(tile_where(where, where_stride, rows, columns, in_tile, width), grad, 0.0)
            target = out_grad + rows[:, None] * num_labels + columns[None, :]
            tl.store(target, grad.to(out_grad.dtype.element_ty), mask=in_tile, eviction_policy="evict_first")
    else:
        careful_store(
            out_grad, num_labels,
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, num_labels, rows, in_rows, first, c, listed, stop,
            pos_top, neg_top, pos_factor, neg_factor,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, 1, SEGMENT, BLOCK,
        )  # fmt: skip
    note_factor(row_scale, scale_number, state, grad_neg, SCALE, TOTAL)
    add_up(out_total, out_value, num_rows, scale_number, chunk, SCALE, CHUNKS, TOTAL)
