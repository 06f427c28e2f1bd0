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
from manyhot.engines.triton.rows.bits import listed_tile, marked_tile
from manyhot.engines.triton.rows.lists import LISTS
from manyhot.engines.triton.rows.merge import wait_for_row
from manyhot.engines.triton.rows.tiles import add_pairs, first_listed, ragged_place, tile_labels, tile_where


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def overlap_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, row_scale, state, arrived, out_value, out_grad,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    scale_number, pos_number, neg_number, smoothing, epsilon,
    SQUARED: tl.constexpr, LABELS: tl.constexpr, HARD: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, HAS_SCALE: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr, CHUNKS: tl.constexpr,
    MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
    RAGGED: tl.constexpr,
):  # fmt: skip
    """SEGMENT labels of ROWS rows, in one tile that stays in registers, or in steps of BLOCK labels that are read twice.

    STAGE is "fused" (dice loss and its gradient), "sums" (both sums of each chunk into ``state [R, CHUNKS, 2]``) or "gradient"
    (``state [2, R]`` holds the derivatives by both sums). There are no weights. RAGGED rows are as in ``ragged_place``. Index
    lists may come as "bits" in the place of labels (``marked_tile``).
    """
    # Tell Triton that sizes are multiples of UNIT, as in ``row_kernel``.
    num_labels, x_stride = num_labels // UNIT * UNIT, x_stride // UNIT * UNIT
    label_stride, where_stride = label_stride // UNIT * UNIT, where_stride // UNIT * UNIT
    WIDTH: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    program = tl.program_id(0)
    chunk = program % CHUNKS
    row = tl.cast(program // CHUNKS, tl.int64) * ROWS
    rows = row + tl.arange(0, ROWS)
    in_rows = rows < num_rows
    if EVEN:
        in_rows = tl.full([ROWS], True, tl.int1)
    begin = chunk * SEGMENT
    end = tl.minimum(begin + SEGMENT, num_labels)
    ahead = 0
    if RAGGED:
        ahead = (row * num_labels % WIDTH).to(tl.int32)
        end = tl.minimum(begin + SEGMENT, num_labels + ahead)
    first, stop = first_listed(offsets, indices, row, rows, in_rows, begin - ahead, LABELS, ROWS, CHUNKS > 1, SEGMENT)
    zero = tl.zeros([ROWS], tl.float32)
    apart, size, by_apart, by_size = zero, zero, zero, zero
    q, t, counts = zero[:, None], zero[:, None], in_rows[:, None]
    if SEGMENT == BLOCK:
        q, t, counts, _ = _tile(
            x, labels, indices, values, where, num_labels, x_stride, label_stride, where_stride, smoothing, rows, in_rows,
            begin, first, stop, LABELS, HARD, HAS_WHERE, EVEN, ROWS, BLOCK, RAGGED, WIDTH,
        )  # fmt: skip
    if STAGE == "gradient":
        by_apart = tl.load(state + rows, mask=in_rows, other=0)
        by_size = tl.load(state + num_rows + rows, mask=in_rows, other=0)
    elif SEGMENT == BLOCK:
        apart, size = tl.reduce(_terms(q, t, counts, SQUARED, HARD, EVEN and not HAS_WHERE), 1, add_pairs)
    else:
        aparts, sizes = tl.zeros([ROWS, BLOCK // WIDTH], tl.float32), tl.zeros([ROWS, BLOCK // WIDTH], tl.float32)
        cursor = first
        for start in range(begin, end, BLOCK):
            q_here, t_here, counts_here, cursor = _tile(
                x, labels, indices, values, where, num_labels, x_stride, label_stride, where_stride, smoothing, rows, in_rows,
                start, cursor, stop, LABELS, HARD, HAS_WHERE, EVEN, ROWS, BLOCK, RAGGED, WIDTH,
            )  # fmt: skip
            more, larger = _terms(q_here, t_here, counts_here, SQUARED, HARD, EVEN and not HAS_WHERE)
            aparts += tl.sum(tl.reshape(more, [ROWS, BLOCK // WIDTH, WIDTH]), axis=2)
            sizes += tl.sum(tl.reshape(larger, [ROWS, BLOCK // WIDTH, WIDTH]), axis=2)
        apart, size = tl.reduce((aparts, sizes), 1, add_pairs)
    if STAGE != "gradient" and (CHUNKS > 1 or STAGE == "sums"):
        place = state + (rows * CHUNKS + chunk) * 2
        tl.store(place, apart, mask=in_rows)
        tl.store(place + 1, size, mask=in_rows)
    if STAGE == "fused":
        if CHUNKS > 1:
            wait_for_row(arrived, row, CHUNKS)
            apart, size = _add_chunks(state, row, CHUNKS, MANY)
        scale = zero + scale_number
        if HAS_SCALE:
            scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
        share = 1.0 / (size + epsilon)
        value = apart * share
        tl.store(out_value + rows, value, mask=in_rows & (tl.zeros([ROWS], tl.int32) + chunk == 0))
        by_apart, by_size = share * scale, -value * share * scale
    if STAGE != "sums":
        if SEGMENT == BLOCK:
            grad = _gradient(q, t, counts, by_apart, by_size, SQUARED, HARD, HAS_WHERE)
            _store(out_grad, grad, num_labels, rows, in_rows, begin, EVEN, ROWS, BLOCK, RAGGED, WIDTH)
        else:
            cursor = first
            for start in range(begin, end, BLOCK):
                q_here, t_here, counts_here, cursor = _tile(
                    x, labels, indices, values, where, num_labels, x_stride, label_stride, where_stride, smoothing, rows,
                    in_rows, start, cursor, stop, LABELS, HARD, HAS_WHERE, EVEN, ROWS, BLOCK, RAGGED, WIDTH,
                )  # fmt: skip
                grad = _gradient(q_here, t_here, counts_here, by_apart, by_size, SQUARED, HARD, HAS_WHERE)
                _store(out_grad, grad, num_labels, rows, in_rows, start, EVEN, ROWS, BLOCK, RAGGED, WIDTH)


@triton.jit
def _tile(
    x, labels, indices, values, where, num_labels, x_stride, label_stride, where_stride, smoothing, rows, in_rows,
    start, cursor, stop, LABELS: tl.constexpr, HARD: tl.constexpr, HAS_WHERE: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, RAGGED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Probabilities as ``min(p, 1 - p)``, with the sign - where p is the larger one, so that both keep their digits; labels;
    which entries count; how far the lists were read. A hard entry that does not count is a negative of probability 0, which
    adds nothing to either sum and has no gradient."""
    columns = start + tl.arange(0, BLOCK)
    counts = in_rows[:, None] & (columns < num_labels)[None, :]
    if RAGGED:
        ahead = (tl.max(rows, axis=0) * num_labels % WIDTH).to(tl.int32)
        s, t = _ragged_tile(x, labels, num_labels, rows, start, ahead, LABELS, BLOCK, WIDTH)
        if LABELS == "lists":
            t, cursor = listed_tile(indices, start - ahead, cursor, stop, BLOCK, WIDTH)
    else:
        if EVEN:
            counts = tl.full([ROWS, BLOCK], True, tl.int1)
        in_tile = counts
        nothing = -float("inf") if HARD else 0.0
        s = tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=in_tile, other=nothing).to(tl.float32)
        if LABELS == "bits":
            t = in_tile & marked_tile(labels, rows * num_labels + start, in_rows, ROWS, BLOCK, WIDTH)
        elif LABELS == "lists" and HARD and ROWS == 1:
            t, cursor = listed_tile(indices, start, cursor, stop, BLOCK, WIDTH)
        else:
            t, cursor = tile_labels(labels, label_stride, indices, values, rows, columns, in_tile, smoothing, cursor, stop,
                                    LABELS, HARD, ROWS, BLOCK, "", WIDTH)  # fmt: skip
        if HAS_WHERE:
            # What does not count may be infinite.
            counts = tile_where(where, where_stride, rows, columns, in_tile, WIDTH)
            s = tl.where(counts, s, nothing)
            t = t & counts if HARD else t
    e = exp(-tl.abs(s))
    q = e * inverse(1.0 + e)
    # Set the bit of the sign: Triton negates by a subtraction from 0, which gives 0 no sign.
    bits = q.to(tl.int32, bitcast=True)
    return tl.where(s > 0, bits | -2147483648, bits).to(tl.float32, bitcast=True), t, counts, cursor


@triton.jit
def _ragged_tile(x, labels, num_labels, rows, start, ahead, LABELS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Scores and hard labels of a step of a ragged row; -inf and negatives for what is of other rows. Lists have no labels
    here."""
    if _is_inside(start, ahead, num_labels, BLOCK, WIDTH):
        place = tl.max(rows, axis=0) * num_labels // WIDTH * WIDTH + start + tl.arange(0, BLOCK)[None, :]
        s = tl.load(x + place).to(tl.float32)
        t = s > 0
        if LABELS == "bits":
            t = marked_tile(labels, rows * num_labels // WIDTH * WIDTH + start, rows >= 0, 1, BLOCK, WIDTH)
        elif LABELS == "dense":
            t = tl.load(tl.max_contiguous(labels + place, [1, WIDTH])) > 0
    else:
        place, own, _, there = ragged_place(rows, num_labels, start, BLOCK, WIDTH)
        s = tl.where(own, tl.load(x + place, mask=there, other=0).to(tl.float32), -float("inf"))
        t = s > 0
        if LABELS == "bits":
            t = own & marked_tile(labels, rows * num_labels // WIDTH * WIDTH + start, rows >= 0, 1, BLOCK, WIDTH)
        elif LABELS == "dense":
            t = own & (tl.load(tl.max_contiguous(labels + place, [1, WIDTH]), mask=there, other=0) > 0)
    return s, t


@triton.jit
def _is_inside(start, ahead, num_labels, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Whether a step has groups of one row alone."""
    return (start >= WIDTH) & (start + BLOCK <= (ahead + num_labels) // WIDTH * WIDTH)


@triton.jit
def _chances(q):
    """p and 1 - p."""
    smaller = tl.abs(q)
    larger = 1.0 - smaller
    high = q.to(tl.int32, bitcast=True) < 0  # -0 has a sign too
    return tl.where(high, larger, smaller), tl.where(high, smaller, larger)


@triton.jit
def _terms(q, t, counts, SQUARED: tl.constexpr, HARD: tl.constexpr, ALL: tl.constexpr):
    """The terms of both sums."""
    p, rest = _chances(q)
    if HARD:
        apart, listed = tl.where(t, rest, p), tl.where(t, 1.0, 0.0)
    elif SQUARED:
        apart, listed = (1.0 - t) * p - t * rest, t * t
    else:
        apart, listed = (1.0 - t) * p + t * rest, t
    if SQUARED:
        apart, p = apart * apart, p * p
    size = p + listed
    if not HARD and not ALL:
        apart, size = tl.where(counts, apart, 0.0), tl.where(counts, size, 0.0)
    return apart, size


@triton.jit
def _gradient(q, t, counts, by_apart, by_size, SQUARED: tl.constexpr, HARD: tl.constexpr, HAS_WHERE: tl.constexpr):
    """The gradient of a tile from the derivatives by both sums of its rows."""
    p, rest = _chances(q)
    by_apart, by_size = by_apart[:, None], by_size[:, None]
    if SQUARED:
        between = tl.where(t, -rest, p) if HARD else (1.0 - t) * p - t * rest
        grad = 2.0 * (by_apart * between + by_size * p)
    elif HARD:
        grad = by_size + tl.where(t, -by_apart, by_apart)
    else:
        grad = by_size + (1.0 - 2.0 * t) * by_apart
    grad = p * rest * grad
    if HAS_WHERE and not HARD:
        grad = tl.where(counts, grad, 0.0)
    return grad


@triton.jit
def _store(
    out_grad, grad, num_labels, rows, in_rows, start,
    EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, RAGGED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a tile."""
    grad = grad.to(out_grad.dtype.element_ty)
    if RAGGED:
        ahead = (tl.max(rows, axis=0) * num_labels % WIDTH).to(tl.int32)
        if _is_inside(start, ahead, num_labels, BLOCK, WIDTH):
            base = tl.max(rows, axis=0) * num_labels // WIDTH * WIDTH
            tl.store(out_grad + base + start + tl.arange(0, BLOCK)[None, :], grad)
        else:
            place, own, whole, _ = ragged_place(rows, num_labels, start, BLOCK, WIDTH)
            tl.store(out_grad + place, grad, mask=whole)
            tl.store(out_grad + place, grad, mask=own & ~whole)
    else:
        columns = start + tl.arange(0, BLOCK)
        in_tile = in_rows[:, None] & (columns < num_labels)[None, :]
        if EVEN:
            in_tile = tl.full([ROWS, BLOCK], True, tl.int1)
        tl.store(out_grad + rows[:, None] * num_labels + columns[None, :], grad, mask=in_tile)


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
