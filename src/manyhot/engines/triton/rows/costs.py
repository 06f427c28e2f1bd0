"""Costs of single labels (CUDA): BCE, focal and asymmetric loss, each with its derivative.

Both sides share one form. A negative with score u costs ``-sigma(u)^gamma log(1 - sigma(u))``; a positive costs the same with
-u in place of u.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import (
    COMPILED,
    LOG2_E,
    LOG_2,
    SMALLEST_NORMAL,
    exp,
    exp2,
    inverse,
    log1p_fast,
    log1p_unit,
    log2,
    spread,
)

# Exponentials clamp scores at LEAST. Above LARGE, e^-u may underflow to 0, and the score itself bounds the cost.
LEAST, LARGE = tl.constexpr(-80.0), tl.constexpr(20.0)
# Exponents of 2 are clamped here, so that the square of the power stays finite. No score this low exceeds a margin.
FARTHEST = tl.constexpr(57.0)
# The same where the power itself is all that must be finite.
FARTHEST_EVEN = tl.constexpr(126.0)
# The same as ``FARTHEST`` for scores of 16 bits: the lowest score, which both types have exactly.
LOWEST = tl.constexpr(-39.5)
# More than the logarithm of ``lean_margin_cost`` can be too high.
ABOVE = tl.constexpr(7e-7)
# The logarithms of 0 (not used) to 4.
LOGS = tl.constexpr((0.0, 0.0, 0.6931471805599453, 1.0986122886681098, 1.3862943611198906))


@triton.jit
def label_cost(
    u, t, gamma_pos, gamma_neg, margin,
    KIND: tl.constexpr, HAS_MARGIN: tl.constexpr, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr,
):  # fmt: skip
    """The cost of each hard label and its derivative by u, which is -s for a positive. A margin applies to negatives only."""
    if HAS_MARGIN and POWER_POS >= 0:
        cost, slope = _power_cost(u, t, margin, POWER_POS, POWER_NEG)
    elif HAS_MARGIN:
        pos, pos_slope = one_cost(u, gamma_pos, KIND, -1)
        neg, neg_slope = shifted_cost(u, gamma_neg, margin)
        cost, slope = tl.where(t, pos, neg), tl.where(t, pos_slope, neg_slope)
    elif POWER_POS == POWER_NEG and POWER_POS > 0:
        cost, slope = one_cost(u, gamma_pos, KIND, POWER_POS)
    else:
        cost, slope = one_cost(u, tl.where(t, gamma_pos, gamma_neg), KIND, -1)
    return cost, slope


@triton.jit
def _power_cost(u, t, margin, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr):
    """``-m^gamma log(1 - m)`` with ``m = max(sigma(u) - shift, 0)`` and its derivative by u; the shift of positives is 0.

    The kernel is bound by instructions, so both sides share one logarithm, and powers are multiplied out.
    """
    e = exp(-tl.maximum(u, LEAST))
    p = inverse(1.0 + e)
    rest = e * p
    shift = tl.where(t, 0.0, margin)
    m, kept = tl.maximum(p - shift, 0.0), rest + shift
    both = p * rest
    ratio = tl.where(t, p, both * inverse(kept))
    # No cost exceeds log(1 + e^u), which is u for large u. There e^-u, and with it ``kept``, may underflow to 0.
    log_cost = tl.minimum(-LOG_2 * log2(kept), tl.maximum(u, LARGE))
    series = m * (1.0 + m * (0.5 + m * (0.33333334 + m * 0.25)))
    log_cost = tl.where(m < 0.03125, series, log_cost)
    pull = both * tl.minimum(log_cost, 1e30)
    if POWER_POS > 0 and POWER_NEG > 0:
        below, gamma = _power(m, POWER_NEG - 1), POWER_NEG + 0.0
        if POWER_POS != POWER_NEG:
            below, gamma = tl.where(t, _power(m, POWER_POS - 1), below), tl.where(t, POWER_POS + 0.0, gamma)
        cost, slope = below * m * log_cost, below * (m * ratio + gamma * pull)
    else:
        focus = tl.where(t, _power(m, POWER_POS), _power(m, POWER_NEG))
        by_focus = tl.where(t, _slope_of_power(m, POWER_POS), _slope_of_power(m, POWER_NEG))
        # m^0 is 1 even if the probability is 0, so the cost of scores below LEAST is set to 0.
        some = (m > 0) & (u > LEAST)
        cost, slope = tl.where(some, focus * log_cost, 0.0), tl.where(some, focus * ratio + by_focus * pull, 0.0)
    return cost, slope


@triton.jit
def bce_costs(u):
    """``log(1 + e^u)`` summed over each group (the last axis), and the derivative of each entry.

    ``sum log(1 + e) = log prod (1 + e)``, so a group takes one logarithm. The product is accumulated without its leading 1, so
    that small costs keep their digits.
    """
    e = exp(-tl.abs(u))
    larger = inverse(1.0 + e)
    slope = tl.where(u > 0, larger, e * larger)
    return tl.sum(tl.maximum(u, 0.0), axis=1) + log1p_fast(tl.reduce(e, 1, _both)), slope


@triton.jit
def _both(a, b):
    """``(1 + a) (1 + b) - 1``."""
    return a * b + (a + b)


@triton.jit
def margin_cost(s, margin, POWER: tl.constexpr):
    """``-POWER m^POWER log(1 - m)`` with ``m = max(sigma(s) - margin, 0)``, which is POWER times the cost (the cost itself if
    POWER is 0), and the derivative of the cost; 0 at -inf. The margin is above 0.

    With ``e = e^-s`` and ``w = 1 + e``, sigma is 1 / w, and 1 - m is ``(e + margin w) / w``: one division serves both. The
    derivative of ``-log(1 - m)`` is then ``e / (w (e + margin w))``.
    """
    e = exp2(tl.minimum(-LOG2_E * s, FARTHEST, propagate_nan=tl.PropagateNan.ALL))
    w = 1.0 + e
    top = e + margin * w
    both = inverse(w * top)
    p = both * top
    m, kept = tl.maximum(p - margin, 0.0, propagate_nan=tl.PropagateNan.ALL), top * p
    times: tl.constexpr = max(POWER, 1)
    series = m * (times + m * (0.5 * times + m * (0.33333334 * times + m * (0.25 * times))))
    log_cost = tl.where(m < 0.03125, series, (-LOG_2 * times) * log2(kept))
    if POWER > 0:
        below = _power(m, POWER - 1)
        part = below * log_cost
        cost, slope = m * part, (e * both) * (below * m + part * kept)
    else:
        cost, slope = log_cost, tl.where(m > 0, e * both, 0.0)
    return cost, slope


@triton.jit
def lean_margin_cost(s, scale, margin, POWER: tl.constexpr):
    """``margin_cost`` for scores of 16 bits from LOWEST on, in fewer instructions and to four digits or more; the derivative is
    times ``scale``, which is not 0. ``is_lean`` says for which margins and scales.

    The scale goes into the common division, because that takes no instruction. Less ABOVE, the logarithm is never above the
    exact one, and nor is its series, so the larger of both is right.
    """
    times: tl.constexpr = max(POWER, 1)
    e = exp2(s * -LOG2_E)
    unit = spread(1.0 / scale)
    w = unit * e + unit
    top = (margin * scale) * w + e
    both = inverse(w * top)
    m = _unit(both * top, unit, -margin)
    kept = m * -times + times
    square = m * m
    series = square * (0.5 + 0.33333334 * m) + m
    log_cost = tl.maximum(series, log2(kept) * -LOG_2 + (LOGS[times] - ABOVE), propagate_nan=tl.PropagateNan.ALL)
    slope = e * both
    if POWER == 0:
        cost, slope = log_cost, tl.where(m > 0, slope, 0.0)
    else:
        below = square * m if POWER == 4 else _power(m, POWER - 1)
        cost, slope = m * (below * log_cost), (slope * below) * (log_cost * kept + m)
    return cost, slope


@triton.jit
def _unit(a, b, c):
    """``a b + c``, but at least 0 and at most 1, in one instruction; 0 if it is NaN."""
    if COMPILED:
        x = tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, $2, $3;", "=f,f,f,f", [a, b, c], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        x = tl.minimum(tl.maximum(a * b + c, 0.0), 1.0)
    return x


@triton.jit
def even_cost(u, weight, POWER: tl.constexpr):
    """``one_cost`` for a small whole POWER and scores of 16 bits, in fewer instructions and to five digits; both times
    ``weight``.

    With ``p = sigma(u)``, ``q = 1 - p`` and ``c = log(1 + e^u)``, the derivative of ``p^g c`` is ``p^g (g q c + p)``.
    """
    e = exp2(tl.minimum(-LOG2_E * u, FARTHEST_EVEN, propagate_nan=tl.PropagateNan.ALL))
    p = inverse(1.0 + e)
    # Never 0, so that its logarithm is finite. For scores that high, the cost is the score itself.
    q = e * p + SMALLEST_NORMAL
    series = p * (1.0 + p * (0.5 + p * (0.33333334 + p * 0.25)))
    log_cost = tl.where(p < 0.03125, series, -LOG_2 * log2(q))
    focus = weight * p
    for _ in tl.static_range(POWER - 1):
        focus = focus * p
    cost = focus * tl.maximum(log_cost, u, propagate_nan=tl.PropagateNan.ALL)
    return cost, focus * (POWER * (q * log_cost) + p)


@triton.jit
def _power(m, POWER: tl.constexpr):
    """``m^POWER``."""
    if POWER == 0:
        power = tl.full(m.shape, 1.0, tl.float32)
    elif POWER == 4:
        power = (m * m) * (m * m)
    else:
        power = m
        for _ in tl.static_range(POWER - 1):
            power = power * m
    return power


@triton.jit
def _slope_of_power(m, POWER: tl.constexpr):
    """The derivative of ``m^POWER``."""
    if POWER == 0:
        slope = tl.full(m.shape, 0.0, tl.float32)
    else:
        slope = POWER * _power(m, POWER - 1)
    return slope


@triton.jit
def one_cost(u, gamma, KIND: tl.constexpr, POWER: tl.constexpr):
    """``sigma(u)^gamma log(1 + e^u)`` and its derivative; with "bce" gamma is 0. POWER is gamma where it is a small whole
    number, else -1."""
    e = exp(-tl.abs(u))
    larger, rest = inverse(1.0 + e), log1p_unit(e)
    smaller = e * larger
    p = tl.where(u > 0, larger, smaller)
    cost, slope = tl.maximum(u, 0.0) + rest, p
    if KIND != "bce":
        # Bounded, so that an infinite score gives no 0 times infinity.
        pull = larger * smaller * tl.minimum(cost, 1e30)
        if POWER > 0:
            below = _power(p, POWER - 1)
            cost, slope = below * p * cost, below * (p * p + POWER * pull)
        else:
            focus = exp(gamma * (tl.maximum(tl.minimum(u, 0.0), -1e30) - rest))
            slope = focus * (gamma * tl.where(u > 0, smaller, larger) * tl.minimum(cost, 1e30) + slope)
            cost = focus * cost
    return cost, slope


@triton.jit
def shifted_cost(u, gamma, margin):
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
