"""How far probabilities and labels of a row overlap, with the gradient, in one read and one write of the scores (CUDA).

With ``p = sigma(s)``, dice loss is ``apart / (size + epsilon)``, where

    apart  sum |p - t|, for hard labels; in general t (1 - p) + (1 - t) p        squared: sum (p - t)^2
    size   sum p + t                                                             squared: sum p^2 + t^2

Nothing is subtracted from 1, so that a loss near 0 keeps its digits. Sums of chunks are added in the order of the chunks.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import exp, inverse
from manyhot.engines.triton.rows.lists import LISTS
from manyhot.engines.triton.rows.merge import wait_for_row
from manyhot.engines.triton.rows.tiles import add_pairs, first_listed, tile_labels, tile_where


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def overlap_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, row_scale, state, arrived, out_value, out_grad,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    scale_number, pos_number, neg_number, smoothing, epsilon,
    SQUARED: tl.constexpr, LABELS: tl.constexpr, HARD: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, HAS_SCALE: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr, CHUNKS: tl.constexpr,
    MANY: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """One tile. STAGE is "fused" (dice loss and its gradient), "sums" (both sums of each chunk into ``state [R, CHUNKS, 2]``)
    or "gradient" (``state [2, R]`` holds the derivatives by both sums). There are no weights."""
    # Tell Triton that sizes are multiples of UNIT, as in ``row_kernel``.
    num_labels, x_stride = num_labels // UNIT * UNIT, x_stride // UNIT * UNIT
    label_stride, where_stride = label_stride // UNIT * UNIT, where_stride // UNIT * UNIT
    WIDTH: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    program = tl.program_id(0)
    chunk = program % CHUNKS
    row = tl.cast(program // CHUNKS, tl.int64) * ROWS
    rows = row + tl.arange(0, ROWS)
    columns = chunk * BLOCK + tl.arange(0, BLOCK)
    in_rows = rows < num_rows
    in_tile = in_rows[:, None] & (columns < num_labels)[None, :]
    if EVEN:
        in_rows, in_tile = tl.full([ROWS], True, tl.int1), tl.full([ROWS, BLOCK], True, tl.int1)
    s = tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=in_tile, other=0).to(tl.float32)
    counts = in_tile
    if HAS_WHERE:
        counts = tile_where(where, where_stride, rows, columns, in_tile, WIDTH)
        s = tl.where(counts, s, 0.0)
    cursor, stop = first_listed(offsets, indices, row, rows, in_rows, chunk * BLOCK, LABELS, ROWS, CHUNKS > 1, BLOCK)
    t, _ = tile_labels(labels, label_stride, indices, values, rows, columns, in_tile, smoothing, cursor, stop,
                       LABELS, HARD, ROWS, BLOCK, "", WIDTH)  # fmt: skip
    e = exp(-tl.abs(s))
    larger = inverse(1.0 + e)
    smaller = e * larger
    p, rest = tl.where(s > 0, larger, smaller), tl.where(s > 0, smaller, larger)
    if STAGE == "gradient":
        by_apart = tl.load(state + rows, mask=in_rows, other=0)
        by_size = tl.load(state + num_rows + rows, mask=in_rows, other=0)
    else:
        apart, size = _terms(p, rest, t, SQUARED, HARD)
        if not EVEN or HAS_WHERE:
            apart, size = tl.where(counts, apart, 0.0), tl.where(counts, size, 0.0)
        apart, size = tl.reduce((apart, size), 1, add_pairs)
        if CHUNKS > 1 or STAGE == "sums":
            place = state + (rows * CHUNKS + chunk) * 2
            tl.store(place, apart, mask=in_rows)
            tl.store(place + 1, size, mask=in_rows)
        if STAGE == "fused":
            if CHUNKS > 1:
                wait_for_row(arrived, row, CHUNKS)
                apart, size = _add_chunks(state, row, CHUNKS, MANY)
            scale = tl.zeros([ROWS], tl.float32) + scale_number
            if HAS_SCALE:
                scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
            share = 1.0 / (size + epsilon)
            value = apart * share
            tl.store(out_value + rows, value, mask=in_rows & (tl.zeros([ROWS], tl.int32) + chunk == 0))
            by_apart, by_size = share * scale, -value * share * scale
    if STAGE != "sums":
        grad = larger * smaller * _slopes(p, rest, t, by_apart[:, None], by_size[:, None], SQUARED, HARD)
        if HAS_WHERE:
            grad = tl.where(counts, grad, 0.0)
        tl.store(out_grad + rows[:, None] * num_labels + columns[None, :], grad.to(out_grad.dtype.element_ty), mask=in_tile)


@triton.jit
def _terms(p, rest, t, SQUARED: tl.constexpr, HARD: tl.constexpr):
    """The terms of both sums; ``rest`` is 1 - p with all its digits."""
    if HARD:
        apart, listed = tl.where(t, rest, p), tl.where(t, 1.0, 0.0)
    elif SQUARED:
        apart, listed = (1.0 - t) * p - t * rest, t * t
    else:
        apart, listed = (1.0 - t) * p + t * rest, t
    if SQUARED:
        apart, p = apart * apart, p * p
    return apart, p + listed


@triton.jit
def _slopes(p, rest, t, by_apart, by_size, SQUARED: tl.constexpr, HARD: tl.constexpr):
    """The derivative by each p."""
    if SQUARED:
        between = tl.where(t, -rest, p) if HARD else (1.0 - t) * p - t * rest
        slope = 2.0 * (by_apart * between + by_size * p)
    elif HARD:
        slope = by_size + tl.where(t, -by_apart, by_apart)
    else:
        slope = by_size + (1.0 - 2.0 * t) * by_apart
    return slope


@triton.jit
def _add_chunks(state, row, CHUNKS: tl.constexpr, MANY: tl.constexpr):
    """Both sums ``[1]`` of a row, from those of its chunks."""
    chunks = tl.arange(0, MANY)
    place = state + (row * CHUNKS + chunks) * 2
    parts = tl.load(place, mask=chunks < CHUNKS, other=0, volatile=True)
    sizes = tl.load(place + 1, mask=chunks < CHUNKS, other=0, volatile=True)
    apart, size = tl.reduce((parts, sizes), 0, add_pairs)
    one = tl.zeros([1], tl.float32)
    return one + apart, one + size
