"""Rows of few labels, many to a program (CUDA): the loss and its gradient in one read and one write of the scores.

A row of a hundred labels is so short that instructions cost more time than memory, also those that are done once a row or once
a program. So programs stay and take tile after tile, each adds up the losses of its rows, and only these sums are left to the
last program. Sums are of unshifted exponentials, which are the gradient too; a program that met a sum near the end of the range
takes all its tiles again, with the largest exponent taken out. Index lists become a bit for each label, 64 of a row at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import COMPILED, bounded_log, exp, inverse, log1p_fast
from manyhot.engines.triton.packed.kept import kept_gradient, store_words, word_terms
from manyhot.engines.triton.rows.bits import listed_bits, listed_words
from manyhot.engines.triton.rows.lists import LISTS
from manyhot.engines.triton.rows.tiles import (
    add_pairs,
    careful_terms,
    settle,
    side_exponents,
    side_terms,
    tile_exponents,
    tile_gradient,
)
from manyhot.engines.triton.rows.totals import add_up, is_finished, note_factor

# The product of two sums up to here is a number still.
SAFE = tl.constexpr(1e18)


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def few_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, offset, row_scale, grad_pos, grad_neg,
    out_value, out_slope, out_grad, state, partial, arrived, out_total, ended,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    offset_number, scale_number, pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    OFFSET: tl.constexpr, SCALE: tl.constexpr, FORM: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr,
    CHUNKS: tl.constexpr, MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """Tiles of ROWS rows by turns, fused and split, with no offset, no mask and no weight for each label.

    A row is one tile of BLOCK labels, or two side by side, so that fewer threads share it; EVEN if it fills them.
    """
    if TOTAL == "again":  # noqa: SIM102 - known to the compiler, what follows is not
        if is_finished(row_scale, scale_number, state):
            return
    num_labels, x_stride, label_stride = num_labels // UNIT * UNIT, x_stride // UNIT * UNIT, label_stride // UNIT * UNIT
    if EVEN:
        num_labels = SEGMENT
    PER: tl.constexpr = 64 // x.dtype.element_ty.primitive_bitwidth
    HALF: tl.constexpr = x.dtype.element_ty == tl.float16
    WORDS: tl.constexpr = COMPILED and LABELS == "dense" and LEAN and labels.dtype.element_ty == tl.uint8 and UNIT % PER == 0
    program = tl.program_id(0)
    scale = tl.zeros([ROWS], tl.float32) + scale_number
    if SCALE == "one":
        scale = scale * tl.load(row_scale)
    added, worst = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.int32)
    for tile in tl.range(program, tl.cdiv(num_rows, ROWS), tl.num_programs(0)):
        rows = tl.cast(tile, tl.int64) * ROWS + tl.arange(0, ROWS)
        in_rows = rows < num_rows
        if SCALE == "rows":
            scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
        low, high, s, s_more = rows, rows, rows, rows
        if not WORDS:
            # All scores are on their way before the lists are looked at, which takes two reads, one after the other.
            s = _read(x, x_stride, num_labels, rows, in_rows, 0, EVEN, BLOCK)
            if SEGMENT > BLOCK:
                s_more = _read(x, x_stride, num_labels, rows, in_rows, BLOCK, EVEN, BLOCK)
        if LABELS == "lists":
            low, high = listed_words(offsets, indices, rows, in_rows, SEGMENT)
        pos, neg, e, f, g, h, t = _sum_terms(
            s, x, labels, low, high, x_stride, label_stride, pos_number, neg_number, smoothing, num_labels, rows, in_rows,
            0, LABELS, LEAN, EVEN, WORDS, BLOCK, UNIT,
        )  # fmt: skip
        if SEGMENT > BLOCK:
            pos_more, neg_more, e_more, f_more, g_more, h_more, t_more = _sum_terms(
                s_more, x, labels, low, high, x_stride, label_stride, pos_number, neg_number, smoothing, num_labels, rows,
                in_rows, BLOCK, LABELS, LEAN, EVEN, WORDS, BLOCK, UNIT,
            )  # fmt: skip
            pos, neg = pos + pos_more, neg + neg_more
        pos_sum, neg_sum = tl.reduce((pos, neg), 1, add_pairs)
        worst = tl.maximum(worst, tl.where(pos_sum + neg_sum <= SAFE, 0, 1))
        value = log1p_fast(pos_sum + neg_sum + pos_sum * neg_sum)
        added = _add_values(added, out_value, value, scale, rows, in_rows, SCALE, TOTAL)
        pos_factor, neg_factor = inverse(1.0 + pos_sum) * scale, inverse(1.0 + neg_sum) * scale
        if WORDS:
            grad = kept_gradient(e, f, g, h, t, pos_factor[:, None], neg_factor[:, None], offset_number, PER, HALF)
            store_words(out_grad, grad, num_labels, rows, in_rows, 0, BLOCK, PER, UNIT)
            if SEGMENT > BLOCK:
                grad = kept_gradient(
                    e_more, f_more, g_more, h_more, t_more, pos_factor[:, None], neg_factor[:, None], offset_number, PER, HALF
                )
                store_words(out_grad, grad, num_labels, rows, in_rows, BLOCK, BLOCK, PER, UNIT)
        else:
            _store(out_grad, e, f, t, pos_factor, neg_factor, num_labels, rows, in_rows, 0, LEAN, EVEN, BLOCK)
            if SEGMENT > BLOCK:
                _store(
                    out_grad,
                    e_more,
                    f_more,
                    t_more,
                    pos_factor,
                    neg_factor,
                    num_labels,
                    rows,
                    in_rows,
                    BLOCK,
                    LEAN,
                    EVEN,
                    BLOCK,
                )
    if tl.max(worst, axis=0) > 0:
        tl.debug_barrier()
        added = _take_again(
            x, labels, offsets, indices, values, where, pos_weight, neg_weight, row_scale, out_value, out_grad,
            num_rows, num_labels, x_stride, label_stride, where_stride, pos_number, neg_number, smoothing, scale,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SCALE, ROWS, SEGMENT, UNIT, TOTAL,
        )  # fmt: skip
    if TOTAL == "sum" or TOTAL == "mean":
        tl.store(out_value + program, tl.sum(added, axis=0))
    note_factor(row_scale, scale_number, state, grad_neg, SCALE, TOTAL)
    add_up(out_total, ended, out_value, num_rows, scale_number, 0, SCALE, 1, TOTAL)


@triton.jit
def _in_tile(num_labels, in_rows, columns, EVEN: tl.constexpr):
    """Which places of a tile exist."""
    in_tile = in_rows[:, None]
    if not EVEN:
        in_tile = in_tile & (columns < num_labels)[None, :]
    return in_tile


@triton.jit
def _read(x, x_stride, num_labels, rows, in_rows, first, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    """The scores of a tile; e^-inf is 0, so that places beyond the end of a row count nothing as negatives."""
    columns = first + tl.arange(0, BLOCK)
    in_tile = _in_tile(num_labels, in_rows, columns, EVEN)
    return tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=in_tile, other=-float("inf"))


@triton.jit
def _sum_terms(
    s, x, labels, low, high, x_stride, label_stride, pos_number, neg_number, smoothing, num_labels, rows, in_rows, first,
    LABELS: tl.constexpr, LEAN: tl.constexpr, EVEN: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """The terms of either side of a tile as they are summed; then what the gradient is made of, with its labels last."""
    if WORDS:
        PER: tl.constexpr = 64 // x.dtype.element_ty.primitive_bitwidth
        HALF: tl.constexpr = x.dtype.element_ty == tl.float16
        pos, neg, e, f, g, h, t = word_terms(
            x, labels, x_stride, label_stride, num_labels, rows, in_rows, first, BLOCK, PER, HALF, UNIT
        )
    else:
        e, f, t = _terms(
            s, x, labels, low, high, label_stride, pos_number, neg_number, smoothing, num_labels, rows, in_rows, first,
            LABELS, LEAN, EVEN, BLOCK, UNIT,
        )  # fmt: skip
        g, h = e, f
        pos, neg = e, f
        if LEAN:
            pos, neg = tl.where(t, e, 0.0), tl.where(t, 0.0, e)
    return pos, neg, e, f, g, h, t


@triton.jit
def _terms(
    s, x, labels, low, high, label_stride, pos_number, neg_number, smoothing, num_labels, rows, in_rows, first,
    LABELS: tl.constexpr, LEAN: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """A tile from the label ``first`` on: where LEAN, terms (twice) and labels; else positive and negative terms."""
    WIDTH: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    columns = first + tl.arange(0, BLOCK)
    in_tile = _in_tile(num_labels, in_rows, columns, EVEN)
    s = s.to(tl.float32)
    if LABELS == "lists":
        t = listed_bits(low, high, first, columns, BLOCK, min(UNIT, WIDTH))
    else:
        place = tl.max_contiguous(labels + rows[:, None] * label_stride + columns[None, :], [1, WIDTH])
        t = tl.load(place, mask=in_tile, other=0)
        if labels.dtype.element_ty.is_int():
            t = t > 0
    if LEAN:
        e = exp(tl.where(t, -s, s))
        f = e
    else:
        t = t.to(tl.float32) * (1.0 - smoothing) + smoothing / 2
        e = tl.where(in_tile, t * pos_number * exp(-s), 0.0)
        f = tl.where(in_tile, (1.0 - t) * neg_number * exp(s), 0.0)
    return e, f, t


@triton.jit
def _add_values(added, out_value, value, scale, rows, in_rows, SCALE: tl.constexpr, TOTAL: tl.constexpr):
    """Store the losses of the rows, or add them to the lanes of this program."""
    if TOTAL == "none":
        tl.store(out_value + rows, value, mask=in_rows)
    elif TOTAL != "again":
        if SCALE == "rows":
            added += tl.where(in_rows & (scale != 0), value * scale, 0.0)
        else:
            added += tl.where(in_rows, value, 0.0)
    return added


@triton.jit
def _store(
    out_grad, e, f, t, pos_factor, neg_factor, num_labels, rows, in_rows, first,
    LEAN: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a tile."""
    if LEAN:
        grad = e * tl.where(t, -pos_factor[:, None], neg_factor[:, None])
    else:
        grad = f * neg_factor[:, None] - e * pos_factor[:, None]
    columns = first + tl.arange(0, BLOCK)
    in_tile = _in_tile(num_labels, in_rows, columns, EVEN)
    tl.store(out_grad + rows[:, None] * num_labels + columns[None, :], grad.to(out_grad.dtype.element_ty), mask=in_tile)


@triton.jit
def _take_again(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, row_scale, out_value, out_grad,
    num_rows, num_labels, x_stride, label_stride, where_stride, pos_number, neg_number, smoothing, scale,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    SCALE: tl.constexpr, ROWS: tl.constexpr, SEGMENT: tl.constexpr, UNIT: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """All tiles of the program with the largest exponent of either side taken out; the sum of their losses by lanes."""
    WIDTH: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    columns = tl.arange(0, SEGMENT)
    zero = tl.zeros([ROWS], tl.float32)
    added = zero
    for tile in tl.range(tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0)):
        rows = tl.cast(tile, tl.int64) * ROWS + tl.arange(0, ROWS)
        in_rows = rows < num_rows
        in_tile = in_rows[:, None] & (columns < num_labels)[None, :]
        if LABELS == "lists":
            low, high = listed_words(offsets, indices, rows, in_rows, SEGMENT)
            s = tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=in_tile, other=0).to(tl.float32)
            t = listed_bits(low, high, 0, columns, SEGMENT, min(UNIT, WIDTH))
            a = tl.where(in_tile, tl.where(t, -s, s), -float("inf"))
            b, up, down = a, t, t
        else:
            a, b, up, down, _ = tile_exponents(
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, zero, 0, 0,
                LABELS, LEAN, HAS_WHERE, POS, NEG, False, False, ROWS, SEGMENT, "",
            )  # fmt: skip
        pos_u, neg_u = side_exponents(a, b, up, down, LEAN)
        pos_top, neg_top = tl.reduce((pos_u, neg_u), 1, _larger_pairs)
        pos_top, neg_top = settle(pos_top, "split"), settle(neg_top, "split")
        pos, neg = careful_terms(a, b, up, down, pos_top, neg_top, LEAN)
        pos_sum, neg_sum = tl.reduce(side_terms(pos, neg, LEAN), 1, add_pairs)
        if SCALE == "rows":
            scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
        value = bounded_log(pos_top, pos_sum) + bounded_log(neg_top, neg_sum)
        added = _add_values(added, out_value, value, scale, rows, in_rows, SCALE, TOTAL)
        pos_factor, neg_factor = inverse(exp(-pos_top) + pos_sum) * scale, inverse(exp(-neg_top) + neg_sum) * scale
        grad = tile_gradient(pos, neg, pos_factor, neg_factor, LEAN)
        tl.store(out_grad + rows[:, None] * num_labels + columns[None, :], grad.to(out_grad.dtype.element_ty), mask=in_tile)
    return added


@triton.jit
def _larger_pairs(a, b, c, d):
    return tl.maximum(a, c), tl.maximum(b, d)
