"""Rows that fit into registers: the loss and its gradient in one read and one write of the scores (CUDA).

The exponentials of the sums are also the gradient, so they stay in registers and nothing is read twice. The split form sums
unshifted exponentials (m = 0); only if a sum approaches the limits of the range is everything read again with a shift
(``scans``). Terms that underflow do not matter there, because of its zero class. A program has several short rows, or a chunk
of a long row; chunks are merged before the gradient is written. All other cases use the stages "sides" and "gradient"
separately.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.rows.lists import LISTS, listed_terms, store_listed
from manyhot.engines.triton.rows.merge import conclude, publish
from manyhot.engines.triton.rows.scans import careful_store, careful_sums
from manyhot.engines.triton.rows.tiles import (
    SAFE,
    add_pairs,
    careful_terms,
    first_listed,
    place_columns,
    place_rows,
    plain_terms,
    settle,
    side_exponents,
    side_terms,
    tile_exponents,
    tile_gradient,
    tile_where,
)
from manyhot.engines.triton.rows.totals import add_up, is_finished, note_factor


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def row_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, offset, row_scale, grad_pos, grad_neg,
    out_value, out_slope, out_grad, state, partial, arrived, out_total, ended,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    offset_number, scale_number, pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    OFFSET: tl.constexpr, SCALE: tl.constexpr, FORM: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr,
    CHUNKS: tl.constexpr, MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """One tile per program. STAGE is "fused" (loss and gradient), "sides" (writes row sums) or "gradient" (reads them)."""
    if TOTAL == "again":  # noqa: SIM102 - a compile-time condition, then a runtime one
        if is_finished(row_scale, scale_number, state):
            return
    # Tell Triton that sizes are multiples of UNIT: its vector width depends on the divisibility it can prove.
    num_labels, x_stride = num_labels // UNIT * UNIT, x_stride // UNIT * UNIT
    label_stride, where_stride = label_stride // UNIT * UNIT, where_stride // UNIT * UNIT
    WIDTH: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    FAST: tl.constexpr = STAGE == "fused" and FORM == "split"
    LISTED: tl.constexpr = FAST and LABELS == "lists" and LEAN and ROWS == 1 and not HAS_WHERE
    STEP: tl.constexpr = BLOCK if ROWS > 1 or BLOCK < 1024 else 1024
    SHIFTED: tl.constexpr = FORM == "split" and OFFSET != "zero"
    chunk, row, rows, in_rows = place_rows(num_rows, CHUNKS, ROWS, EVEN)
    columns, in_tile = place_columns(num_labels, in_rows, chunk * BLOCK, ROWS, BLOCK, EVEN)
    c = tl.zeros([ROWS], tl.float32) + offset_number
    if OFFSET == "row":
        c = tl.load(offset + rows, mask=in_rows, other=0).to(tl.float32)
    cursor, stop = first_listed(offsets, indices, row, rows, in_rows, chunk * BLOCK, LABELS, ROWS, CHUNKS > 1, BLOCK)
    zero = tl.zeros([ROWS], tl.float32)
    if FAST:
        if LISTED:
            terms, pos_sum, neg_sum = listed_terms(
                x, indices, x_stride, num_labels, row, columns, in_tile, c, cursor, stop, SHIFTED, BLOCK, WIDTH
            )
            pos, neg = terms, terms
        else:
            pos, neg, _ = plain_terms(
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
                LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, ROWS, BLOCK, "",
            )  # fmt: skip
            pos_sum, neg_sum = tl.reduce(side_terms(pos, neg, LEAN), 1, add_pairs)
        if tl.max(tl.where(pos_sum + neg_sum <= SAFE, 0, 1), axis=0) == 0:
            pos_factor, neg_factor = conclude(
                zero, pos_sum, zero, neg_sum, c, out_value, out_slope, row_scale, scale_number, partial, arrived,
                row, rows, in_rows, chunk, OFFSET, SCALE, FORM, CHUNKS, MANY, ROWS, False, TOTAL,
            )  # fmt: skip
            grad = tile_gradient(pos, neg, pos_factor, neg_factor, LEAN)
            _store(out_grad, grad, where, where_stride, num_labels, rows, columns, in_tile, HAS_WHERE, WIDTH)
            if LISTED:
                store_listed(
                    out_grad, x, indices, x_stride, num_labels, row, chunk * BLOCK, c, pos_factor, cursor, stop, SHIFTED, BLOCK
                )
        else:
            pos_top, neg_top, pos_sum, neg_sum = careful_sums(
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, in_rows, chunk * BLOCK, c, cursor, stop,
                LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, FORM, ROWS, BLOCK, STEP,
            )  # fmt: skip
            pos_factor, neg_factor = conclude(
                pos_top, pos_sum, neg_top, neg_sum, c, out_value, out_slope, row_scale, scale_number, partial, arrived,
                row, rows, in_rows, chunk, OFFSET, SCALE, FORM, CHUNKS, MANY, ROWS, False, TOTAL,
            )  # fmt: skip
            careful_store(
                out_grad, num_labels,
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, in_rows, chunk * BLOCK, c, cursor, stop,
                pos_top, neg_top, pos_factor, neg_factor,
                LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, ROWS, BLOCK, STEP,
            )  # fmt: skip
    else:
        a, b, up, down, _ = tile_exponents(
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, ROWS, BLOCK, "",
        )  # fmt: skip
        if STAGE == "gradient":
            pos_top = tl.load(state + rows, mask=in_rows, other=0)
            neg_top = tl.load(state + 2 * num_rows + rows, mask=in_rows, other=0)
        else:
            pos_u, neg_u = side_exponents(a, b, up, down, LEAN)
            pos_top, neg_top = settle(tl.max(pos_u, axis=1), FORM), settle(tl.max(neg_u, axis=1), FORM)
        pos, neg = careful_terms(a, b, up, down, pos_top, neg_top, LEAN)
        if STAGE == "gradient":
            pos_total = tl.load(state + num_rows + rows, mask=in_rows, other=0)
            neg_total = tl.load(state + 3 * num_rows + rows, mask=in_rows, other=0)
            pos_factor = tl.load(grad_pos + rows, mask=in_rows, other=0) / tl.where(pos_total == 0, 1.0, pos_total)
            neg_factor = tl.load(grad_neg + rows, mask=in_rows, other=0) / tl.where(neg_total == 0, 1.0, neg_total)
        else:
            pos_sum, neg_sum = tl.reduce(side_terms(pos, neg, LEAN), 1, add_pairs)
            if STAGE == "sides":
                publish(partial, rows, chunk, pos_top, pos_sum, neg_top, neg_sum, in_rows, CHUNKS)
            else:
                pos_factor, neg_factor = conclude(
                    pos_top, pos_sum, neg_top, neg_sum, c, out_value, out_slope, row_scale, scale_number, partial, arrived,
                    row, rows, in_rows, chunk, OFFSET, SCALE, FORM, CHUNKS, MANY, ROWS, False, TOTAL,
                )  # fmt: skip
        if STAGE != "sides":
            grad = tile_gradient(pos, neg, pos_factor, neg_factor, LEAN)
            _store(out_grad, grad, where, where_stride, num_labels, rows, columns, in_tile, HAS_WHERE, WIDTH)
    note_factor(row_scale, scale_number, state, grad_neg, SCALE, TOTAL)
    add_up(out_total, out_value, num_rows, scale_number, chunk, SCALE, CHUNKS, TOTAL)


@triton.jit
def _store(
    out_grad, grad, where, where_stride, num_labels, rows, columns, in_tile, HAS_WHERE: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """Write the gradient of a tile, 0 for excluded entries."""
    if HAS_WHERE:
        grad = tl.where(tile_where(where, where_stride, rows, columns, in_tile, WIDTH), grad, 0.0)
    tl.store(out_grad + rows[:, None] * num_labels + columns[None, :], grad.to(out_grad.dtype.element_ty), mask=in_tile)
