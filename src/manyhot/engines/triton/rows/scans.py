"""The slow, safe path over a part of a row, block by block (CUDA): the maximum is subtracted before anything is summed.
Everything is read again in small blocks, so that a kernel that needs this for one row in a thousand does not have to reserve
registers for it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.rows.tiles import (
    add_pairs,
    careful_terms,
    place_columns,
    settle,
    side_exponents,
    side_terms,
    tile_exponents,
    tile_gradient,
    tile_where,
)


@triton.jit
def _step(
    x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
    pos_number, neg_number, smoothing, num_labels, rows, in_rows, first, c, cursor, stop,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    SHIFTED: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """STEP labels from ``first`` on, which of them exist, and the result of ``tile_exponents`` for them."""
    columns, in_tile = place_columns(num_labels, in_rows, first, ROWS, STEP, False)
    a, b, up, down, cursor = tile_exponents(
        x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
        pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
        LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, ROWS, STEP, "",
    )  # fmt: skip
    return columns, in_tile, a, b, up, down, cursor


@triton.jit
def careful_sums(
    x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
    pos_number, neg_number, smoothing, num_labels, rows, in_rows, first, c, cursor, stop,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    SHIFTED: tl.constexpr, EVEN: tl.constexpr, FORM: tl.constexpr, ROWS: tl.constexpr, SPAN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The largest exponent m of each side and its sum in units of ``e^m``, ``[ROWS]``, of SPAN labels before ``num_labels``."""
    pos_lanes = tl.full([ROWS, STEP], -float("inf"), tl.float32)
    neg_lanes = pos_lanes
    at = cursor
    for start in range(0, SPAN, STEP):
        _, _, a, b, up, down, at = _step(
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, num_labels, rows, in_rows, first + start, c, at, stop,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, ROWS, STEP,
        )  # fmt: skip
        pos, neg = side_exponents(a, b, up, down, LEAN)
        pos_lanes, neg_lanes = tl.maximum(pos_lanes, pos), tl.maximum(neg_lanes, neg)
    pos_top, neg_top = settle(tl.max(pos_lanes, axis=1), FORM), settle(tl.max(neg_lanes, axis=1), FORM)
    pos_lanes = tl.zeros([ROWS, STEP], tl.float32)
    neg_lanes = pos_lanes
    at = cursor
    for start in range(0, SPAN, STEP):
        _, _, a, b, up, down, at = _step(
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, num_labels, rows, in_rows, first + start, c, at, stop,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, ROWS, STEP,
        )  # fmt: skip
        pos, neg = careful_terms(a, b, up, down, pos_top, neg_top, LEAN)
        pos, neg = side_terms(pos, neg, LEAN)
        pos_lanes, neg_lanes = pos_lanes + pos, neg_lanes + neg
    pos_sum, neg_sum = tl.reduce((pos_lanes, neg_lanes), 1, add_pairs)
    return pos_top, neg_top, pos_sum, neg_sum


@triton.jit
def careful_store(
    out_grad, grad_stride, x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
    pos_number, neg_number, smoothing, num_labels, rows, in_rows, first, c, cursor, stop,
    pos_top, neg_top, pos_factor, neg_factor,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    SHIFTED: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, SPAN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Write the gradient, given the exponents to subtract from those of the terms, and the factors of the rows."""
    at = cursor
    for start in range(0, SPAN, STEP):
        columns, in_tile, a, b, up, down, at = _step(
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, num_labels, rows, in_rows, first + start, c, at, stop,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, ROWS, STEP,
        )  # fmt: skip
        pos, neg = careful_terms(a, b, up, down, pos_top, neg_top, LEAN)
        grad = tile_gradient(pos, neg, pos_factor, neg_factor, LEAN)
        if HAS_WHERE:
            width: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
            grad = tl.where(tile_where(where, where_stride, rows, columns, in_tile, width), grad, 0.0)
        target = out_grad + rows[:, None] * grad_stride + columns[None, :]
        tl.store(target, grad.to(out_grad.dtype.element_ty), mask=in_tile)
