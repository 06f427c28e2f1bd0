"""Costs of single labels (CUDA): BCE, focal and asymmetric loss, each with its derivative.

Both sides have one form: the cost of a score u that should be low, ``-sigma(u)^gamma log(1 - sigma(u))``, is that of a
negative, and with -u for u that of a positive.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import LOG_2, exp, inverse, log1p_unit, log2


@triton.jit
def label_cost(
    u, t, gamma_pos, gamma_neg, margin,
    KIND: tl.constexpr, HAS_MARGIN: tl.constexpr, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr,
):  # fmt: skip
    """The cost of each hard label, positives turned round, and its derivative by u; a margin is for negatives."""
    if HAS_MARGIN and POWER_POS >= 0:
        cost, slope = _power_cost(u, t, margin, POWER_POS, POWER_NEG)
    elif HAS_MARGIN:
        pos, pos_slope = one_cost(u, gamma_pos, KIND)
        neg, neg_slope = shifted_cost(u, gamma_neg, margin)
        cost, slope = tl.where(t, pos, neg), tl.where(t, pos_slope, neg_slope)
    else:
        cost, slope = one_cost(u, tl.where(t, gamma_pos, gamma_neg), KIND)
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
def one_cost(u, gamma, KIND: tl.constexpr):
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
