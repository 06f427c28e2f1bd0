"""Tiles of a chunk of linear scores (CUDA): scores and weights turned into the terms of the two sides.

A chunk is ``s = hidden @ weight.T`` for the labels from ``first`` on, without the bias, which is added here in float32. A
program processes ROWS rows and COLS labels of it. Listed labels are few: a program finds its own through ``cuts``, the place in
each row's list where each block of COLS labels begins.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import distance, exp

# Listed labels of a row that are processed at once.
AT_ONCE = tl.constexpr(16)
LOWEST = tl.constexpr(float("-inf"))
# Sums of unshifted exponentials in this range are accurate.
LEAST, MOST = tl.constexpr(1e-30), tl.constexpr(1e30)
# Rows whose largest score is nearer to 0 than this have such sums.
FAR = tl.constexpr(60.0)


@triton.jit
def tile_place(program, col_blocks, num_rows, first, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The tile of a program in a chunk of labels from ``first``: its rows, which of them exist, its columns in the chunk, its
    labels, and its block of labels."""
    rows = (program // col_blocks * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    local = program % col_blocks * COLS + tl.arange(0, COLS)
    return rows, rows < num_rows, local, first + local, first // COLS + program % col_blocks


@triton.jit
def tile_scores(scores, bias, rows, in_rows, local, labels, num_labels, stride, HAS_BIAS: tl.constexpr, EVEN: tl.constexpr):
    """The scores of a tile in float32, -inf outside of the chunk, and which entries are inside."""
    inside = in_rows[:, None]
    if not EVEN:
        inside = inside & (labels < num_labels)[None, :]
    s = tl.load(scores + rows[:, None] * stride + local[None, :], mask=inside, other=LOWEST).to(tl.float32)
    if HAS_BIAS:
        if EVEN:
            b = tl.load(bias + labels).to(tl.float32)
        else:
            b = tl.load(bias + labels, mask=labels < num_labels, other=0).to(tl.float32)
        # A score of -inf means excluded, even if the bias of the label is infinite.
        s = tl.where(s == LOWEST, s, s + b[None, :])
    return s, inside


@triton.jit
def label_weight(weight, number, labels, inside, KIND: tl.constexpr):
    """``number``, times the weight of each label where there is one."""
    w = tl.zeros(labels.shape, tl.float32) + number
    if KIND == "label":
        w = w * tl.load(weight + labels, mask=inside, other=0).to(tl.float32)
    return w


@triton.jit
def tile_weights(
    truth, where, pos_weight, neg_weight, rows, labels, inside, num_labels, label_stride, where_stride,
    pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
):  # fmt: skip
    """The weights of the two sides of a tile, 0 where a term does not count; listed labels count as unlisted."""
    pos = label_weight(pos_weight, pos_number, labels, labels < num_labels, POS)[None, :]
    neg = label_weight(neg_weight, neg_number, labels, labels < num_labels, NEG)[None, :]
    if LABELS == "dense":
        t = tl.load(truth + rows[:, None] * label_stride + labels[None, :], mask=inside, other=0).to(tl.float32)
        t = t * (1.0 - smoothing) + smoothing / 2
        pos, neg = pos * t, neg * (1.0 - t)
    else:
        pos, neg = pos * (smoothing / 2), neg * (1.0 - smoothing / 2)
    if HAS_WHERE:
        counts = tl.load(where + rows[:, None] * where_stride + labels[None, :], mask=inside, other=0) != 0
    else:
        counts = inside
    return tl.where(counts, pos, 0.0), tl.where(counts, neg, 0.0)


@triton.jit
def listed_weights(
    values, where, pos_weight, neg_weight, entries, rows, labels, here, where_stride, pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
):  # fmt: skip
    """The weights of the two sides of listed labels, 0 where a term does not count."""
    t = tl.zeros(labels.shape, tl.float32) + 1.0
    if LABELS == "soft lists":
        t = tl.load(values + entries, mask=here, other=0).to(tl.float32)
    t = t * (1.0 - smoothing) + smoothing / 2
    counts = here
    if HAS_WHERE:
        counts = here & (tl.load(where + rows * where_stride + labels, mask=here, other=0) != 0)
    pos = label_weight(pos_weight, pos_number, labels, here, POS) * t
    neg = label_weight(neg_weight, neg_number, labels, here, NEG) * (1.0 - t)
    return tl.where(counts, pos, 0.0), tl.where(counts, neg, 0.0)


@triton.jit
def cut_lists(cuts, rows, in_rows, block, num_blocks):
    """Where a block of labels begins and ends in the lists of rows."""
    place = cuts + rows * (num_blocks + 1) + block
    return tl.load(place, mask=in_rows, other=0), tl.load(place + 1, mask=in_rows, other=0)


@triton.jit
def top_and_total(x, w):
    """``(m, sum w e^{x - m})`` along each row with m the largest x of a term; (0, 0) without any term."""
    x = tl.where(w > 0, x, LOWEST)
    top = tl.max(x, axis=1)
    top = tl.where(top == LOWEST, 0.0, top)
    return top, tl.sum(exp(distance(x, top[:, None])) * w, axis=1)


@triton.jit
def plain_terms(x, in_rows, ROWS: tl.constexpr):
    """``e^{x - m}``, m and the sum along each row: m is 0, or the largest x if a sum of the tile would have lost digits."""
    top = tl.zeros([ROWS], tl.float32)
    terms = exp(x)
    total = tl.sum(terms, axis=1)
    safe = (total >= LEAST) & (total <= MOST)
    if tl.max(tl.where(in_rows & (safe == 0), 1, 0), axis=0) > 0:
        top = tl.max(x, axis=1)
        top = tl.where(top == LOWEST, 0.0, top)
        terms = exp(distance(x, top[:, None]))
        total = tl.sum(terms, axis=1)
    return terms, top, total


@triton.jit
def safe_terms(x):
    """As ``plain_terms``, but settled before the terms are computed, so that they may take the registers of ``x``."""
    top = tl.max(x, axis=1)
    top = tl.where((tl.abs(top) < FAR) | (top == LOWEST), 0.0, top)
    if tl.max(tl.abs(top), axis=0) > 0:
        x = distance(x, top[:, None])
    terms = exp(x)
    return terms, top, tl.sum(terms, axis=1)


@triton.jit
def side_state(state, grad, rows, in_rows, num_rows, PER_ROW: tl.constexpr):
    """What the gradient needs of one side: the exponent factored out of its terms, and their factor times ``grad``, which has
    one number per row, or one for all rows. ``state`` starts with the exponents, ``[R]``; the factors follow."""
    top = tl.load(state + rows, mask=in_rows, other=float("inf"))
    factor = tl.load(state + num_rows + rows, mask=in_rows, other=0)
    if PER_ROW:
        factor = tl.where(factor == 0, 0.0, factor * tl.load(grad + rows, mask=in_rows, other=0))
    else:
        factor = factor * tl.load(grad).to(tl.float32)
    return top, factor


@triton.jit
def listed_gradient(score, pos_w, neg_w, pos_top, neg_top, pos_factor, neg_factor):
    """The gradient of listed labels; a term of weight 0 has none, whatever its score."""
    up = tl.where(pos_w > 0, pos_w * exp(distance(-score, pos_top)), 0.0)
    down = tl.where(neg_w > 0, neg_w * exp(distance(score, neg_top)), 0.0)
    return tl.where(down == 0, 0.0, down * neg_factor) - tl.where(up == 0, 0.0, up * pos_factor)


@triton.jit
def add_terms(top, total, x, w):
    """``w e^x`` added to the running pairs ``(top, total)``, lane by lane."""
    w = tl.where(x == LOWEST, 0.0, w)
    x = tl.where(w == 0, LOWEST, x)
    high = tl.maximum(top, x)
    kept = tl.where(total == 0, 0.0, total * exp(distance(top, high)))
    return high, kept + tl.where(w == 0, 0.0, w * exp(distance(x, high)))


@triton.jit
def join_lanes(top, total):
    """One pair from those of the lanes."""
    high = tl.max(top, axis=0)
    return high, tl.sum(tl.where(total == 0, 0.0, total * exp(distance(top, high))), axis=0)
