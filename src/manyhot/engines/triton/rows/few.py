"""Rows of few labels, many to a program (CUDA): the loss and its gradient in one read and one write of the scores.

Rows of a hundred labels are bound by instructions rather than by memory, and instructions done once per row or per program
count too. So the kernel is persistent: programs loop over tiles, prefetch the next one and add up the losses of their rows; the
last program reduces these sums. Exponentials are unshifted, and the gradient reuses them. A program that met a sum near the
limits of the range recomputes all its tiles, with the largest exponent subtracted. Index lists are converted to 64-bit words,
one bit per label.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import COMPILED, exp, inverse, log1p_fast
from manyhot.engines.triton.packed.kept import kept_gradient, kept_sums, read_kept_words, store_words
from manyhot.engines.triton.packed.ranges import LOWEST, NEAR
from manyhot.engines.triton.rows.bits import first_entries, list_ends, listed_bits, listed_near, words_of_lists
from manyhot.engines.triton.rows.early import fetch_early, start_early
from manyhot.engines.triton.rows.few_again import add_values, rows_of, take_again
from manyhot.engines.triton.rows.lists import LISTS
from manyhot.engines.triton.rows.tiles import add_pairs
from manyhot.engines.triton.rows.totals import add_up, fill_slot, is_finished, note_factor

# The product of two sums up to this size is finite; in the joint form, even after the offset is multiplied in.
SAFE, JOINT_SAFE = tl.constexpr(1e18), tl.constexpr(1e14)
# The least term of the joint form, the same as in ``packed.kept``: a sum is 0 only if it has no terms.
LEAST = tl.constexpr(1e-36)


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
    """Loss and gradient, in a loop over tiles of ROWS rows, without a mask and without weights per label. The joint form and
    offsets are supported only if LEAN.

    A row is one tile of BLOCK labels, or two side by side, so that fewer threads share it. EVEN: rows fill their tiles.
    """
    _fetch_first(x, labels, offsets, x_stride, label_stride, num_rows, num_labels, LABELS, ROWS, SEGMENT)
    start_early()
    if TOTAL == "again":  # noqa: SIM102 - a compile-time condition, then a runtime one
        if is_finished(row_scale, scale_number, state):
            return
    num_labels, x_stride, label_stride = num_labels // UNIT * UNIT, x_stride // UNIT * UNIT, label_stride // UNIT * UNIT
    if EVEN:
        num_labels = SEGMENT
    PER: tl.constexpr = 64 // x.dtype.element_ty.primitive_bitwidth
    LISTED: tl.constexpr = LABELS == "lists"
    BYTES: tl.constexpr = LABELS == "dense" and labels.dtype.element_ty == tl.uint8
    WORDS: tl.constexpr = COMPILED and LEAN and UNIT % PER == 0 and (LISTED or BYTES)
    TWO: tl.constexpr = SEGMENT > BLOCK
    program, programs = tl.program_id(0), tl.num_programs(0)
    scale = tl.zeros([ROWS], tl.float32) + scale_number
    if SCALE == "one":
        scale = scale * tl.load(row_scale)
    c = tl.zeros([ROWS], tl.float32) + offset_number
    zero = offset_number if OFFSET == "zero" else tl.where(num_rows < 0, 1.0, 0.0)  # a 0 that the assembler cannot recognise
    added, worst = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.int32)
    rows, in_rows = rows_of(program, num_rows, ROWS)
    if OFFSET == "row":
        next_c = tl.load(offset + rows, mask=in_rows, other=0).to(tl.float32)
    s, t = _read(x, labels, x_stride, label_stride, num_labels, rows, in_rows, 0, LISTED, WORDS, EVEN, BLOCK, UNIT)
    s_more, t_more = s, t
    if TWO:
        s_more, t_more = _read(
            x, labels, x_stride, label_stride, num_labels, rows, in_rows, BLOCK, LISTED, WORDS, EVEN, BLOCK, UNIT
        )
    start, left, entries, low, high = rows, rows, rows, rows, rows
    if LISTED:
        start, left = list_ends(offsets, rows, in_rows)
        entries = first_entries(indices, start, left, SEGMENT)
    for tile in tl.range(program, tl.cdiv(num_rows, ROWS), programs):
        rows, in_rows = rows_of(tile, num_rows, ROWS)
        next_rows, in_next = rows_of(tile + programs, num_rows, ROWS)
        if OFFSET == "row":
            c, next_c = next_c, tl.load(offset + next_rows, mask=in_next, other=0).to(tl.float32)
        next_start, next_left = start, left
        if LISTED:
            next_start, next_left = list_ends(offsets, next_rows, in_next)
        next_s, next_t = _read(
            x, labels, x_stride, label_stride, num_labels, next_rows, in_next, 0, LISTED, WORDS, EVEN, BLOCK, UNIT
        )
        next_more, next_t_more = s_more, t_more
        if TWO:
            next_more, next_t_more = _read(
                x, labels, x_stride, label_stride, num_labels, next_rows, in_next, BLOCK, LISTED, WORDS, EVEN, BLOCK, UNIT
            )
        if LISTED:
            low, high = words_of_lists(indices, start, left, entries, 0, SEGMENT)
        pos, neg, e, f, g, h, t = _terms(
            s, t, x, low, high, pos_number, neg_number, smoothing, num_labels, in_rows, 0, LISTED, LEAN, FORM, WORDS, EVEN,
            BLOCK, UNIT,
        )  # fmt: skip
        if TWO:
            pos_more, neg_more, e_more, f_more, g_more, h_more, t_more = _terms(
                s_more, t_more, x, low, high, pos_number, neg_number, smoothing, num_labels, in_rows, BLOCK, LISTED, LEAN,
                FORM, WORDS, EVEN, BLOCK, UNIT,
            )  # fmt: skip
            pos, neg = pos + pos_more, neg + neg_more
        if LISTED:
            # The offsets of the next lists have been loaded by now.
            entries = first_entries(indices, next_start, next_left, SEGMENT)
        pos_sum, neg_sum = tl.reduce((pos, neg), 1, add_pairs)
        if SCALE == "rows":
            scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
        value, slope, pos_factor, neg_factor, fits = _conclude(pos_sum, neg_sum, c, OFFSET, FORM)
        worst = tl.maximum(worst, tl.where(fits | ~in_rows, 0, 1))
        added = add_values(added, out_value, value, scale, rows, in_rows, SCALE, TOTAL)
        if OFFSET == "row":
            tl.store(out_slope + rows, slope, mask=in_rows)
        pos_factor, neg_factor = pos_factor * scale, neg_factor * scale
        _store(out_grad, e, f, g, h, t, pos_factor, neg_factor, zero, num_labels, rows, in_rows, 0,
               LISTED, LEAN, WORDS, EVEN, BLOCK, UNIT)  # fmt: skip
        if TWO:
            _store(out_grad, e_more, f_more, g_more, h_more, t_more, pos_factor, neg_factor, zero, num_labels, rows, in_rows,
                   BLOCK, LISTED, LEAN, WORDS, EVEN, BLOCK, UNIT)  # fmt: skip
        s, t, s_more, t_more, start, left = next_s, next_t, next_more, next_t_more, next_start, next_left
    if tl.max(worst, axis=0) > 0:
        tl.debug_barrier()
        added = take_again(
            x, labels, offsets, indices, values, where, pos_weight, neg_weight, offset, row_scale, out_value, out_slope,
            out_grad, num_rows, num_labels, x_stride, label_stride, where_stride, pos_number, neg_number, smoothing, c, scale,
            LABELS, LEAN, HAS_WHERE, POS, NEG, OFFSET, SCALE, FORM, ROWS, SEGMENT, UNIT, TOTAL,
        )  # fmt: skip
    if TOTAL == "sum" or TOTAL == "mean":
        fill_slot(out_value, program, tl.sum(added, axis=0))
    note_factor(row_scale, scale_number, state, grad_neg, SCALE, TOTAL)
    add_up(out_total, out_value, num_rows, scale_number, 0, SCALE, 1, TOTAL)


@triton.jit
def _fetch_first(
    x, labels, offsets, x_stride, label_stride, num_rows, num_labels,
    LABELS: tl.constexpr, ROWS: tl.constexpr, SEGMENT: tl.constexpr,
):  # fmt: skip
    """Fetch the first tile early, a sector of 32 bytes at a time."""
    rows = tl.minimum(rows_of(tl.program_id(0), num_rows, ROWS)[0], num_rows - 1)
    SECTOR: tl.constexpr = 256 // x.dtype.element_ty.primitive_bitwidth
    columns = tl.minimum(tl.arange(0, max(1, SEGMENT // SECTOR)) * SECTOR, num_labels - 1)
    fetch_early(x + rows[:, None] * x_stride + columns[None, :])
    if LABELS == "dense":
        PART: tl.constexpr = 256 // labels.dtype.element_ty.primitive_bitwidth
        columns = tl.minimum(tl.arange(0, max(1, SEGMENT // PART)) * PART, num_labels - 1)
        fetch_early(labels + rows[:, None] * label_stride + columns[None, :])
    else:
        fetch_early(offsets + rows)


@triton.jit
def _in_tile(num_labels, in_rows, columns, EVEN: tl.constexpr):
    """Mask of the labels of a tile that exist."""
    in_tile = in_rows[:, None]
    if not EVEN:
        in_tile = in_tile & (columns < num_labels)[None, :]
    return in_tile


@triton.jit
def _read(
    x, labels, x_stride, label_stride, num_labels, rows, in_rows, first,
    LISTED: tl.constexpr, WORDS: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Scores and labels of a tile from the label ``first`` on, as words or one by one. Index lists have no labels here.

    Past the end of a row, scores are -inf and labels negative, so that the terms are 0.
    """
    PER: tl.constexpr = 64 // x.dtype.element_ty.primitive_bitwidth
    if WORDS:
        HALF: tl.constexpr = x.dtype.element_ty == tl.float16
        s, t = read_kept_words(
            x, labels, x_stride, label_stride, num_labels, rows, in_rows, first, LISTED, BLOCK, PER, HALF, UNIT
        )
    else:
        columns = first + tl.arange(0, BLOCK)
        in_tile = _in_tile(num_labels, in_rows, columns, EVEN)
        s = tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=in_tile, other=-float("inf"))
        t = s
        if not LISTED:
            place = tl.max_contiguous(labels + rows[:, None] * label_stride + columns[None, :], [1, 2 * PER])
            t = tl.load(place, mask=in_tile, other=0)
    return s, t


@triton.jit
def _terms(
    s, t, x, low, high, pos_number, neg_number, smoothing, num_labels, in_rows, first,
    LISTED: tl.constexpr, LEAN: tl.constexpr, FORM: tl.constexpr, WORDS: tl.constexpr, EVEN: tl.constexpr,
    BLOCK: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """The terms of both sides of a tile, ready to be summed; then four tensors and the labels, from which ``_store`` computes
    the gradient. The four hold the terms of each word (WORDS), the terms (LEAN), or positive and negative terms. No term of the
    joint form is less than LEAST."""
    PER: tl.constexpr = 64 // x.dtype.element_ty.primitive_bitwidth
    if WORDS:
        HALF: tl.constexpr = x.dtype.element_ty == tl.float16
        if LISTED:
            t = listed_near(low, high, first, BLOCK, PER)
        pos, neg, e, f, g, h = kept_sums(s, t, PER, HALF, LISTED, FORM == "joint")
    else:
        columns = first + tl.arange(0, BLOCK)
        s = s.to(tl.float32)
        if LISTED:
            t = listed_bits(low, high, first, columns, BLOCK, min(UNIT, 2 * PER))
        elif t.dtype.is_int():
            t = t > 0
        if LEAN:
            e = exp(tl.where(t, -s, s))
            if FORM == "joint":
                e = tl.maximum(e, LEAST, propagate_nan=tl.PropagateNan.ALL)
            f = e
            pos, neg = tl.where(t, e, 0.0), tl.where(t, 0.0, e)
        else:
            in_tile = _in_tile(num_labels, in_rows, columns, EVEN)
            t = t.to(tl.float32) * (1.0 - smoothing) + smoothing / 2
            e = tl.where(in_tile, t * pos_number * exp(-s), 0.0)
            f = tl.where(in_tile, (1.0 - t) * neg_number * exp(s), 0.0)
            pos, neg = e, f
        g, h = e, f
    return pos, neg, e, f, g, h, t


@triton.jit
def _conclude(pos, neg, c, OFFSET: tl.constexpr, FORM: tl.constexpr):
    """From both sums of each row: its loss, the derivative by the offset, the factor of either side's terms in the gradient,
    and whether the sums are in the safe range.

    split   log(1 + p) + log(1 + n), p = e^c pos, n = e^-c neg     factors  e^c / (1 + p), e^-c / (1 + n)
    joint   log(1 + b), b = e^c pos neg                            factors  e^c neg / (1 + b), e^c pos / (1 + b)
    """
    if FORM == "split":
        up, down = 1.0, 1.0
        if OFFSET != "zero":
            up, down = exp(c), exp(-c)
            pos, neg = pos * up, neg * down
        fits = pos + neg <= SAFE
        value = log1p_fast(pos + neg + pos * neg)
        pos_factor, neg_factor = inverse(1.0 + pos), inverse(1.0 + neg)
        slope = pos * pos_factor - neg * neg_factor
        pos_factor, neg_factor = pos_factor * up, neg_factor * down
    else:
        # Terms that underflow do not matter in a sum that is large enough, nor in an empty side.
        fits = (pos + neg <= JOINT_SAFE) & ((pos == 0) | (pos >= LOWEST)) & ((neg == 0) | (neg >= LOWEST))
        up = 1.0
        if OFFSET != "zero":
            up = exp(c)
        both = pos * neg * up
        value = log1p_fast(both)
        share = inverse(1.0 + both)
        slope = both * share
        pos_factor, neg_factor = neg * up * share, pos * up * share
    if OFFSET != "zero":
        fits = fits & (tl.abs(c) <= NEAR)
    return value, slope, pos_factor, neg_factor, fits


@triton.jit
def _store(
    out_grad, e, f, g, h, t, pos_factor, neg_factor, zero, num_labels, rows, in_rows, first,
    LISTED: tl.constexpr, LEAN: tl.constexpr, WORDS: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a tile."""
    if WORDS:
        PER: tl.constexpr = 64 // out_grad.dtype.element_ty.primitive_bitwidth
        HALF: tl.constexpr = out_grad.dtype.element_ty == tl.float16
        grad = kept_gradient(e, f, g, h, t, pos_factor[:, None], neg_factor[:, None], zero, PER, HALF, LISTED)
        store_words(out_grad, grad, num_labels, rows, in_rows, first, BLOCK, PER, UNIT)
    else:
        if LEAN:
            grad = e * tl.where(t, -pos_factor[:, None], neg_factor[:, None])
        else:
            grad = f * neg_factor[:, None] - e * pos_factor[:, None]
        columns = first + tl.arange(0, BLOCK)
        in_tile = _in_tile(num_labels, in_rows, columns, EVEN)
        tl.store(out_grad + rows[:, None] * num_labels + columns[None, :], grad.to(out_grad.dtype.element_ty), mask=in_tile)
