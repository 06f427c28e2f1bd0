"""The overlap of probabilities and labels of a row, and its gradient, in one read and one write of the scores (CUDA).

With ``p = sigma(s)``, dice loss is ``apart / (size + epsilon)``, where

    apart  sum |p - t|, for hard labels; in general t (1 - p) + (1 - t) p        squared: sum (p - t)^2
    size   sum p + t                                                             squared: sum p^2 + t^2

Nothing is subtracted from 1, so that a loss near 0 keeps its digits. Sums of chunks are added as integers, or in the order of
the chunks. The derivatives of both terms by the score stay in registers until the gradient is computed from them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import LOG2_E, exp2, inverse, materialize
from manyhot.engines.triton.rows.early import start_early
from manyhot.engines.triton.rows.lists import LISTS
from manyhot.engines.triton.rows.merge import add_chunks, wait_for_row
from manyhot.engines.triton.rows.pieces import (
    end_labels,
    end_place,
    inner_labels,
    piece_labels,
    piece_where,
    tile_mask,
    tile_place,
)
from manyhot.engines.triton.rows.tiles import add_pairs, first_listed, place_rows
from manyhot.engines.triton.rows.totals import add_up, store_values

# The exponent of the largest finite power of 2, whose reciprocal is flushed to 0, and the largest one whose reciprocal is not.
FARTHEST = tl.constexpr(127.0)
FAR = tl.constexpr(2.0**126)


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def overlap_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, row_scale, state, arrived, out_value, out_grad,
    out_total, ended,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    scale_number, pos_number, neg_number, smoothing, epsilon,
    SQUARED: tl.constexpr, LABELS: tl.constexpr, HARD: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, SCALE: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr, CHUNKS: tl.constexpr,
    MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
    RAGGED: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """A chunk of a row, or ROWS whole rows, in pieces (``pieces``): a tile of BLOCK labels, and one for the rest of SEGMENT.

    STAGE is "fused" (dice loss and its gradient), "sums" (both sums of each chunk into ``state [R, CHUNKS, 2]``) or "gradient"
    (``state [2, R]`` holds the derivatives by both sums). There are no weights. TOTAL and SCALE are as in ``merge.conclude``.
    """
    # Every program waits by itself, which costs more than it saves if a row takes a program, so that there are many.
    if CHUNKS == 1 and ROWS > 1:
        start_early()
    # Tell Triton that sizes are multiples of UNIT, as in ``row_kernel``.
    num_labels, x_stride = num_labels // UNIT * UNIT, x_stride // UNIT * UNIT
    label_stride, where_stride = label_stride // UNIT * UNIT, where_stride // UNIT * UNIT
    WIDTH: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    TAIL: tl.constexpr = 0 if CHUNKS > 1 else SEGMENT - BLOCK
    chunk, row, rows, in_rows = place_rows(num_rows, CHUNKS, ROWS, EVEN and not RAGGED)
    begin = chunk * SEGMENT
    cursor, stop = first_listed(offsets, indices, row, rows, in_rows, begin, LABELS, ROWS, CHUNKS > 1, SEGMENT)
    lead, inner = inner_labels(rows, num_labels, RAGGED, WIDTH)
    # All pieces are loaded before the first sum, whose barriers no load can move across.
    s, t, counts, cursor = _read(
        x, labels, indices, values, where, x_stride, label_stride, where_stride, num_labels, smoothing, rows, in_rows, lead,
        inner, begin, cursor, stop, LABELS, HARD, HAS_WHERE, (EVEN or TAIL > 0) and not RAGGED, ROWS, BLOCK, RAGGED, WIDTH,
    )  # fmt: skip
    if TAIL > 0:
        tail_s, tail_t, tail_counts, _ = _read(
            x, labels, indices, values, where, x_stride, label_stride, where_stride, num_labels, smoothing, rows, in_rows,
            lead, inner, BLOCK, cursor, stop, LABELS, HARD, HAS_WHERE, EVEN and not RAGGED, ROWS, TAIL, RAGGED, WIDTH,
        )  # fmt: skip
    if RAGGED:
        end_at, in_end = end_place(rows, in_rows, num_labels, lead, inner, chunk, CHUNKS, WIDTH)
        end_s = tl.load(x + end_at, mask=in_end, other=-float("inf")).to(tl.float32)
        end_t = end_labels(labels, end_at, in_end, LABELS)
    ALL: tl.constexpr = EVEN and not RAGGED and not HAS_WHERE
    apart, size, by_apart, by_size = _terms(s, t, counts, SQUARED, HARD, ALL)
    apart, size = _add_labels(apart, size, ROWS)
    if TAIL > 0:
        apart_more, size_more, tail_by_apart, tail_by_size = _terms(tail_s, tail_t, tail_counts, SQUARED, HARD, ALL)
        apart_more, size_more = _add_labels(apart_more, size_more, ROWS)
        apart, size = apart + apart_more, size + size_more
    if RAGGED:
        apart_more, size_more, end_by_apart, end_by_size = _terms(end_s, end_t, in_end, SQUARED, True, True)
        apart_more, size_more = _add_labels(apart_more, size_more, ROWS)
        apart, size = apart + apart_more, size + size_more
    zero = tl.zeros([ROWS], tl.float32)
    apart, size, apart_factor, size_factor = zero + apart, zero + size, zero, zero
    if STAGE == "gradient":
        apart_factor = tl.load(state + rows, mask=in_rows, other=0)
        size_factor = tl.load(state + num_rows + rows, mask=in_rows, other=0)
    elif STAGE == "sums":
        _publish(state, apart, size, rows, in_rows, chunk, CHUNKS)
    if STAGE == "fused":
        if CHUNKS > 1:
            apart_all, size_all, others = add_chunks(arrived, row, zero, apart, zero, size, CHUNKS)
            if others == 0:
                apart, size = zero + apart_all, zero + size_all
            else:
                _publish(state, apart, size, rows, in_rows, chunk, CHUNKS)
                wait_for_row(arrived, row, CHUNKS)
                apart, size = _add_published(state, row, CHUNKS, MANY)
        scale = zero + scale_number
        if SCALE == "rows":
            scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
        share = 1.0 / (size + epsilon)
        value = apart * share
        store_values(out_value, value, scale, row, rows, in_rows, chunk, SCALE, CHUNKS, ROWS, TOTAL)
        apart_factor, size_factor = share * scale, -value * share * scale
    if STAGE != "sums":
        ONE: tl.constexpr = HARD and not SQUARED
        place = out_grad + tile_place(rows, num_labels, lead, begin, RAGGED, BLOCK, WIDTH)
        grad = _gradient(by_apart, by_size, apart_factor, size_factor, ONE).to(out_grad.dtype.element_ty)
        tl.store(place, grad, mask=tile_mask(in_rows, inner, begin, EVEN and not RAGGED, ROWS, BLOCK, RAGGED, WIDTH))
        if TAIL > 0:
            place = out_grad + tile_place(rows, num_labels, lead, BLOCK, RAGGED, TAIL, WIDTH)
            grad = _gradient(tail_by_apart, tail_by_size, apart_factor, size_factor, ONE).to(out_grad.dtype.element_ty)
            tl.store(place, grad, mask=tile_mask(in_rows, inner, BLOCK, EVEN and not RAGGED, ROWS, TAIL, RAGGED, WIDTH))
        if RAGGED:
            grad = _gradient(end_by_apart, end_by_size, apart_factor, size_factor, ONE).to(out_grad.dtype.element_ty)
            tl.store(out_grad + end_at, grad, mask=in_end)
    add_up(out_total, out_value, num_rows, scale_number, chunk, SCALE, CHUNKS, TOTAL)


@triton.jit
def _read(
    x, labels, indices, values, where, x_stride, label_stride, where_stride, num_labels, smoothing, rows, in_rows, lead,
    inner, first, cursor, stop, LABELS: tl.constexpr, HARD: tl.constexpr, HAS_WHERE: tl.constexpr,
    FULL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, RAGGED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Scores and labels of a tile, which of them count, and how far the lists were read. A hard entry that does not count is a
    negative of probability 0, which adds nothing to either sum and has no gradient."""
    in_tile = tile_mask(in_rows, inner, first, FULL, ROWS, BLOCK, RAGGED, WIDTH)
    place = tile_place(rows, x_stride, lead, first, RAGGED, BLOCK, WIDTH)
    nothing = -float("inf") if HARD else 0.0
    s = tl.load(x + place, mask=in_tile, other=nothing).to(tl.float32)
    t, cursor = piece_labels(labels, label_stride, indices, values, num_labels, rows, in_rows, lead, in_tile, smoothing, first,
                             cursor, stop, LABELS, HARD, ROWS, BLOCK, RAGGED, WIDTH)  # fmt: skip
    counts = piece_where(where, where_stride, rows, lead, in_tile, first, HAS_WHERE, BLOCK, RAGGED, WIDTH)
    if HAS_WHERE:
        # Scores that do not count may be infinite.
        s = tl.where(counts, s, nothing)
        t = t & counts if HARD else t
    return s, t, counts, cursor


@triton.jit
def _terms(s, t, counts, SQUARED: tl.constexpr, HARD: tl.constexpr, ALL: tl.constexpr):
    """The terms of both sums, and their derivatives by the score.

    A hard label takes ``a = |p - t|``, which is sigma of the score, or of its negative for a positive. Unless SQUARED, both
    derivatives are then p (1 - p) up to the sign, which says the side: one register per label.
    """
    u = tl.where(t, -s, s) if HARD else s
    e = exp2(tl.minimum(-LOG2_E * u, FARTHEST, propagate_nan=tl.PropagateNan.ALL))
    a = inverse(1.0 + e)
    rest = e * a
    slope = rest * a
    if SQUARED or not HARD:
        # 1 - a, also where a was flushed to 0.
        rest = tl.where(e > FAR, 1.0, rest)
    if HARD:
        p = tl.where(t, rest, a)
        if SQUARED:
            apart, size = a * a, p * p + tl.where(t, 1.0, 0.0)
            by_apart, by_size = 2.0 * a * tl.where(t, -slope, slope), 2.0 * p * slope
        else:
            apart, size = a, tl.where(t, 2.0 - a, a)
            by_apart = materialize(tl.where(t, -slope, slope))
            by_size = by_apart
    else:
        if SQUARED:
            between = (1.0 - t) * a - t * rest
            apart, size = between * between, a * a + t * t
            by_apart, by_size = 2.0 * between * slope, 2.0 * a * slope
        else:
            apart, size = (1.0 - t) * a + t * rest, a + t
            by_apart, by_size = (1.0 - 2.0 * t) * slope, slope
        if not ALL:
            apart, size = tl.where(counts, apart, 0.0), tl.where(counts, size, 0.0)
            by_apart, by_size = tl.where(counts, by_apart, 0.0), tl.where(counts, by_size, 0.0)
    return apart, size, by_apart, by_size


@triton.jit
def _add_labels(apart, size, ROWS: tl.constexpr):
    """Sums over the labels, ``[ROWS]``. Scalars for one row: with tensors, Triton would convert all pieces to one layout."""
    apart, size = tl.reduce((apart, size), 1, add_pairs)
    if ROWS == 1:
        apart, size = tl.reduce((apart, size), 0, add_pairs)
    return apart, size


@triton.jit
def _gradient(by_apart, by_size, apart_factor, size_factor, ONE: tl.constexpr):
    """The gradient of a piece from the derivatives of its terms; ONE: see ``_terms``."""
    if ONE:
        pos, neg = apart_factor - size_factor, apart_factor + size_factor
        grad = by_apart * tl.where(by_apart < 0, pos[:, None], neg[:, None])
    else:
        grad = by_apart * apart_factor[:, None] + by_size * size_factor[:, None]
    return grad


@triton.jit
def _publish(state, apart, size, rows, in_rows, chunk, CHUNKS: tl.constexpr):
    """Store both sums of a chunk."""
    place = state + (rows * CHUNKS + chunk) * 2
    tl.store(place, apart, mask=in_rows)
    tl.store(place + 1, size, mask=in_rows)


@triton.jit
def _add_published(state, row, CHUNKS: tl.constexpr, MANY: tl.constexpr):
    """Both sums ``[1]`` of a row, from those of its chunks."""
    chunks = tl.arange(0, MANY)
    place = state + (row * CHUNKS + chunks) * 2
    parts = tl.load(place, mask=chunks < CHUNKS, other=0, volatile=True)
    sizes = tl.load(place + 1, mask=chunks < CHUNKS, other=0, volatile=True)
    apart, size = tl.reduce((parts, sizes), 0, add_pairs)
    one = tl.zeros([1], tl.float32)
    return one + apart, one + size
