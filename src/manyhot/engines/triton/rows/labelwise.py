"""Labelwise losses (BCE, focal, asymmetric) and their gradient, in one read and one write of the scores (CUDA).

Both sides have one form: the cost of a score u that should be low, ``-sigma(u)^gamma log(1 - sigma(u))``, is that of a
negative, and with -u for u that of a positive. A HARD label has one side, so only one cost is computed.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import LOG_2, exp, inverse, log1p_unit, log2
from manyhot.engines.triton.rows.lists import LISTS
from manyhot.engines.triton.rows.tiles import column_weight, first_listed, tile_labels, tile_where


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def labelwise_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, row_scale, out_value, out_grad,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    scale_number, pos_number, neg_number, smoothing, gamma_pos, gamma_neg, margin,
    KIND: tl.constexpr, HAS_MARGIN: tl.constexpr, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr,
    LABELS: tl.constexpr, HARD: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    HAS_SCALE: tl.constexpr, EVEN: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """One tile: its part of the row sums, ``[R, CHUNKS]``, and its gradient. KIND is "bce" or "focal" (and asymmetric).

    POWER_POS and POWER_NEG are the gammas where there is a margin and both are small whole numbers, else -1.
    """
    # Tell Triton that sizes are multiples of UNIT, as in ``row_kernel``.
    num_labels, x_stride = num_labels // UNIT * UNIT, x_stride // UNIT * UNIT
    label_stride, where_stride = label_stride // UNIT * UNIT, where_stride // UNIT * UNIT
    program = tl.program_id(0)
    chunk = program % CHUNKS
    row = tl.cast(program // CHUNKS, tl.int64) * ROWS
    rows = row + tl.arange(0, ROWS)
    columns = chunk * BLOCK + tl.arange(0, BLOCK)
    in_rows = rows < num_rows
    in_tile = in_rows[:, None] & (columns < num_labels)[None, :]
    if EVEN:
        in_rows, in_tile = tl.full([ROWS], True, tl.int1), tl.full([ROWS, BLOCK], True, tl.int1)
    WIDTH: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    s = tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=in_tile, other=0).to(tl.float32)
    counts = in_tile
    if HAS_WHERE:
        counts = tile_where(where, where_stride, rows, columns, in_tile, WIDTH)
    cursor, stop = first_listed(offsets, indices, row, rows, in_rows, chunk * BLOCK, LABELS, ROWS, CHUNKS > 1, BLOCK)
    t, _ = tile_labels(labels, label_stride, indices, values, rows, columns, in_tile, smoothing, cursor, stop,
                       LABELS, HARD, ROWS, BLOCK, "", WIDTH)  # fmt: skip
    pos_w = column_weight(pos_weight, pos_number, columns, num_labels, POS, BLOCK)[None, :]
    neg_w = column_weight(neg_weight, neg_number, columns, num_labels, NEG, BLOCK)[None, :]
    if HARD:
        weight = tl.where(t, pos_w, neg_w)
        if not EVEN or HAS_WHERE:
            weight = tl.where(counts, weight, 0.0)
        # Entries of weight 0 are skipped, whatever their score.
        s = tl.where(weight > 0, s, 0.0)
        cost, slope = _cost(tl.where(t, -s, s), t, gamma_pos, gamma_neg, margin, KIND, HAS_MARGIN, POWER_POS, POWER_NEG)
        total, grad = weight * cost, weight * tl.where(t, -slope, slope)
    else:
        up, down = tl.where(counts, t * pos_w, 0.0), tl.where(counts, (1.0 - t) * neg_w, 0.0)
        s = tl.where((up > 0) | (down > 0), s, 0.0)
        pos, pos_slope = _one_cost(-s, gamma_pos, KIND)
        if HAS_MARGIN:
            neg, neg_slope = _shifted_cost(s, gamma_neg, margin)
        else:
            neg, neg_slope = _one_cost(s, gamma_neg, KIND)
        total = tl.where(up > 0, up * pos, 0.0) + tl.where(down > 0, down * neg, 0.0)
        grad = down * neg_slope - up * pos_slope
    tl.store(out_value + rows * CHUNKS + chunk, tl.sum(total, axis=1), mask=in_rows)
    scale = tl.zeros([ROWS], tl.float32) + scale_number
    if HAS_SCALE:
        scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
    grad = grad * scale[:, None]
    tl.store(out_grad + rows[:, None] * num_labels + columns[None, :], grad.to(out_grad.dtype.element_ty), mask=in_tile)


@triton.jit
def _cost(
    u, t, gamma_pos, gamma_neg, margin,
    KIND: tl.constexpr, HAS_MARGIN: tl.constexpr, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr,
):  # fmt: skip
    """The cost of each hard label, positives turned round, and its derivative by u; a margin is for negatives."""
    if HAS_MARGIN and POWER_POS >= 0:
        cost, slope = _power_cost(u, t, margin, POWER_POS, POWER_NEG)
    elif HAS_MARGIN:
        pos, pos_slope = _one_cost(u, gamma_pos, KIND)
        neg, neg_slope = _shifted_cost(u, gamma_neg, margin)
        cost, slope = tl.where(t, pos, neg), tl.where(t, pos_slope, neg_slope)
    else:
        cost, slope = _one_cost(u, tl.where(t, gamma_pos, gamma_neg), KIND)
    return cost, slope


@triton.jit
def _power_cost(u, t, margin, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr):
    """``-m^gamma log(1 - m)`` with ``m = max(sigma(u) - shift, 0)`` and its derivative by u; the shift of positives is 0.

    Most of the time goes into special functions, so both sides share one logarithm, and powers are multiplied out.
    """
    e = exp(-tl.abs(u))
    larger = inverse(1.0 + e)
    smaller = e * larger
    high = u > 0
    p, rest = tl.where(high, larger, smaller), tl.where(high, smaller, larger)
    shift = tl.where(t, 0.0, margin)
    m, kept = tl.maximum(p - shift, 0.0), rest + shift
    # sigma(-u) is e^-u sigma(u) for a large u: its logarithm is taken apart, so that it never is that of 0.
    apart = high & t
    ratio = tl.where(t, p, larger * smaller * inverse(kept))
    log_cost = tl.where(apart, u, 0.0) - LOG_2 * log2(tl.where(apart, larger, kept))
    series = 0.125 + m * (0.11111111 + m * 0.1)
    series = 0.2 + m * (0.16666667 + m * (0.14285715 + m * series))
    series = m * (1.0 + m * (0.5 + m * (0.33333334 + m * (0.25 + m * series))))
    log_cost = tl.where(m < 0.15, series, log_cost)
    focus, pull = _power(m, t, POWER_POS, POWER_NEG)
    slope = focus * ratio + pull * (larger * smaller) * tl.minimum(log_cost, 1e30)
    some = m > 0
    return tl.where(some, focus * log_cost, 0.0), tl.where(some, slope, 0.0)


@triton.jit
def _power(m, t, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr):
    """``m^gamma`` and its derivative by m."""
    focus, pull = _one_power(m, POWER_NEG)
    if POWER_POS != POWER_NEG:
        pos_focus, pos_pull = _one_power(m, POWER_POS)
        focus, pull = tl.where(t, pos_focus, focus), tl.where(t, pos_pull, pull)
    return focus, pull


@triton.jit
def _one_power(m, POWER: tl.constexpr):
    below = m * 0.0 + 1.0
    for _ in tl.static_range(POWER - 1):
        below = below * m
    if POWER == 0:
        focus, pull = below, below * 0.0
    else:
        focus, pull = below * m, POWER * below
    return focus, pull


@triton.jit
def _one_cost(u, gamma, KIND: tl.constexpr):
    """``sigma(u)^gamma log(1 + e^u)`` and its derivative; with "bce" gamma is 0."""
    e = exp(-tl.abs(u))
    larger, rest = inverse(1.0 + e), log1p_unit(e)
    smaller = e * larger
    cost, slope = tl.maximum(u, 0.0) + rest, tl.where(u > 0, larger, smaller)
    if KIND != "bce":
        # Bounded, so that an infinite score gives no 0 times infinity.
        focus = exp(gamma * (tl.maximum(tl.minimum(u, 0.0), -1e30) - rest))
        slope = focus * (gamma * tl.where(u > 0, smaller, larger) * tl.minimum(cost, 1e30) + slope)
        cost = focus * cost
    return cost, slope


@triton.jit
def _shifted_cost(u, gamma, margin):
    """``-m^gamma log(1 - m)`` with ``m = max(sigma(u) - margin, 0)``, and its derivative by u."""
    e = exp(-tl.abs(u))
    larger = inverse(1.0 + e)
    smaller = e * larger
    p = tl.where(u > 0, larger, smaller)
    m = tl.maximum(p - margin, 0.0)
    some = m > 0
    shifted = tl.where(some, m, 1.0)
    log_cost = _log_kept(m)
    focus = exp(gamma * tl.log(shifted))
    slope = larger * smaller * focus * (gamma * inverse(shifted) * log_cost + inverse(1.0 - m))
    return tl.where(some, focus * log_cost, 0.0), tl.where(some, slope, 0.0)


@triton.jit
def _log_kept(shifted):
    """``-log(1 - m)`` for m in [0, 1), exact near 0 too."""
    z = shifted * inverse(2.0 - shifted)
    w = z * z
    series = 2.0 * z * (1.0 + w * (0.33333334 + w * (0.2 + w * (0.14285715 + w * 0.11111111))))
    return tl.where(shifted < 0.3, series, -tl.log(1.0 - shifted))
