"""Rows of few labels whose sums are near the limits of the range (CUDA): a program recomputes all its tiles; see ``few``."""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.rows.bits import listed_bits, listed_words
from manyhot.engines.triton.rows.tiles import (
    add_pairs,
    careful_terms,
    finish,
    larger_pairs,
    settle,
    side_exponents,
    side_terms,
    tile_exponents,
    tile_gradient,
)


@triton.jit
def rows_of(tile, num_rows, ROWS: tl.constexpr):
    """The rows of a tile, and which of them exist."""
    rows = tl.cast(tile, tl.int64) * ROWS + tl.arange(0, ROWS)
    return rows, rows < num_rows


@triton.jit
def add_values(added, out_value, value, scale, rows, in_rows, SCALE: tl.constexpr, TOTAL: tl.constexpr):
    """Store the losses of the rows, or add them to the running sums of this program, one per lane."""
    if TOTAL == "none":
        tl.store(out_value + rows, value, mask=in_rows)
    elif TOTAL != "again":
        if SCALE == "rows":
            added += tl.where(in_rows & (scale != 0), value * scale, 0.0)
        else:
            added += tl.where(in_rows, value, 0.0)
    return added


@triton.jit
def take_again(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, offset, row_scale, out_value, out_slope,
    out_grad, num_rows, num_labels, x_stride, label_stride, where_stride, pos_number, neg_number, smoothing, c, scale,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    OFFSET: tl.constexpr, SCALE: tl.constexpr, FORM: tl.constexpr, ROWS: tl.constexpr, SEGMENT: tl.constexpr,
    UNIT: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """Recompute all tiles of the program with the largest exponent of each side subtracted. Returns the losses per lane."""
    WIDTH: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    SHIFTED: tl.constexpr = FORM == "split" and OFFSET != "zero"
    columns = tl.arange(0, SEGMENT)
    added = tl.zeros([ROWS], tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0)):
        rows, in_rows = rows_of(tile, num_rows, ROWS)
        if OFFSET == "row":
            c = tl.load(offset + rows, mask=in_rows, other=0).to(tl.float32)
        in_tile = in_rows[:, None] & (columns < num_labels)[None, :]
        if LABELS == "lists":
            low, high = listed_words(offsets, indices, rows, in_rows, SEGMENT)
            s = tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=in_tile, other=0).to(tl.float32)
            if SHIFTED:
                s = s - c[:, None]
            t = listed_bits(low, high, 0, columns, SEGMENT, min(UNIT, WIDTH))
            a = tl.where(in_tile, tl.where(t, -s, s), -float("inf"))
            b, up, down = a, t, t
        else:
            a, b, up, down, _ = tile_exponents(
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, 0, 0,
                LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, False, ROWS, SEGMENT, "",
            )  # fmt: skip
        pos_u, neg_u = side_exponents(a, b, up, down, LEAN)
        pos_top, neg_top = tl.reduce((pos_u, neg_u), 1, larger_pairs)
        pos_top, neg_top = settle(pos_top, FORM), settle(neg_top, FORM)
        pos, neg = careful_terms(a, b, up, down, pos_top, neg_top, LEAN)
        pos_sum, neg_sum = tl.reduce(side_terms(pos, neg, LEAN), 1, add_pairs)
        if SCALE == "rows":
            scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
        value, slope, pos_factor, neg_factor = finish(pos_top, pos_sum, neg_top, neg_sum, c, FORM)
        added = add_values(added, out_value, value, scale, rows, in_rows, SCALE, TOTAL)
        if OFFSET == "row":
            tl.store(out_slope + rows, slope, mask=in_rows)
        grad = tile_gradient(pos, neg, pos_factor * scale, neg_factor * scale, LEAN)
        tl.store(out_grad + rows[:, None] * num_labels + columns[None, :], grad.to(out_grad.dtype.element_ty), mask=in_tile)
    return added
