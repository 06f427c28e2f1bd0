"""Two predictions of the same rows in small steps (CUDA): a pass for the sums, and one for the gradients; see ``rdrop``.

The second pass reads the scores from cache. A program processes the labels from ``begin`` to ``end``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import LOG_2
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
from manyhot.engines.triton.rows.tiles import finish, place_columns, settle
from manyhot.engines.triton.rows.totals import store_values


@triton.jit
def step_rows(
    a, labels, indices, values, where, pos_weight, neg_weight, b, partial, arrived, out_value, grad_a, grad_b,
    num_rows, num_labels, a_stride, label_stride, where_stride, b_stride, pos_number, neg_number, smoothing, alpha, link,
    scale, row, rows, in_rows, chunk, begin, end, cursor, stop,
    LOSS: tl.constexpr, LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, SCALE: tl.constexpr, LINK: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr,
    CHUNKS: tl.constexpr, MANY: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
    TOTAL: tl.constexpr,
):  # fmt: skip
    """Process a program's labels in steps of BLOCK: values and gradients, or one STAGE of them."""
    MERGED: tl.constexpr = LOSS and CHUNKS > 1
    zero = tl.zeros([ROWS], tl.float32)
    a_pos_top, a_neg_top, b_pos_top, b_neg_top = zero, zero, zero, zero
    a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, total = zero, zero, zero, zero, zero
    if STAGE != "gradient":
        a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, total = step_sums(
            a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
            b_stride, pos_number, neg_number, smoothing, link, rows, in_rows, begin, end, cursor, stop, zero, zero, zero, zero,
            LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, LINK, EVEN, False, ROWS, BLOCK, UNIT,
        )  # fmt: skip
        if LOSS:  # noqa: SIM102 - a compile-time condition, then a runtime one
            if not are_in_range(a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum):
                (
                    a_pos_top, a_neg_top, b_pos_top, b_neg_top, a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, total
                ) = careful_pair(
                    a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride,
                    where_stride, b_stride, pos_number, neg_number, smoothing, link, rows, in_rows, begin, end, cursor, stop,
                    LABELS, LEAN, HAS_WHERE, POS, NEG, LINK, EVEN, ROWS, BLOCK, UNIT,
                )  # fmt: skip
        total = zero + alpha * link * LOG_2 * total
        if MERGED:
            publish_pair(
                partial, num_rows, rows, in_rows, chunk, a_pos_top, a_pos_sum, a_neg_top, a_neg_sum,
                b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, total, CHUNKS,
            )  # fmt: skip
    if STAGE != "sums":
        if MERGED:
            if STAGE == "fused":
                wait_for_row(arrived, row, CHUNKS)
            (
                a_pos_top, a_pos_sum, a_neg_top, a_neg_sum, b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, total
            ) = merge_pair(partial, num_rows, row, CHUNKS, MANY)  # fmt: skip
        a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor = zero, zero, zero, zero
        careful = 0.0
        if LOSS:
            a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor = conclude_pair(
                a_pos_top, a_pos_sum, a_neg_top, a_neg_sum, b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, total, scale,
                out_value, row, rows, in_rows, chunk, SCALE, CHUNKS, ROWS, TOTAL,
            )  # fmt: skip
            careful = tl.max(tl.maximum(tl.maximum(a_pos_top, a_neg_top), tl.maximum(b_pos_top, b_neg_top)), axis=0)
        else:
            tl.store(out_value + rows * CHUNKS + chunk, total, mask=in_rows)
        if not LOSS or careful == 0.0:
            step_gradients(
                a, labels, indices, values, where, pos_weight, neg_weight, b, grad_a, grad_b, num_labels, a_stride,
                label_stride, where_stride, b_stride, pos_number, neg_number, smoothing, link, alpha * scale, rows, in_rows,
                begin, end, cursor, stop, zero, zero, zero, zero, a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor,
                LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, LINK, EVEN, False, ROWS, BLOCK, UNIT,
            )  # fmt: skip
        else:
            step_gradients(
                a, labels, indices, values, where, pos_weight, neg_weight, b, grad_a, grad_b, num_labels, a_stride,
                label_stride, where_stride, b_stride, pos_number, neg_number, smoothing, link, alpha * scale, rows, in_rows,
                begin, end, cursor, stop, a_pos_top, a_neg_top, b_pos_top, b_neg_top,
                a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor,
                LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, LINK, EVEN, True, ROWS, BLOCK, UNIT,
            )  # fmt: skip


@triton.jit
def are_in_range(a_pos, a_neg, b_pos, b_neg):
    """Whether sums of unshifted exponentials are exact in all rows of a tile."""
    return tl.max(tl.where(a_pos + a_neg + b_pos + b_neg <= LARGEST_ODDS, 0, 1), axis=0) == 0


@triton.jit
def careful_pair(
    a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
    b_stride, pos_number, neg_number, smoothing, link, rows, in_rows, begin, end, cursor, stop,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    LINK: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """The largest exponents, the sums in units of ``e^top``, and the divergence."""
    a_pos_top, a_neg_top, b_pos_top, b_neg_top = step_tops(
        a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
        b_stride, pos_number, neg_number, smoothing, rows, in_rows, begin, end, cursor, stop,
        LABELS, LEAN, HAS_WHERE, POS, NEG, EVEN, ROWS, BLOCK, UNIT,
    )  # fmt: skip
    a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, total = step_sums(
        a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
        b_stride, pos_number, neg_number, smoothing, link, rows, in_rows, begin, end, cursor, stop,
        a_pos_top, a_neg_top, b_pos_top, b_neg_top,
        True, LABELS, LEAN, HAS_WHERE, POS, NEG, LINK, EVEN, True, ROWS, BLOCK, UNIT,
    )  # fmt: skip
    return a_pos_top, a_neg_top, b_pos_top, b_neg_top, a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, total


@triton.jit
def publish_pair(
    partial, num_rows, rows, in_rows, chunk, a_pos_top, a_pos_sum, a_neg_top, a_neg_sum,
    b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, total, CHUNKS: tl.constexpr,
):  # fmt: skip
    """Write the sums of a chunk: ``partial`` is ``[2, R, CHUNKS, 4]`` for the losses, then ``[R, CHUNKS]``."""
    size = tl.cast(num_rows, tl.int64) * CHUNKS * 4
    publish(partial, rows, chunk, a_pos_top, a_pos_sum, a_neg_top, a_neg_sum, in_rows, CHUNKS)
    publish(partial + size, rows, chunk, b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, in_rows, CHUNKS)
    tl.store(partial + 2 * size + rows * CHUNKS + chunk, total, mask=in_rows)


@triton.jit
def merge_pair(partial, num_rows, row, CHUNKS: tl.constexpr, MANY: tl.constexpr):
    """The sums of a row from those of its chunks, in the order of ``publish_pair``."""
    size = tl.cast(num_rows, tl.int64) * CHUNKS * 4
    a_pos_top, a_pos_sum, a_neg_top, a_neg_sum = merge_chunks(partial, row, "split", CHUNKS, MANY)
    b_pos_top, b_pos_sum, b_neg_top, b_neg_sum = merge_chunks(partial + size, row, "split", CHUNKS, MANY)
    places = tl.arange(0, MANY)
    parts = tl.load(partial + 2 * size + row * CHUNKS + places, mask=places < CHUNKS, other=0, volatile=True)
    total = tl.zeros([1], tl.float32) + tl.sum(parts, axis=0)
    return a_pos_top, a_pos_sum, a_neg_top, a_neg_sum, b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, total


@triton.jit
def conclude_pair(
    a_pos_top, a_pos_sum, a_neg_top, a_neg_sum, b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, total, scale,
    out_value, row, rows, in_rows, chunk,
    SCALE: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """Store the values of the rows. Returns the factors of both losses' terms in the gradients."""
    zero = tl.zeros([ROWS], tl.float32)
    a_value, _, a_pos_factor, a_neg_factor = finish(a_pos_top, a_pos_sum, a_neg_top, a_neg_sum, zero, "split")
    b_value, _, b_pos_factor, b_neg_factor = finish(b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, zero, "split")
    value, half = 0.5 * (a_value + b_value) + total, 0.5 * scale
    store_values(out_value, value, scale, row, rows, in_rows, chunk, SCALE, CHUNKS, ROWS, TOTAL)
    return half * a_pos_factor, half * a_neg_factor, half * b_pos_factor, half * b_neg_factor


@triton.jit
def step_sums(
    a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
    b_stride, pos_number, neg_number, smoothing, link, rows, in_rows, begin, end, cursor, stop,
    a_pos_top, a_neg_top, b_pos_top, b_neg_top,
    LOSS: tl.constexpr, LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, LINK: tl.constexpr, EVEN: tl.constexpr, CAREFUL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """The sums of both sides of both losses, in units of ``e^top``, and of the divergence."""
    WIDTH: tl.constexpr = 128 // a.dtype.element_ty.primitive_bitwidth
    # Neighbours read at once (NEAR), and threads per row (LANES): a warp has several rows.
    NEAR: tl.constexpr = min(UNIT, WIDTH)
    LARGE: tl.constexpr = CAREFUL or not (LOSS and LEAN)
    LANES: tl.constexpr = BLOCK // WIDTH if ROWS == 1 else min(32, BLOCK // NEAR)
    a_pos_sum, a_neg_sum = tl.zeros([ROWS, LANES], tl.float32), tl.zeros([ROWS, LANES], tl.float32)
    b_pos_sum, b_neg_sum = tl.zeros([ROWS, LANES], tl.float32), tl.zeros([ROWS, LANES], tl.float32)
    total = tl.zeros([ROWS, LANES], tl.float32)
    for start in range(begin, end, BLOCK):
        s, z, up, down, counts, cursor = pair_tile(
            a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
            b_stride, pos_number, neg_number, smoothing, rows, in_rows, start, end, cursor, stop,
            LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, EVEN, ROWS, BLOCK, UNIT,
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
    return tl.reduce((a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, total), 1, add_five)


@triton.jit
def _by_lanes(x, ROWS: tl.constexpr, LANES: tl.constexpr, NEAR: tl.constexpr):
    """The sum over the labels of each thread: NEAR neighbours, in one group or several, ``[ROWS, LANES]``."""
    groups = tl.reshape(x, [ROWS, x.shape[1] // (LANES * NEAR), LANES, NEAR])
    return tl.sum(tl.sum(groups, axis=3), axis=1)


@triton.jit
def add_five(a, b, c, d, e, f, g, h, i, j):
    """Combine function that reduces five sums at once."""
    return a + f, b + g, c + h, d + i, e + j


@triton.jit
def step_tops(
    a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
    b_stride, pos_number, neg_number, smoothing, rows, in_rows, begin, end, cursor, stop,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """The largest exponent of each side of both losses, at least 0."""
    lowest = -float("inf")
    a_pos_top, a_neg_top = tl.full([ROWS], lowest, tl.float32), tl.full([ROWS], lowest, tl.float32)
    b_pos_top, b_neg_top = a_pos_top, a_neg_top
    for start in range(begin, end, BLOCK):
        s, z, up, down, counts, cursor = pair_tile(
            a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
            b_stride, pos_number, neg_number, smoothing, rows, in_rows, start, end, cursor, stop,
            True, LABELS, LEAN, HAS_WHERE, POS, NEG, EVEN, ROWS, BLOCK, UNIT,
        )  # fmt: skip
        a_pos, a_neg = pair_exponents(s, up, down, counts, LEAN)
        b_pos, b_neg = pair_exponents(z, up, down, counts, LEAN)
        a_pos_top, a_neg_top = tl.maximum(a_pos_top, tl.max(a_pos, axis=1)), tl.maximum(a_neg_top, tl.max(a_neg, axis=1))
        b_pos_top, b_neg_top = tl.maximum(b_pos_top, tl.max(b_pos, axis=1)), tl.maximum(b_neg_top, tl.max(b_neg, axis=1))
    return settle(a_pos_top, "split"), settle(a_neg_top, "split"), settle(b_pos_top, "split"), settle(b_neg_top, "split")


@triton.jit
def step_gradients(
    a, labels, indices, values, where, pos_weight, neg_weight, b, grad_a, grad_b, num_labels, a_stride,
    label_stride, where_stride, b_stride, pos_number, neg_number, smoothing, link, scale, rows, in_rows,
    begin, end, cursor, stop, a_pos_top, a_neg_top, b_pos_top, b_neg_top,
    a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor,
    LOSS: tl.constexpr, LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, LINK: tl.constexpr, EVEN: tl.constexpr, CAREFUL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """Write both gradients: ``scale`` times that of the divergence, and the factors times the terms of either side."""
    LARGE: tl.constexpr = CAREFUL or not (LOSS and LEAN)
    for start in range(begin, end, BLOCK):
        s, z, up, down, counts, cursor = pair_tile(
            a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
            b_stride, pos_number, neg_number, smoothing, rows, in_rows, start, end, cursor, stop,
            LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, EVEN, ROWS, BLOCK, UNIT,
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
        columns, in_tile = place_columns(end, in_rows, start, ROWS, BLOCK, EVEN)
        place = rows[:, None] * num_labels + columns[None, :]
        tl.store(grad_a + place, by_a, mask=in_tile)
        tl.store(grad_b + place, by_b, mask=in_tile)
