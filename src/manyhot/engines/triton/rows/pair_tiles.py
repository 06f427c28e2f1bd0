"""Tiles of two predictions as the terms of their losses and of their divergence (CUDA); see ``rdrop``."""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import LOG2_E, LOG_2, distance, exp, exp2, inverse
from manyhot.engines.triton.rows.bits import bitmask_tile
from manyhot.engines.triton.rows.pieces import end_labels
from manyhot.engines.triton.rows.tiles import (
    careful_terms,
    column_weight,
    place_columns,
    side_exponents,
    tile_gradient,
    tile_labels,
    tile_where,
)

# Odds are clamped here: larger ones change nothing, and the product of two stays finite. If LEAN, a sum below this value rules
# out larger odds. Otherwise it does not: a confident positive has large odds and is in no sum.
LARGEST_ODDS = tl.constexpr(1e18)


@triton.jit
def pair_tile(
    a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride, where_stride,
    b_stride, pos_number, neg_number, smoothing, rows, in_rows, start, end, cursor, stop,
    LOSS: tl.constexpr, LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Both scores, 0 where they do not count; the labels twice if LEAN, else the weights of the positive and of the negative
    terms; which entries count; how far the lists were read."""
    WIDTH: tl.constexpr = 128 // a.dtype.element_ty.primitive_bitwidth
    columns, in_tile = place_columns(end, in_rows, start, ROWS, BLOCK, EVEN)
    s = tl.load(a + rows[:, None] * a_stride + columns[None, :], mask=in_tile, other=0).to(tl.float32)
    z = tl.load(b + rows[:, None] * b_stride + columns[None, :], mask=in_tile, other=0).to(tl.float32)
    counts = in_tile
    if HAS_WHERE:
        counts = tile_where(where, where_stride, rows, columns, in_tile, WIDTH)
        s, z = tl.where(counts, s, 0.0), tl.where(counts, z, 0.0)
    up, down = counts, counts
    if LOSS and LABELS == "bits":
        if UNIT % WIDTH == 0:
            # Rows, and with them steps, begin at a group of bits that are read together.
            up = in_tile & bitmask_tile(labels, rows * num_labels + start, in_rows, ROWS, BLOCK, WIDTH)
        else:
            up = end_labels(labels, rows[:, None] * num_labels + columns[None, :], in_tile, LABELS)
        down = up
    elif LOSS:
        up, cursor = tile_labels(labels, label_stride, indices, values, rows, columns, in_tile, smoothing, cursor, stop,
                                 LABELS, LEAN, ROWS, BLOCK, "", WIDTH)  # fmt: skip
        down = up
        if not LEAN:
            pos_w = column_weight(pos_weight, pos_number, columns, num_labels, POS, BLOCK)
            neg_w = column_weight(neg_weight, neg_number, columns, num_labels, NEG, BLOCK)
            down = tl.where(counts, (1.0 - up) * neg_w[None, :], 0.0)
            up = tl.where(counts, up * pos_w[None, :], 0.0)
    return s, z, up, down, counts, cursor


@triton.jit
def pair_exponents(s, up, down, counts, LEAN: tl.constexpr):
    """The exponents of each side, -inf for terms of the other side."""
    if LEAN:
        lowest = -float("inf")
        s = tl.where(counts, tl.where(up, -s, s), lowest)
        pos, neg = tl.where(up, s, lowest), tl.where(up, lowest, s)
    else:
        pos, neg = side_exponents(-s, s, up, down, False)
    return pos, neg


@triton.jit
def exponentials(s, z, up, counts, TURNED: tl.constexpr, ALL: tl.constexpr):
    """Both scores in units of log 2, negated for positives if TURNED, and both exponentials, 0 for excluded entries."""
    x, y = s * LOG2_E, z * LOG2_E
    if TURNED:
        unit = tl.where(up, -LOG2_E, LOG2_E)
        x, y = s * unit, z * unit
    e, f = exp2(x), exp2(y)
    if not ALL:
        e, f = tl.where(counts, e, 0.0), tl.where(counts, f, 0.0)
    return x, y, e, f


@triton.jit
def _odds(x, y, e, f, link, LINK: tl.constexpr, LARGE: tl.constexpr):
    """The odds of ``p = sigma(k x)`` and ``q = sigma(k y)``, clamped if LARGE, and ``(1 - p) (1 - q)``."""
    if LINK == 2:
        e, f = e * e, f * f
    elif LINK != 1:
        e, f = exp2(link * x), exp2(link * y)
    if LARGE or LINK != 1:
        e, f = tl.minimum(e, LARGEST_ODDS), tl.minimum(f, LARGEST_ODDS)
    return e, f, inverse((1.0 + e) * (1.0 + f))


@triton.jit
def apart(x, y, e, f, link, LINK: tl.constexpr, LARGE: tl.constexpr):
    """``(p - q) (x - y)``. ``p - q`` is the difference of the odds times ``(1 - p) (1 - q)``, which keeps all digits."""
    e, f, lack = _odds(x, y, e, f, link, LINK, LARGE)
    return (e - f) * lack * (x - y)


@triton.jit
def derivatives(x, y, e, f, link, scale, up, LINK: tl.constexpr, TURNED: tl.constexpr, LARGE: tl.constexpr):
    """The derivatives of the divergence by both scores, before any negation (TURNED), times the scale of the row."""
    e, f, lack = _odds(x, y, e, f, link, LINK, LARGE)
    between, far = (e - f) * lack, (x - y) * (LOG_2 * link)
    p_lack, q_lack = lack * (1.0 + f), lack * (1.0 + e)
    factor = (link * scale)[:, None]
    if TURNED:
        factor = tl.where(up, -factor, factor)
    return factor * (between + e * p_lack * p_lack * far), -factor * (between + f * q_lack * q_lack * far)


@triton.jit
def pair_terms(s, e, up, down, counts, pos_top, neg_top, LEAN: tl.constexpr, CAREFUL: tl.constexpr):
    """The terms in units of ``e^top``; if not CAREFUL, the tops are 0 and ``e`` is reused. If LEAN, both sides share one."""
    pos, neg = e, e
    if LEAN and CAREFUL:
        turned, top = tl.where(up, -s, s), tl.where(up, pos_top[:, None], neg_top[:, None])
        pos = tl.where(counts, exp(distance(turned, top)), 0.0)
        neg = pos
    elif CAREFUL:
        pos, neg = careful_terms(-s, s, up, down, pos_top, neg_top, False)
    elif not LEAN:
        # Terms of weight 0 are 0, even if they are infinite.
        pos, neg = tl.where(up > 0, up * exp(-s), 0.0), tl.where(down > 0, down * e, 0.0)
    return pos, neg


@triton.jit
def loss_gradient(pos, neg, pos_factor, neg_factor, up, LEAN: tl.constexpr):
    """The gradient of a loss from its terms and the factors of its rows."""
    if LEAN:
        grad = pos * tl.where(up, -pos_factor[:, None], neg_factor[:, None])
    else:
        grad = tile_gradient(pos, neg, pos_factor, neg_factor, False)
    return grad
