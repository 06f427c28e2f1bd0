"""Tiles of scores and labels as the terms of the two sides (CUDA): what the kernels for rows and for segments share.

A tile becomes ``e^{u - m}`` with ``u = -s`` on positives and ``u = s`` on negatives, m the maximum of its side or 0. Hard
labels without weights are LEAN: one exponential per element, whose sign tells its side. Soft labels and weights take two.

Triton gives every tile of a program the same vector width per thread, the widest that one of them allows. With one byte per
label or mask that would be 16, which is too wide for scores: their loads would not be contiguous, and the gradient would be
reordered before it is written. So labels and masks are declared contiguous for WIDTH elements only, as many as 16 bytes of
scores hold.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import bounded_log, distance, exp, softplus
from manyhot.engines.triton.rows.bits import first_entries, listed_bits, words_of_lists
from manyhot.engines.triton.rows.lists import find_listed

# Sums of unshifted exponentials are exact up to here; beyond, the maximum is subtracted first.
SAFE = tl.constexpr(1e30)


@triton.jit
def place_rows(num_rows, CHUNKS: tl.constexpr, ROWS: tl.constexpr, EVEN: tl.constexpr):
    """The chunk of this program, its first row, its rows ``[ROWS]``, and which of these exist: all if EVEN."""
    program = tl.program_id(0)
    row = tl.cast(program // CHUNKS, tl.int64) * ROWS
    rows = row + tl.arange(0, ROWS)
    in_rows = rows < num_rows
    if EVEN:
        in_rows = tl.full([ROWS], True, tl.int1)
    return program % CHUNKS, row, rows, in_rows


@triton.jit
def place_columns(num_labels, in_rows, first, ROWS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """BLOCK labels from ``first`` on, and the mask of those that exist in each row, ``[ROWS, BLOCK]``: all if EVEN."""
    columns = first + tl.arange(0, BLOCK)
    in_tile = in_rows[:, None] & (columns < num_labels)[None, :]
    if EVEN:
        in_tile = tl.full([ROWS, BLOCK], True, tl.int1)
    return columns, in_tile


@triton.jit
def first_listed(
    offsets, indices, row, rows, in_rows, begin,
    LABELS: tl.constexpr, ROWS: tl.constexpr, SEEK: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Where the index lists of rows start and stop; scalars for one row. If SEEK, only for SPAN labels from ``begin`` on."""
    if LABELS == "dense" or LABELS == "bits":
        start = tl.zeros([ROWS], tl.int64)
        stop = start
    elif ROWS > 1:
        start = tl.load(offsets + rows, mask=in_rows, other=0)
        stop = tl.load(offsets + rows + 1, mask=in_rows, other=0)
    else:
        start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
        if SEEK:
            start, stop = find_listed(indices, start, stop, begin, begin + SPAN)
    return start, stop


@triton.jit
def tile_where(where, where_stride, rows, columns, in_tile, WIDTH: tl.constexpr):
    """Which entries of the tile count."""
    place = tl.max_contiguous(where + rows[:, None] * where_stride + columns[None, :], [1, WIDTH])
    return tl.load(place, mask=in_tile, other=0) != 0


@triton.jit
def tile_labels(
    labels, label_stride, indices, values, rows, columns, in_tile, smoothing, cursor, stop,
    LABELS: tl.constexpr, LEAN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The tile's labels, bool where LEAN and smoothed float32 otherwise, and how far the index lists were read."""
    if LABELS == "dense":
        place = tl.max_contiguous(labels + rows[:, None] * label_stride + columns[None, :], [1, WIDTH])
        t = tl.load(place, mask=in_tile, other=0, eviction_policy=KEEP)
        if labels.dtype.element_ty.is_int():
            t = t > 0
        t = t if LEAN else t.to(tl.float32) * (1.0 - smoothing) + smoothing / 2
    elif LEAN and ROWS > 1 and BLOCK <= 128:
        # Short rows: all labels of a row at once. The whole lists are read again for every tile of a row.
        left = (stop - cursor).to(tl.int32)
        entries = first_entries(indices, cursor, left, BLOCK)
        low, high = words_of_lists(indices, cursor, left, entries, tl.min(columns), BLOCK)
        t = listed_bits(low, high, 0, tl.arange(0, BLOCK), BLOCK, min(WIDTH, BLOCK))
    else:
        t = tl.zeros([ROWS, BLOCK], tl.int1) if LEAN else tl.zeros([ROWS, BLOCK], tl.float32) + smoothing / 2
        last = tl.max(columns)
        place = tl.load(indices + cursor, mask=cursor < stop, other=last + 1)
        while (place if ROWS == 1 else tl.min(place)) <= last:
            here = columns[None, :] == (place if ROWS == 1 else place[:, None])
            if LEAN:
                t = t | here
            else:
                value = 1.0 - smoothing / 2
                if LABELS == "soft lists":
                    value = tl.load(values + cursor, mask=cursor < stop, other=0).to(tl.float32)
                    value = value * (1.0 - smoothing) + smoothing / 2
                    value = value if ROWS == 1 else value[:, None]
                t = tl.where(here, value, t)
            cursor += tl.where(place <= last, 1, 0)
            place = tl.load(indices + cursor, mask=cursor < stop, other=last + 1)
    return t, cursor


@triton.jit
def column_weight(weight, number, columns, num_labels, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """One weight per column: read, or the same number for all."""
    w = tl.zeros([BLOCK], tl.float32) + number
    if KIND == "label":
        w = tl.load(weight + columns, mask=columns < num_labels, other=0).to(tl.float32)
    return w


@triton.jit
def tile_exponents(
    x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
    pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    SHIFTED: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """``(u, u, t, t)`` where LEAN, else ``(-s, s, p t, n (1 - t))``, and the cursor in the index lists after the tile. Excluded
    entries have u = -inf and weight 0.
    """
    WIDTH: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    s = tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=in_tile, other=0, eviction_policy=KEEP).to(tl.float32)
    counts = in_tile
    if HAS_WHERE:
        counts = tile_where(where, where_stride, rows, columns, in_tile, WIDTH)
        s = tl.where(counts, s, 0.0)
    if SHIFTED:
        s = s - c[:, None]
    t, cursor = tile_labels(labels, label_stride, indices, values, rows, columns, in_tile, smoothing, cursor, stop,
                            LABELS, LEAN, ROWS, BLOCK, KEEP, WIDTH)  # fmt: skip
    if LEAN:
        a = tl.where(t, -s, s)
        if not EVEN or HAS_WHERE:
            a = tl.where(counts, a, -float("inf"))
        b, up, down = a, t, t
    else:
        pos_w = column_weight(pos_weight, pos_number, columns, num_labels, POS, BLOCK)
        neg_w = column_weight(neg_weight, neg_number, columns, num_labels, NEG, BLOCK)
        up, down = tl.where(counts, t * pos_w[None, :], 0.0), tl.where(counts, (1.0 - t) * neg_w[None, :], 0.0)
        a, b = -s, s
    return a, b, up, down, cursor


@triton.jit
def plain_terms(
    x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
    pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    SHIFTED: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """The tile's terms with m = 0, and the cursor in the index lists after the tile.

    ``(terms, terms)`` where LEAN, with a minus sign for positives, else positive and negative terms. With the list of one row
    every label is first treated as a negative; then the listed ones are replaced, without a label tile.
    """
    if LABELS == "lists" and LEAN and ROWS == 1 and not HAS_WHERE:
        s = tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=in_tile, other=-float("inf"), eviction_policy=KEEP)
        s = s.to(tl.float32)
        if SHIFTED:
            s = s - c[:, None]
        pos = exp(s)
        last = tl.max(columns)
        place = tl.load(indices + cursor, mask=cursor < stop, other=last + 1)
        while place <= last:
            own = tl.load(x + rows * x_stride + place).to(tl.float32)
            if SHIFTED:
                own = own - c
            pos = tl.where(columns[None, :] == place, -exp(-own)[:, None], pos)
            cursor += 1
            place = tl.load(indices + cursor, mask=cursor < stop, other=last + 1)
        neg = pos
    else:
        a, b, up, down, cursor = tile_exponents(
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, EVEN, ROWS, BLOCK, KEEP,
        )  # fmt: skip
        if LEAN:
            e = exp(a)
            pos = tl.where(up, -e, e)
            neg = pos
        else:
            pos, neg = up * exp(a), down * exp(b)
    return pos, neg, cursor


@triton.jit
def careful_terms(a, b, up, down, pos_top, neg_top, LEAN: tl.constexpr):
    """The terms of a tile in units of ``e^m``; terms of weight 0 are skipped whatever their score."""
    if LEAN:
        e = exp(distance(a, tl.where(up, pos_top[:, None], neg_top[:, None])))
        pos = tl.where(up, -e, e)
        neg = pos
    else:
        lowest = -float("inf")
        pos = up * exp(distance(tl.where(up > 0, a, lowest), pos_top[:, None]))
        neg = down * exp(distance(tl.where(down > 0, b, lowest), neg_top[:, None]))
    return pos, neg


@triton.jit
def side_exponents(a, b, up, down, LEAN: tl.constexpr):
    """The exponents of each side, -inf for terms of the other side."""
    lowest = -float("inf")
    if LEAN:
        pos, neg = tl.where(up, a, lowest), tl.where(up, lowest, b)
    else:
        pos, neg = tl.where(up > 0, a, lowest), tl.where(down > 0, b, lowest)
    return pos, neg


@triton.jit
def side_terms(pos, neg, LEAN: tl.constexpr):
    """The terms of each side, ready to be summed: 0 for terms of the other side."""
    if LEAN:
        pos, neg = tl.where(pos < 0, -pos, 0.0), tl.where(neg < 0, 0.0, neg)
    return pos, neg


@triton.jit
def settle(top, FORM: tl.constexpr):
    """The exponent to subtract: at least 0 in the split form, which has a zero class; 0 for an empty side."""
    if FORM == "split":
        top = tl.maximum(top, 0.0)
    else:
        top = tl.where(top == -float("inf"), 0.0, top)
    return top


@triton.jit
def add_pairs(a, b, c, d):
    """Combine function that sums both sides in one reduction."""
    return a + c, b + d


@triton.jit
def larger_pairs(a, b, c, d):
    """Combine function for the maxima of both sides in one reduction."""
    return tl.maximum(a, c), tl.maximum(b, d)


@triton.jit
def finish(pos_top, pos_sum, neg_top, neg_sum, c, FORM: tl.constexpr):
    """The loss of a row, its derivative by the offset, and the factor of either side's terms in the gradient.

    split   log(1 + e^m S) on each side                    gradient  -/+ e_i / (e^-m + S)
    joint   softplus(z), z = log S + log S' + m + m' + c   gradient  -/+ sigma(z) e_i / S
    """
    if FORM == "split":
        value = bounded_log(pos_top, pos_sum) + bounded_log(neg_top, neg_sum)
        pos_factor, neg_factor = 1.0 / (exp(-pos_top) + pos_sum), 1.0 / (exp(-neg_top) + neg_sum)
        slope = pos_sum * pos_factor - neg_sum * neg_factor
    else:
        empty = (pos_sum == 0) | (neg_sum == 0)
        pos_sum, neg_sum = tl.where(empty, 1.0, pos_sum), tl.where(empty, 1.0, neg_sum)
        z = tl.where(empty, -float("inf"), (tl.log(pos_sum) + tl.log(neg_sum)) + ((pos_top + neg_top) + c))
        value = softplus(z)
        slope = tl.where(empty, 0.0, 1.0 / (1.0 + exp(-z)))
        pos_factor, neg_factor = slope / pos_sum, slope / neg_sum
    return value, slope, pos_factor, neg_factor


@triton.jit
def tile_gradient(pos, neg, pos_factor, neg_factor, LEAN: tl.constexpr):
    """The gradient of a tile from its terms and the factors of its rows."""
    if LEAN:
        grad = pos * tl.where(pos < 0, pos_factor[:, None], neg_factor[:, None])
    else:
        grad = neg * neg_factor[:, None] - pos * pos_factor[:, None]
    return grad
