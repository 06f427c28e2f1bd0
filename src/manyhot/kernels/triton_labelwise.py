"""Losses that judge every label by itself, and their gradient, in one read and one write of the scores (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.kernels.triton_math import exp, softplus
from manyhot.kernels.triton_tiles import column_weight, first_listed, tile_labels, tile_where


@triton.jit
def _log_kept(shifted):
    """``-log(1 - m)`` for m in [0, 1), exact near 0 too."""
    z = shifted / (2.0 - shifted)
    w = z * z
    series = 2.0 * z * (1.0 + w * (0.33333334 + w * (0.2 + w * (0.14285715 + w * 0.11111111))))
    return tl.where(shifted < 0.3, series, -tl.log(1.0 - shifted))


@triton.jit
def labelwise_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, row_scale, out_value, out_grad,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    scale_number, pos_number, neg_number, smoothing, gamma_pos, gamma_neg, margin,
    KIND: tl.constexpr, HAS_MARGIN: tl.constexpr, LABELS: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, HAS_SCALE: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One tile: its part of the row sums, ``[R, CHUNKS]``, and its gradient. KIND is "bce" or "focal" (and asymmetric)."""
    program = tl.program_id(0)
    chunk = program % CHUNKS
    row = (program // CHUNKS).to(tl.int64) * ROWS
    rows = row + tl.arange(0, ROWS)
    columns = chunk * BLOCK + tl.arange(0, BLOCK)
    in_rows = rows < num_rows
    in_tile = in_rows[:, None] & (columns < num_labels)[None, :]
    WIDTH: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    s = tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=in_tile, other=0).to(tl.float32)
    counts = in_tile
    if HAS_WHERE:
        counts = tile_where(where, where_stride, rows, columns, in_tile, WIDTH)
    cursor, stop = first_listed(offsets, indices, row, rows, in_rows, chunk * BLOCK, LABELS, ROWS, CHUNKS > 1, BLOCK)
    t, _ = tile_labels(labels, label_stride, indices, values, rows, columns, in_tile, smoothing, cursor, stop,
                       LABELS, False, ROWS, BLOCK, "", WIDTH)  # fmt: skip
    up = tl.where(counts, t * column_weight(pos_weight, pos_number, columns, num_labels, POS, BLOCK)[None, :], 0.0)
    down = tl.where(counts, (1.0 - t) * column_weight(neg_weight, neg_number, columns, num_labels, NEG, BLOCK)[None, :], 0.0)
    s = tl.where((up > 0) | (down > 0), s, 0.0)
    e = exp(-tl.abs(s))
    larger, smaller = 1.0 / (1.0 + e), e / (1.0 + e)
    p, q = tl.where(s > 0, larger, smaller), tl.where(s > 0, smaller, larger)
    minus_log_p, minus_log_q = softplus(-s), softplus(s)
    if KIND == "bce":
        pos, neg, pos_slope, neg_slope = minus_log_p, minus_log_q, -q, p
    else:
        focus = exp(-gamma_pos * minus_log_q)
        pos = focus * minus_log_p
        pos_slope = -focus * (gamma_pos * p * minus_log_p + q)
        if HAS_MARGIN:
            shifted = tl.maximum(p - margin, 0.0)
            cost, log_shifted = _log_kept(shifted), tl.log(tl.where(shifted > 0, shifted, 1.0))
            focus = tl.where(shifted > 0, exp(gamma_neg * log_shifted), tl.where(gamma_neg == 0, 1.0, 0.0))
            steeper = tl.where(shifted > 0, gamma_neg * exp((gamma_neg - 1.0) * log_shifted), 0.0)
            neg = focus * cost
            neg_slope = tl.where(shifted > 0, p * q * (steeper * cost + focus / (1.0 - shifted)), 0.0)
        else:
            focus = exp(-gamma_neg * minus_log_p)
            neg = focus * minus_log_q
            neg_slope = focus * (gamma_neg * q * minus_log_q + p)
    total = tl.where(up > 0, up * pos, 0.0) + tl.where(down > 0, down * neg, 0.0)
    tl.store(out_value + rows * CHUNKS + chunk, tl.sum(total, axis=1), mask=in_rows)
    scale = tl.zeros([ROWS], tl.float32) + scale_number
    if HAS_SCALE:
        scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
    grad = (up * pos_slope + down * neg_slope) * scale[:, None]
    tl.store(out_grad + rows[:, None] * num_labels + columns[None, :], grad.to(out_grad.dtype.element_ty), mask=in_tile)
