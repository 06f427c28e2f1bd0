"""Which scores a best common cut may predict, and that cut, from sorted scores (CUDA). One program each: with torch, either is
forty launches.

The value of a cut with ``tp`` true positives among ``pp`` predictions, for ``p`` positives, is F1; if ERROR, ``2 tp - pp - p``.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _value(tp, pp, p, ERROR: tl.constexpr):
    return 2.0 * tp - pp - p if ERROR else 2.0 * tp / tl.maximum(pp + p, 1.0)


@triton.jit
def _first_at_least(values, size, s):
    """For each ``s``: the number of increasing ``values [size]`` that are below it."""
    low = tl.zeros(s.shape, tl.int32)
    high = low + size
    left = size
    while left > 0:
        middle = (low + high) // 2
        lower = tl.load(values + middle, mask=low < high, other=float("inf")) < s
        low, high = tl.where(lower & (low < high), middle + 1, low), tl.where(lower, high, middle)
        left = left // 2
    return low


@triton.jit(do_not_specialize=("size", "positives"))
def level_kernel(sample, hits, levels, size, positives, share, errors, extra, ERROR: tl.constexpr, BLOCK: tl.constexpr):
    """``levels [0]``: the lowest score that a best cut may predict, probably, or ``extra`` scores lower; ``levels [1]``: inf.

    ``sample`` and ``hits``, the scores of the positives, increase. A score of the sample stands for ``share`` scores, give or
    take ``errors`` standard errors.
    """
    share, errors, extra = tl.cast(share, tl.float64), tl.cast(errors, tl.float64), tl.cast(extra, tl.float64)
    p = tl.cast(positives, tl.float64)
    zero = p * 0.0
    known = tl.zeros([BLOCK], tl.float64) + _value(zero, zero, p, ERROR)
    for first in range(0, positives, BLOCK):
        number = first + tl.arange(0, BLOCK)
        hit = tl.load(hits + number, mask=number < positives, other=-float("inf"))
        count = (size - _first_at_least(sample, size, hit)).to(tl.float64)
        tp = (positives - number).to(tl.float64)
        pp = tl.maximum(share * (count + errors * tl.sqrt(count + 1.0)), tp)
        known = tl.where(hit > -float("inf"), tl.maximum(known, _value(tp, pp, p, ERROR)), known)
    best = tl.max(known, axis=0)
    # The first number of scores of the sample that proves lower cuts to be worse: all positives found without more predictions.
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        fewest = tl.cast(middle + 1, tl.float64)
        fewest = share * (fewest - errors * tl.sqrt(fewest + 1.0)) - extra
        if _value(p, tl.maximum(fewest, p), p, ERROR) > best:
            low = middle + 1
        else:
            high = middle
    level = tl.load(sample + size - 1 - low, mask=low < size, other=-float("inf"))
    tl.store(levels, level)
    tl.store(levels + 1, float("inf"))


@triton.jit(do_not_specialize=("size", "positives"))
def cut_kernel(scores, hits, levels, out, size, positives, near, ERROR: tl.constexpr, BLOCK: tl.constexpr):
    """The best cut just below one of the ``hits`` that are at least ``levels [0]``, the highest of equal ones.

    ``out``, float64: its value, its place among the ``scores``, the highest score; then ``2 near + 2`` scores around that
    place, repeated at either end, and how many hits are at least as high as each. Scores and hits increase.
    """
    level = tl.load(levels)
    p = tl.cast(positives, tl.float64)
    best = tl.full([BLOCK], -float("inf"), tl.float64)
    chosen = tl.zeros([BLOCK], tl.int32)
    for first in range(0, positives, BLOCK):
        number = first + tl.arange(0, BLOCK)
        hit = tl.load(hits + number, mask=number < positives, other=-float("inf"))
        pp = (size - _first_at_least(scores, size, hit)).to(tl.float64)
        # Of equal hits, the first has the number of all of them.
        value = _value((positives - number).to(tl.float64), pp, p, ERROR)
        better = (hit >= level) & (hit > -float("inf")) & (value >= best)
        best, chosen = tl.where(better, value, best), tl.where(better, number, chosen)
    reached = tl.max(best, axis=0)
    place = tl.max(tl.where(best == reached, chosen, 0), axis=0)
    at = tl.max(_first_at_least(scores, size, tl.zeros([1], tl.float32) + tl.load(hits + place)), axis=0)
    tl.store(out, reached)
    tl.store(out + 1, at.to(tl.float64))
    tl.store(out + 2, tl.load(scores + size - 1).to(tl.float64))
    many = 2 * near + 2
    for first in range(0, many, BLOCK):
        lane = first + tl.arange(0, BLOCK)
        s = tl.load(scores + tl.minimum(tl.maximum(at - near - 1 + lane, 0), size - 1))
        tp = positives - _first_at_least(hits, positives, s)
        tl.store(out + 3 + lane, s.to(tl.float64), mask=lane < many)
        tl.store(out + 3 + many + lane, tp.to(tl.float64), mask=lane < many)
