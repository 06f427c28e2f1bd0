"""R-Drop: two predictions of the same rows at once (CUDA), with both losses, their divergence, and both gradients.

    value     (zlpr(a) + zlpr(b)) / 2 + alpha sum_i (p_i - q_i) k (a_i - b_i)     p = sigma(k a), q = sigma(k b)
    gradient  by a_i: d zlpr(a) / 2 + alpha k ((p_i - q_i) + p_i (1 - p_i) k (a_i - b_i)), by b_i the same with a, b swapped

The divergence is unchanged if the signs of a and b are flipped. So with hard labels and no weights (LEAN), both scores of a
positive are negated, and one exponential of each score serves its loss and its probability.

A program has several rows, or a chunk of one row. It makes one pass in small steps for the sums and a second one for the
gradients; the second pass reads the scores from cache, which is faster than keeping them in registers. In stage "fused" the
programs of a row wait for each other in between; where they cannot, there are two launches, stages "sums" and "gradient".
Without LOSS only the divergence is computed, which needs no sums.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import LOG_2
from manyhot.engines.triton.rows.lists import LISTS
from manyhot.engines.triton.rows.merge import merge_chunks, publish, wait_for_row
from manyhot.engines.triton.rows.pair_tiles import (
    LARGEST_ODDS,
    apart,
    derivatives,
    exponentials,
    loss_gradient,
    pair_exponents,
    pair_terms,
    pair_tile,
)
from manyhot.engines.triton.rows.tiles import finish, first_listed, ragged_place, settle


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def rdrop_kernel(
    a, labels, offsets, indices, values, where, pos_weight, neg_weight, b, row_scale, partial, arrived, out_value, grad_a,
    grad_b,
    num_rows, num_labels, a_stride, label_stride, where_stride, b_stride,
    scale_number, pos_number, neg_number, smoothing, alpha, link,
    LOSS: tl.constexpr, LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, HAS_SCALE: tl.constexpr, LINK: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr,
    CHUNKS: tl.constexpr, MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """SEGMENT labels of ROWS rows of both, in steps of BLOCK labels.

    ``partial`` holds the sums of either loss, ``[2, R, CHUNKS, 4]``, and the divergence, ``[R, CHUNKS]``. RAGGED rows are
    contiguous and begin anywhere, one to a program: see ``ragged_place``.
    """
    MERGED: tl.constexpr = LOSS and CHUNKS > 1
    # Tell Triton that sizes are multiples of UNIT, as in ``row_kernel``.
    num_labels, a_stride, b_stride = num_labels // UNIT * UNIT, a_stride // UNIT * UNIT, b_stride // UNIT * UNIT
    label_stride, where_stride = label_stride // UNIT * UNIT, where_stride // UNIT * UNIT
    program = tl.program_id(0)
    chunk = program % CHUNKS
    row = tl.cast(program // CHUNKS, tl.int64) * ROWS
    rows = row + tl.arange(0, ROWS)
    in_rows = rows < num_rows
    if EVEN:
        in_rows = tl.full([ROWS], True, tl.int1)
    begin = chunk * SEGMENT
    end = tl.minimum(begin + SEGMENT, num_labels)
    if RAGGED:
        WIDTH: tl.constexpr = 128 // a.dtype.element_ty.primitive_bitwidth
        end = tl.minimum(begin + SEGMENT, num_labels + (row * num_labels % WIDTH).to(tl.int32))
    first, stop = first_listed(offsets, indices, row, rows, in_rows, begin, LABELS, ROWS, CHUNKS > 1, SEGMENT)
    all_a = partial
    all_b = all_a + tl.cast(num_rows, tl.int64) * CHUNKS * 4
    all_apart = all_b + tl.cast(num_rows, tl.int64) * CHUNKS * 4
    zero = tl.zeros([ROWS], tl.float32)
    a_pos_top, a_neg_top, b_pos_top, b_neg_top = zero, zero, zero, zero
    a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, total = zero, zero, zero, zero, zero
    if STAGE != "gradient":
        a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, total = _sums(
            a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
            b_stride, pos_number, neg_number, smoothing, link, rows, in_rows, begin, end, first, stop, zero, zero, zero, zero,
            LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, LINK, EVEN, False, ROWS, BLOCK, UNIT, RAGGED,
        )  # fmt: skip
        if LOSS:  # noqa: SIM102 - this is known to the compiler, what follows is not
            if tl.max(tl.where(a_pos_sum + a_neg_sum + b_pos_sum + b_neg_sum <= LARGEST_ODDS, 0, 1), axis=0) > 0:
                a_pos_top, a_neg_top, b_pos_top, b_neg_top = _tops(
                    a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride,
                    where_stride, b_stride, pos_number, neg_number, smoothing, rows, in_rows, begin, end, first, stop,
                    LABELS, LEAN, HAS_WHERE, POS, NEG, EVEN, ROWS, BLOCK, RAGGED,
                )  # fmt: skip
                a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, total = _sums(
                    a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride,
                    where_stride, b_stride, pos_number, neg_number, smoothing, link, rows, in_rows, begin, end, first, stop,
                    a_pos_top, a_neg_top, b_pos_top, b_neg_top,
                    LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, LINK, EVEN, True, ROWS, BLOCK, UNIT, RAGGED,
                )  # fmt: skip
        total = alpha * link * LOG_2 * total
        if MERGED:
            publish(all_a, rows, chunk, a_pos_top, a_pos_sum, a_neg_top, a_neg_sum, in_rows, CHUNKS)
            publish(all_b, rows, chunk, b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, in_rows, CHUNKS)
            tl.store(all_apart + rows * CHUNKS + chunk, total, mask=in_rows)
    if STAGE != "sums":
        if MERGED:
            if STAGE == "fused":
                wait_for_row(arrived, row, CHUNKS)
            a_pos_top, a_pos_sum, a_neg_top, a_neg_sum = merge_chunks(all_a, row, "split", CHUNKS, MANY)
            b_pos_top, b_pos_sum, b_neg_top, b_neg_sum = merge_chunks(all_b, row, "split", CHUNKS, MANY)
            places = tl.arange(0, MANY)
            parts = tl.load(all_apart + row * CHUNKS + places, mask=places < CHUNKS, other=0, volatile=True)
            total = zero + tl.sum(parts, axis=0)
        scale = zero + scale_number
        if HAS_SCALE:
            scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
        a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor = zero, zero, zero, zero
        careful = 0.0
        if LOSS:
            a_value, _, a_pos_factor, a_neg_factor = finish(a_pos_top, a_pos_sum, a_neg_top, a_neg_sum, zero, "split")
            b_value, _, b_pos_factor, b_neg_factor = finish(b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, zero, "split")
            half = 0.5 * scale
            a_pos_factor, a_neg_factor = half * a_pos_factor, half * a_neg_factor
            b_pos_factor, b_neg_factor = half * b_pos_factor, half * b_neg_factor
            mine = in_rows & (tl.zeros([ROWS], tl.int32) + chunk == 0)
            tl.store(out_value + rows, 0.5 * (a_value + b_value) + total, mask=mine)
            careful = tl.max(tl.maximum(tl.maximum(a_pos_top, a_neg_top), tl.maximum(b_pos_top, b_neg_top)), axis=0)
        else:
            tl.store(out_value + rows * CHUNKS + chunk, total, mask=in_rows)
        if not LOSS or careful == 0.0:
            _gradients(
                a, labels, indices, values, where, pos_weight, neg_weight, b, grad_a, grad_b, num_labels, a_stride,
                label_stride, where_stride, b_stride, pos_number, neg_number, smoothing, link, alpha * scale, rows, in_rows,
                begin, end, first, stop, zero, zero, zero, zero, a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor,
                LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, LINK, EVEN, False, ROWS, BLOCK, RAGGED,
            )  # fmt: skip
        else:
            _gradients(
                a, labels, indices, values, where, pos_weight, neg_weight, b, grad_a, grad_b, num_labels, a_stride,
                label_stride, where_stride, b_stride, pos_number, neg_number, smoothing, link, alpha * scale, rows, in_rows,
                begin, end, first, stop, a_pos_top, a_neg_top, b_pos_top, b_neg_top,
                a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor,
                LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, LINK, EVEN, True, ROWS, BLOCK, RAGGED,
            )  # fmt: skip


@triton.jit
def _sums(
    a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
    b_stride, pos_number, neg_number, smoothing, link, rows, in_rows, begin, end, cursor, stop,
    a_pos_top, a_neg_top, b_pos_top, b_neg_top,
    LOSS: tl.constexpr, LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, LINK: tl.constexpr, EVEN: tl.constexpr, CAREFUL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """The sums of both sides of both losses, in units of ``e^top``, and of the divergence."""
    WIDTH: tl.constexpr = 128 // a.dtype.element_ty.primitive_bitwidth
    # Neighbours read at once, and threads per row; a warp has several rows.
    NEAR: tl.constexpr = WIDTH if RAGGED else min(UNIT, WIDTH)
    LARGE: tl.constexpr = CAREFUL or not (LOSS and LEAN)
    LANES: tl.constexpr = BLOCK // WIDTH if ROWS == 1 else min(32, BLOCK // NEAR)
    a_pos_sum, a_neg_sum = tl.zeros([ROWS, LANES], tl.float32), tl.zeros([ROWS, LANES], tl.float32)
    b_pos_sum, b_neg_sum = tl.zeros([ROWS, LANES], tl.float32), tl.zeros([ROWS, LANES], tl.float32)
    total = tl.zeros([ROWS, LANES], tl.float32)
    for start in range(begin, end, BLOCK):
        s, z, up, down, counts, cursor = pair_tile(
            a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
            b_stride, pos_number, neg_number, smoothing, rows, in_rows, start, cursor, stop,
            LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, EVEN, ROWS, BLOCK, RAGGED,
        )  # fmt: skip
        x, y, e, f = exponentials(s, z, up, counts, LOSS and LEAN, EVEN and not HAS_WHERE)
        total += _by_lanes(apart(x, y, e, f, link, LINK, LARGE), ROWS, LANES, NEAR)
        if LOSS:
            a_pos, a_neg = pair_terms(s, e, up, down, counts, a_pos_top, a_neg_top, LEAN, CAREFUL)
            b_pos, b_neg = pair_terms(z, f, up, down, counts, b_pos_top, b_neg_top, LEAN, CAREFUL)
            if LEAN:
                a_pos, a_neg = tl.where(up, a_pos, 0.0), tl.where(up, 0.0, a_neg)
                b_pos, b_neg = tl.where(up, b_pos, 0.0), tl.where(up, 0.0, b_neg)
            a_pos_sum += _by_lanes(a_pos, ROWS, LANES, NEAR)
            a_neg_sum += _by_lanes(a_neg, ROWS, LANES, NEAR)
            b_pos_sum += _by_lanes(b_pos, ROWS, LANES, NEAR)
            b_neg_sum += _by_lanes(b_neg, ROWS, LANES, NEAR)
    return tl.reduce((a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, total), 1, _add_five)


@triton.jit
def _by_lanes(x, ROWS: tl.constexpr, LANES: tl.constexpr, NEAR: tl.constexpr):
    """Sums of the labels that one thread has: NEAR neighbours, of one group or of several."""
    groups = tl.reshape(x, [ROWS, x.shape[1] // (LANES * NEAR), LANES, NEAR])
    return tl.sum(tl.sum(groups, axis=3), axis=1)


@triton.jit
def _add_five(a, b, c, d, e, f, g, h, i, j):
    return a + f, b + g, c + h, d + i, e + j


@triton.jit
def _tops(
    a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
    b_stride, pos_number, neg_number, smoothing, rows, in_rows, begin, end, cursor, stop,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """The largest exponent of either side of both, at least 0."""
    lowest = -float("inf")
    a_pos_top, a_neg_top = tl.full([ROWS], lowest, tl.float32), tl.full([ROWS], lowest, tl.float32)
    b_pos_top, b_neg_top = a_pos_top, a_neg_top
    for start in range(begin, end, BLOCK):
        s, z, up, down, counts, cursor = pair_tile(
            a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
            b_stride, pos_number, neg_number, smoothing, rows, in_rows, start, cursor, stop,
            True, LABELS, LEAN, HAS_WHERE, POS, NEG, EVEN, ROWS, BLOCK, RAGGED,
        )  # fmt: skip
        a_pos, a_neg = pair_exponents(s, up, down, counts, LEAN)
        b_pos, b_neg = pair_exponents(z, up, down, counts, LEAN)
        a_pos_top, a_neg_top = tl.maximum(a_pos_top, tl.max(a_pos, axis=1)), tl.maximum(a_neg_top, tl.max(a_neg, axis=1))
        b_pos_top, b_neg_top = tl.maximum(b_pos_top, tl.max(b_pos, axis=1)), tl.maximum(b_neg_top, tl.max(b_neg, axis=1))
    return settle(a_pos_top, "split"), settle(a_neg_top, "split"), settle(b_pos_top, "split"), settle(b_neg_top, "split")


@triton.jit
def _gradients(
    a, labels, indices, values, where, pos_weight, neg_weight, b, grad_a, grad_b, num_labels, a_stride,
    label_stride, where_stride, b_stride, pos_number, neg_number, smoothing, link, scale, rows, in_rows,
    begin, end, cursor, stop, a_pos_top, a_neg_top, b_pos_top, b_neg_top,
    a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor,
    LOSS: tl.constexpr, LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, LINK: tl.constexpr, EVEN: tl.constexpr, CAREFUL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    RAGGED: tl.constexpr,
):  # fmt: skip
    """Write both gradients: ``scale`` times that of the divergence, and the factors times the terms of either side."""
    LARGE: tl.constexpr = CAREFUL or not (LOSS and LEAN)
    for start in range(begin, end, BLOCK):
        s, z, up, down, counts, cursor = pair_tile(
            a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
            b_stride, pos_number, neg_number, smoothing, rows, in_rows, start, cursor, stop,
            LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, EVEN, ROWS, BLOCK, RAGGED,
        )  # fmt: skip
        x, y, e, f = exponentials(s, z, up, counts, LOSS and LEAN, EVEN and not HAS_WHERE)
        by_a, by_b = derivatives(x, y, e, f, link, scale, up, LINK, LOSS and LEAN, LARGE)
        if LOSS:
            a_pos, a_neg = pair_terms(s, e, up, down, counts, a_pos_top, a_neg_top, LEAN, CAREFUL)
            b_pos, b_neg = pair_terms(z, f, up, down, counts, b_pos_top, b_neg_top, LEAN, CAREFUL)
            by_a += loss_gradient(a_pos, a_neg, a_pos_factor, a_neg_factor, up, LEAN)
            by_b += loss_gradient(b_pos, b_neg, b_pos_factor, b_neg_factor, up, LEAN)
        if HAS_WHERE:
            by_a, by_b = tl.where(counts, by_a, 0.0), tl.where(counts, by_b, 0.0)
        by_a, by_b = by_a.to(grad_a.dtype.element_ty), by_b.to(grad_b.dtype.element_ty)
        if RAGGED:
            WIDTH: tl.constexpr = 128 // a.dtype.element_ty.primitive_bitwidth
            place, own, whole, _ = ragged_place(rows, num_labels, start, BLOCK, WIDTH)
            tl.store(grad_a + place, by_a, mask=whole)
            tl.store(grad_b + place, by_b, mask=whole)
            # Only the first step and the last have groups that belong to another row too.
            if start == 0 or start + BLOCK > num_labels:
                tl.store(grad_a + place, by_a, mask=own & ~whole)
                tl.store(grad_b + place, by_b, mask=own & ~whole)
        else:
            columns = start + tl.arange(0, BLOCK)
            in_tile = in_rows[:, None] & (columns < num_labels)[None, :]
            if EVEN:
                in_tile = tl.full([ROWS, BLOCK], True, tl.int1)
            place = rows[:, None] * num_labels + columns[None, :]
            tl.store(grad_a + place, by_a, mask=in_tile)
            tl.store(grad_b + place, by_b, mask=in_tile)
