"""Two predictions of the same rows at once (CUDA): both losses, how far they are apart, and both gradients.

    value     (zlpr(a) + zlpr(b)) / 2 + alpha sum_i (p_i - q_i) k (a_i - b_i)     p = sigma(k a), q = sigma(k b)
    gradient  by a_i: d zlpr(a) / 2 + alpha k ((p_i - q_i) + p_i (1 - p_i) k (a_i - b_i)), by b_i the same with a, b swapped

Rows that fit in a tile are read once: stage "fused". Of longer ones every program first sums up a chunk, stage "sums", and a
second launch merges the sums and writes the gradients, stage "gradient". Nothing waits, and every output has one writer.
Without LOSS there is the divergence alone, which needs no sums: stage "fused" for any length.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.kernels.triton_math import COMPILED, exp
from manyhot.kernels.triton_merge import merge_chunks, publish
from manyhot.kernels.triton_tiles import (
    SAFE,
    careful_terms,
    column_weight,
    finish,
    first_listed,
    settle,
    side_exponents,
    side_terms,
    tile_gradient,
    tile_labels,
    tile_where,
)


@triton.jit
def rdrop_kernel(
    a, labels, offsets, indices, values, where, pos_weight, neg_weight, b, row_scale, partial, out_value, grad_a, grad_b,
    num_rows, num_labels, a_stride, label_stride, where_stride, b_stride,
    scale_number, pos_number, neg_number, smoothing, alpha, link,
    LOSS: tl.constexpr, LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, HAS_SCALE: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr, CHUNKS: tl.constexpr,
    MANY: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One tile of both. ``partial`` holds the sums of either loss, ``[2, R, CHUNKS, 4]``, and divergence, ``[R, CHUNKS]``."""
    program = tl.program_id(0)
    chunk = program % CHUNKS
    row = (program // CHUNKS).to(tl.int64) * ROWS
    rows = row + tl.arange(0, ROWS)
    columns = chunk * BLOCK + tl.arange(0, BLOCK)
    in_rows = rows < num_rows
    in_tile = in_rows[:, None] & (columns < num_labels)[None, :]
    if EVEN:
        in_rows, in_tile = tl.full([ROWS], True, tl.int1), tl.full([ROWS, BLOCK], True, tl.int1)
    counts = in_tile
    if HAS_WHERE:
        counts = tile_where(where, where_stride, rows, columns, in_tile, 128 // a.dtype.element_ty.primitive_bitwidth)
    s = _scores(a, a_stride, rows, columns, in_tile, counts, HAS_WHERE)
    z = _scores(b, b_stride, rows, columns, in_tile, counts, HAS_WHERE)
    apart, by_a, by_b = _divergence(s, z, link)
    all_a = partial
    all_b = all_a + tl.cast(num_rows, tl.int64) * CHUNKS * 4
    all_apart = all_b + tl.cast(num_rows, tl.int64) * CHUNKS * 4
    if LOSS:
        up, down = _weights(
            a, labels, offsets, indices, values, pos_weight, neg_weight, label_stride, pos_number, neg_number, smoothing,
            num_labels, row, rows, columns, in_rows, in_tile, counts, chunk, LABELS, LEAN, POS, NEG, CHUNKS, ROWS, BLOCK,
        )  # fmt: skip
        if STAGE == "gradient":
            a_pos_top, a_pos_sum, a_neg_top, a_neg_sum = merge_chunks(all_a, row, "split", CHUNKS, MANY)
            b_pos_top, b_pos_sum, b_neg_top, b_neg_sum = merge_chunks(all_b, row, "split", CHUNKS, MANY)
            a_pos, a_neg = _terms(s, up, down, counts, a_pos_top, a_neg_top, LEAN)
            b_pos, b_neg = _terms(z, up, down, counts, b_pos_top, b_neg_top, LEAN)
            places = tl.arange(0, MANY)
            total = tl.sum(tl.load(all_apart + row * CHUNKS + places, mask=places < CHUNKS, other=0), axis=0)
        else:
            a_pos, a_neg = _plain_terms(s, up, down, counts, LEAN, EVEN and not HAS_WHERE)
            b_pos, b_neg = _plain_terms(z, up, down, counts, LEAN, EVEN and not HAS_WHERE)
            a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, total = _sums(a_pos, a_neg, b_pos, b_neg, apart, LEAN)
            total = alpha * total
            a_pos_top = tl.zeros([ROWS], tl.float32)
            a_neg_top, b_pos_top, b_neg_top = a_pos_top, a_pos_top, a_pos_top
            if tl.max(tl.where(a_pos_sum + a_neg_sum + b_pos_sum + b_neg_sum <= SAFE, 0, 1), axis=0) > 0:
                # Read again, so that nothing has to be kept for this, which is rare.
                s = _scores(a, a_stride, rows, columns, in_tile, counts, HAS_WHERE)
                z = _scores(b, b_stride, rows, columns, in_tile, counts, HAS_WHERE)
                a_pos_top, a_neg_top = _tops(s, up, down, counts, LEAN)
                b_pos_top, b_neg_top = _tops(z, up, down, counts, LEAN)
                a_pos, a_neg = _terms(s, up, down, counts, a_pos_top, a_neg_top, LEAN)
                b_pos, b_neg = _terms(z, up, down, counts, b_pos_top, b_neg_top, LEAN)
                a_pos_sum, a_neg_sum, b_pos_sum, b_neg_sum, _ = _sums(a_pos, a_neg, b_pos, b_neg, a_pos, LEAN)
    else:
        total = alpha * tl.sum(apart, axis=1)
    if STAGE == "sums":
        publish(all_a, rows, chunk, a_pos_top, a_pos_sum, a_neg_top, a_neg_sum, in_rows, CHUNKS)
        publish(all_b, rows, chunk, b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, in_rows, CHUNKS)
        tl.store(all_apart + rows * CHUNKS + chunk, total, mask=in_rows)
    else:
        scale = tl.zeros([ROWS], tl.float32) + scale_number
        if HAS_SCALE:
            scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
        by_a, by_b = by_a * (alpha * scale)[:, None], by_b * (alpha * scale)[:, None]
        if LOSS:
            a_value, _, pos_factor, neg_factor = finish(a_pos_top, a_pos_sum, a_neg_top, a_neg_sum, scale, "split")
            by_a += tile_gradient(a_pos, a_neg, pos_factor * (0.5 * scale), neg_factor * (0.5 * scale), LEAN)
            b_value, _, pos_factor, neg_factor = finish(b_pos_top, b_pos_sum, b_neg_top, b_neg_sum, scale, "split")
            by_b += tile_gradient(b_pos, b_neg, pos_factor * (0.5 * scale), neg_factor * (0.5 * scale), LEAN)
            mine = in_rows & (tl.zeros([ROWS], tl.int32) + chunk == 0)
            tl.store(out_value + rows, 0.5 * (a_value + b_value) + total, mask=mine)
        else:
            tl.store(out_value + rows * CHUNKS + chunk, total, mask=in_rows)
        _store(grad_a, by_a, num_labels, rows, columns, in_tile, counts, HAS_WHERE)
        _store(grad_b, by_b, num_labels, rows, columns, in_tile, counts, HAS_WHERE)


@triton.jit
def _sums(a_pos, a_neg, b_pos, b_neg, apart, LEAN: tl.constexpr):
    """The sums of both sides of both losses, and of the divergence, in one reduction."""
    a_pos, a_neg = side_terms(a_pos, a_neg, LEAN)
    b_pos, b_neg = side_terms(b_pos, b_neg, LEAN)
    return tl.reduce((a_pos, a_neg, b_pos, b_neg, apart), 1, _add_five)


@triton.jit
def _add_five(a, b, c, d, e, f, g, h, i, j):
    return a + f, b + g, c + h, d + i, e + j


@triton.jit
def _scores(x, stride, rows, columns, in_tile, counts, HAS_WHERE: tl.constexpr):
    """The scores of a tile, 0 where they do not count."""
    s = tl.load(x + rows[:, None] * stride + columns[None, :], mask=in_tile, other=0).to(tl.float32)
    if HAS_WHERE:
        s = tl.where(counts, s, 0.0)
    return s


@triton.jit
def _weights(
    a, labels, offsets, indices, values, pos_weight, neg_weight, label_stride, pos_number, neg_number, smoothing,
    num_labels, row, rows, columns, in_rows, in_tile, counts, chunk,
    LABELS: tl.constexpr, LEAN: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr, CHUNKS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The labels twice where LEAN, else the weights of the positive and of the negative terms."""
    WIDTH: tl.constexpr = 128 // a.dtype.element_ty.primitive_bitwidth
    cursor, stop = first_listed(offsets, indices, row, rows, in_rows, chunk * BLOCK, LABELS, ROWS, CHUNKS > 1, BLOCK)
    t, _ = tile_labels(labels, label_stride, indices, values, rows, columns, in_tile, smoothing, cursor, stop,
                       LABELS, LEAN, ROWS, BLOCK, "", WIDTH)  # fmt: skip
    up, down = t, t
    if not LEAN:
        pos_w = column_weight(pos_weight, pos_number, columns, num_labels, POS, BLOCK)
        neg_w = column_weight(neg_weight, neg_number, columns, num_labels, NEG, BLOCK)
        up, down = tl.where(counts, t * pos_w[None, :], 0.0), tl.where(counts, (1.0 - t) * neg_w[None, :], 0.0)
    return up, down


@triton.jit
def _sigmoid(x):
    """``sigma(x)``, ``sigma(-x)`` and their product, the derivative, all with all their digits."""
    e = exp(-tl.abs(x))
    if COMPILED:
        larger = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [1.0 + e], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        larger = 1.0 / (1.0 + e)
    smaller = e * larger
    return tl.where(x > 0, larger, smaller), tl.where(x > 0, smaller, larger), smaller * larger


@triton.jit
def _divergence(s, z, link):
    """``(p - q) k (s - z)`` and its derivatives by s and z; where p and q are near 1, what they lack is subtracted."""
    p, p_lack, p_slope = _sigmoid(link * s)
    q, q_lack, q_slope = _sigmoid(link * z)
    between, far = tl.where(s + z > 0, q_lack - p_lack, p - q), link * (s - z)
    return between * far, link * (between + p_slope * far), -link * (between + q_slope * far)


@triton.jit
def _exponents(s, up, counts, LEAN: tl.constexpr):
    """The exponents of the positive and of the negative terms; one for both where LEAN, -inf where nothing counts."""
    a, b = -s, s
    if LEAN:
        a = tl.where(counts, tl.where(up, -s, s), -float("inf"))
        b = a
    return a, b


@triton.jit
def _plain_terms(s, up, down, counts, LEAN: tl.constexpr, ALL: tl.constexpr):
    """The terms without a shift, which nearly all scores allow; with the sign of their side where LEAN."""
    if LEAN:
        e = exp(tl.where(up, -s, s))
        if not ALL:
            e = tl.where(counts, e, 0.0)
        pos = tl.where(up, -e, e)
        neg = pos
    else:
        pos, neg = up * exp(-s), down * exp(s)
    return pos, neg


@triton.jit
def _tops(s, up, down, counts, LEAN: tl.constexpr):
    """The largest exponent of either side, at least 0."""
    a, b = _exponents(s, up, counts, LEAN)
    pos, neg = side_exponents(a, b, up, down, LEAN)
    return settle(tl.max(pos, axis=1), "split"), settle(tl.max(neg, axis=1), "split")


@triton.jit
def _terms(s, up, down, counts, pos_top, neg_top, LEAN: tl.constexpr):
    """The terms in units of ``e^top``."""
    a, b = _exponents(s, up, counts, LEAN)
    return careful_terms(a, b, up, down, pos_top, neg_top, LEAN)


@triton.jit
def _store(out, grad, num_labels, rows, columns, in_tile, counts, HAS_WHERE: tl.constexpr):
    """Write a gradient, 0 where nothing counts."""
    if HAS_WHERE:
        grad = tl.where(counts, grad, 0.0)
    tl.store(out + rows[:, None] * num_labels + columns[None, :], grad.to(out.dtype.element_ty), mask=in_tile)
