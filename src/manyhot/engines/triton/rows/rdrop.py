"""R-Drop: two predictions of the same rows at once (CUDA), with both losses, their divergence, and both gradients.

    value     (zlpr(a) + zlpr(b)) / 2 + alpha sum_i (p_i - q_i) k (a_i - b_i)     p = sigma(k a), q = sigma(k b)
    gradient  by a_i: d zlpr(a) / 2 + alpha k ((p_i - q_i) + p_i (1 - p_i) k (a_i - b_i)), by b_i the same with a, b swapped

The divergence is unchanged if the signs of a and b are flipped. So with hard labels and no weights (LEAN), both scores of a
positive are negated, and one exponential of each score serves its loss and its probability. A program then has several rows, or
a chunk of one, in pieces (``pieces``). Exponentials stay in registers until the sums are known, and so do the gradients of the
divergence, which need no sums. All other cases, and sums near the limits of the range, are processed in small steps
(``pair_steps``). In stage "fused" the programs of a row wait for each other before they write the gradients; where they cannot,
there are two launches, stages "sums" and "gradient". Without LOSS only the divergence is computed, which needs no sums.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import LOG_2, inverse, log1p_fast, materialize
from manyhot.engines.triton.rows.lists import LISTS
from manyhot.engines.triton.rows.merge import wait_for_row
from manyhot.engines.triton.rows.pair_steps import (
    add_five,
    are_in_range,
    careful_pair,
    conclude_pair,
    merge_pair,
    publish_pair,
    step_gradients,
    step_rows,
)
from manyhot.engines.triton.rows.pair_tiles import apart, derivatives, exponentials
from manyhot.engines.triton.rows.pieces import (
    around_place,
    end_labels,
    end_place,
    inner_labels,
    piece_labels,
    piece_where,
    tile_mask,
    tile_place,
)
from manyhot.engines.triton.rows.tiles import first_listed, place_rows
from manyhot.engines.triton.rows.totals import add_up, store_values

# Labels around a tile are read one by one if there are at most this many times fewer than in the tile.
AROUND_MOST = 8


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def rdrop_kernel(
    a, labels, offsets, indices, values, where, pos_weight, neg_weight, b, row_scale, partial, arrived, out_value, grad_a,
    grad_b, out_total, ended,
    num_rows, num_labels, a_stride, label_stride, where_stride, b_stride,
    scale_number, pos_number, neg_number, smoothing, alpha, link,
    LOSS: tl.constexpr, LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr,
    NEG: tl.constexpr, SCALE: tl.constexpr, LINK: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr,
    CHUNKS: tl.constexpr, MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr, RAGGED: tl.constexpr, TOTAL: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """SEGMENT labels of ROWS rows of both: in STEPS of BLOCK labels, or as a tile of BLOCK and what is beyond (LEAN only).

    ``partial`` holds the sums of either loss, ``[2, R, CHUNKS, 4]``, and the divergence, ``[R, CHUNKS]``. TOTAL and SCALE are
    as in ``merge.conclude``.
    """
    # Tell Triton that sizes are multiples of UNIT, as in ``row_kernel``.
    num_labels, a_stride, b_stride = num_labels // UNIT * UNIT, a_stride // UNIT * UNIT, b_stride // UNIT * UNIT
    label_stride, where_stride = label_stride // UNIT * UNIT, where_stride // UNIT * UNIT
    WIDTH: tl.constexpr = 128 // a.dtype.element_ty.primitive_bitwidth
    FULL: tl.constexpr = EVEN and not RAGGED
    chunk, row, rows, in_rows = place_rows(num_rows, CHUNKS, ROWS, FULL)
    lead, inner = inner_labels(rows, num_labels, RAGGED, WIDTH)
    first = chunk * SEGMENT
    begin, end = _bounds(first, num_labels, lead, chunk, CHUNKS, SEGMENT, RAGGED)
    cursor, stop = first_listed(offsets, indices, row, rows, in_rows, begin, LABELS, ROWS, CHUNKS > 1, SEGMENT)
    scale = tl.zeros([ROWS], tl.float32) + scale_number
    if SCALE == "rows":
        scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
    if STEPS:
        step_rows(
            a, labels, indices, values, where, pos_weight, neg_weight, b, partial, arrived, out_value, grad_a, grad_b,
            num_rows, num_labels, a_stride, label_stride, where_stride, b_stride, pos_number, neg_number, smoothing, alpha,
            link, scale, row, rows, in_rows, chunk, begin, end, cursor, stop,
            LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, SCALE, LINK, STAGE, FULL, CHUNKS, MANY, ROWS, BLOCK, UNIT, TOTAL,
        )  # fmt: skip
    else:
        TAIL: tl.constexpr = SEGMENT - BLOCK if CHUNKS == 1 else 0
        # A different shape from the tile's, so that Triton does not force the tile's layout on both.
        STEP: tl.constexpr = (256 if BLOCK == 512 else 512) if ROWS == 1 else BLOCK
        a_pos, a_neg, b_pos, b_neg, total, tile, tail, ends = _pieces(
            a, b, labels, indices, values, where, a_stride, b_stride, label_stride, where_stride, num_labels, smoothing, link,
            alpha * scale, rows, in_rows, lead, inner, first, chunk, cursor, stop,
            LABELS, HAS_WHERE, LINK, FULL, CHUNKS, ROWS, BLOCK, TAIL, RAGGED, WIDTH,
        )  # fmt: skip
        zero = tl.zeros([ROWS], tl.float32)
        a_pos, a_neg, b_pos, b_neg = zero + a_pos, zero + a_neg, zero + b_pos, zero + b_neg
        total = zero + alpha * link * LOG_2 * total
        exact = are_in_range(a_pos, a_neg, b_pos, b_neg)
        if CHUNKS > 1 and STAGE != "gradient":
            if exact:
                publish_pair(
                    partial, num_rows, rows, in_rows, chunk, zero, a_pos, zero, a_neg, zero, b_pos, zero, b_neg, total, CHUNKS
                )
            else:
                found = careful_pair(
                    a, labels, indices, values, where, pos_weight, neg_weight, b, num_labels, a_stride, label_stride,
                    where_stride, b_stride, pos_number, neg_number, smoothing, link, rows, in_rows, begin, end, cursor, stop,
                    LABELS, LEAN, HAS_WHERE, POS, NEG, LINK, FULL, ROWS, STEP, UNIT,
                )  # fmt: skip
                publish_pair(
                    partial, num_rows, rows, in_rows, chunk, found[0], found[4], found[1], found[5], found[2], found[6],
                    found[3], found[7], zero + alpha * link * LOG_2 * found[8], CHUNKS,
                )  # fmt: skip
        if STAGE != "sums":
            a_pos_top, a_neg_top, b_pos_top, b_neg_top = zero, zero, zero, zero
            if CHUNKS > 1:
                if STAGE == "fused":
                    wait_for_row(arrived, row, CHUNKS)
                a_pos_top, a_pos, a_neg_top, a_neg, b_pos_top, b_pos, b_neg_top, b_neg, total = merge_pair(
                    partial, num_rows, row, CHUNKS, MANY
                )
                exact = tl.max(tl.maximum(tl.maximum(a_pos_top, a_neg_top), tl.maximum(b_pos_top, b_neg_top)), axis=0) == 0
                a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor = conclude_pair(
                    a_pos_top, a_pos, a_neg_top, a_neg, b_pos_top, b_pos, b_neg_top, b_neg, total, scale,
                    out_value, row, rows, in_rows, chunk, SCALE, CHUNKS, ROWS, TOTAL,
                )  # fmt: skip
            else:
                value = 0.5 * (_loss(a_pos, a_neg) + _loss(b_pos, b_neg)) + total
                store_values(out_value, value, scale, row, rows, in_rows, 0, SCALE, 1, ROWS, TOTAL)
                half = 0.5 * scale
                a_pos_factor, a_neg_factor = half * inverse(1.0 + a_pos), half * inverse(1.0 + a_neg)
                b_pos_factor, b_neg_factor = half * inverse(1.0 + b_pos), half * inverse(1.0 + b_neg)
            if exact:
                _store_pieces(
                    grad_a, grad_b, tile, tail, ends, a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor,
                    num_labels, rows, in_rows, lead, inner, first, chunk, FULL, CHUNKS, ROWS, BLOCK, TAIL, RAGGED, WIDTH,
                )  # fmt: skip
            elif CHUNKS > 1:
                step_gradients(
                    a, labels, indices, values, where, pos_weight, neg_weight, b, grad_a, grad_b, num_labels, a_stride,
                    label_stride, where_stride, b_stride, pos_number, neg_number, smoothing, link, alpha * scale, rows, in_rows,
                    begin, end, cursor, stop, a_pos_top, a_neg_top, b_pos_top, b_neg_top,
                    a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor,
                    LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, LINK, FULL, True, ROWS, STEP, UNIT,
                )  # fmt: skip
            else:
                tl.debug_barrier()
                step_rows(
                    a, labels, indices, values, where, pos_weight, neg_weight, b, partial, arrived, out_value, grad_a, grad_b,
                    num_rows, num_labels, a_stride, label_stride, where_stride, b_stride, pos_number, neg_number, smoothing,
                    alpha, link, scale, row, rows, in_rows, chunk, begin, end, cursor, stop,
                    LOSS, LABELS, LEAN, HAS_WHERE, POS, NEG, SCALE, LINK, STAGE, FULL, 1, 1, ROWS, STEP, UNIT, TOTAL,
                )  # fmt: skip
    if STAGE != "sums":
        add_up(out_total, out_value, num_rows, scale_number, chunk, SCALE, CHUNKS, TOTAL)


@triton.constexpr_function
def _is_around(ragged, tail, block):
    """Whether all labels around the tile are one piece. A tail of more than 16 has more labels than come before the tile."""
    return ragged and 16 < tail <= block // AROUND_MOST


@triton.jit
def _bounds(first, num_labels, lead, chunk, CHUNKS: tl.constexpr, SEGMENT: tl.constexpr, RAGGED: tl.constexpr):
    """The first label of a chunk and the one after its last. In ragged rows, the first chunk also has the labels before the
    aligned groups, and the last chunk those after them."""
    begin, end = first, tl.minimum(first + SEGMENT, num_labels)
    if RAGGED:
        ahead = tl.max(lead, axis=0)
        begin = tl.where(chunk == 0, 0, first + ahead)
        end = tl.where(chunk == CHUNKS - 1, num_labels, tl.minimum(first + SEGMENT + ahead, num_labels))
    return begin, end


@triton.jit
def _pieces(
    a, b, labels, indices, values, where, a_stride, b_stride, label_stride, where_stride, num_labels, smoothing, link, scale,
    rows, in_rows, lead, inner, first, chunk, cursor, stop,
    LABELS: tl.constexpr, HAS_WHERE: tl.constexpr, LINK: tl.constexpr, FULL: tl.constexpr, CHUNKS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, TAIL: tl.constexpr, RAGGED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The sums over all pieces, and for each piece (the tile, the smaller one after it, the ends) what ``_store`` needs.

    All pieces are loaded before the first sum, whose barriers no load can move across.
    """
    AROUND: tl.constexpr = _is_around(RAGGED, TAIL, BLOCK)
    OPEN: tl.constexpr = FULL or (TAIL > 0 and not RAGGED) or AROUND
    s, z, t, counts, cursor = _read(
        a, b, labels, indices, values, where, a_stride, b_stride, label_stride, where_stride, num_labels, smoothing, rows,
        in_rows, lead, inner, first, cursor, stop, LABELS, HAS_WHERE, OPEN, ROWS, BLOCK, RAGGED, WIDTH,
    )  # fmt: skip
    if AROUND:
        place, tail_counts = around_place(rows, in_rows, num_labels, lead, BLOCK, TAIL)
        tail_s = tl.load(a + place, mask=tail_counts, other=0).to(tl.float32)
        tail_z = tl.load(b + place, mask=tail_counts, other=0).to(tl.float32)
        tail_t = end_labels(labels, place, tail_counts, LABELS)
    elif TAIL > 0:
        tail_s, tail_z, tail_t, tail_counts, _ = _read(
            a, b, labels, indices, values, where, a_stride, b_stride, label_stride, where_stride, num_labels, smoothing, rows,
            in_rows, lead, inner, BLOCK, cursor, stop, LABELS, HAS_WHERE, FULL, ROWS, TAIL, RAGGED, WIDTH,
        )  # fmt: skip
    if RAGGED and not AROUND:
        place, there = end_place(rows, in_rows, num_labels, lead, inner, chunk, CHUNKS, WIDTH)
        end_s = tl.load(a + place, mask=there, other=0).to(tl.float32)
        end_z = tl.load(b + place, mask=there, other=0).to(tl.float32)
        end_t = end_labels(labels, place, there, LABELS)
    a_pos, a_neg, b_pos, b_neg, total, e, f, by_a, by_b = _terms(
        s, z, t, counts, link, scale, LINK, OPEN and not HAS_WHERE, ROWS
    )
    tile = (e, f, by_a, by_b, t)
    tail, ends = tile, tile
    if TAIL > 0:
        more = _terms(tail_s, tail_z, tail_t, tail_counts, link, scale, LINK, FULL and not HAS_WHERE, ROWS)
        tail = (more[5], more[6], more[7], more[8], tail_t)
        a_pos, a_neg, b_pos, b_neg = a_pos + more[0], a_neg + more[1], b_pos + more[2], b_neg + more[3]
        total += more[4]
    if RAGGED and not AROUND:
        more = _terms(end_s, end_z, end_t, there, link, scale, LINK, False, ROWS)
        ends = (more[5], more[6], more[7], more[8], end_t)
        a_pos, a_neg, b_pos, b_neg = a_pos + more[0], a_neg + more[1], b_pos + more[2], b_neg + more[3]
        total += more[4]
    return a_pos, a_neg, b_pos, b_neg, total, tile, tail, ends


@triton.jit
def _store_pieces(
    grad_a, grad_b, tile, tail, ends, a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor,
    num_labels, rows, in_rows, lead, inner, first, chunk,
    FULL: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, TAIL: tl.constexpr,
    RAGGED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write both gradients of all pieces."""
    AROUND: tl.constexpr = _is_around(RAGGED, TAIL, BLOCK)
    place = tile_place(rows, num_labels, lead, first, RAGGED, BLOCK, WIDTH)
    in_tile = tile_mask(in_rows, inner, first, FULL or AROUND, ROWS, BLOCK, RAGGED, WIDTH)
    _store(grad_a, grad_b, place, in_tile, tile, a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor)
    if AROUND:
        place, in_tile = around_place(rows, in_rows, num_labels, lead, BLOCK, TAIL)
        _store(grad_a, grad_b, place, in_tile, tail, a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor)
    elif TAIL > 0:
        place = tile_place(rows, num_labels, lead, BLOCK, RAGGED, TAIL, WIDTH)
        in_tile = tile_mask(in_rows, inner, BLOCK, FULL, ROWS, TAIL, RAGGED, WIDTH)
        _store(grad_a, grad_b, place, in_tile, tail, a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor)
    if RAGGED and not AROUND:
        place, there = end_place(rows, in_rows, num_labels, lead, inner, chunk, CHUNKS, WIDTH)
        _store(grad_a, grad_b, place, there, ends, a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor)


@triton.jit
def _loss(pos, neg):
    """``log(1 + pos) + log(1 + neg)``."""
    return log1p_fast(pos + neg + pos * neg)


@triton.jit
def _read(
    a, b, labels, indices, values, where, a_stride, b_stride, label_stride, where_stride, num_labels, smoothing, rows,
    in_rows, lead, inner, first, cursor, stop,
    LABELS: tl.constexpr, HAS_WHERE: tl.constexpr, FULL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    RAGGED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Both scores of a tile, its labels, which entries count, and how far the lists were read."""
    in_tile = tile_mask(in_rows, inner, first, FULL, ROWS, BLOCK, RAGGED, WIDTH)
    s = tl.load(a + tile_place(rows, a_stride, lead, first, RAGGED, BLOCK, WIDTH), mask=in_tile, other=0).to(tl.float32)
    z = tl.load(b + tile_place(rows, b_stride, lead, first, RAGGED, BLOCK, WIDTH), mask=in_tile, other=0).to(tl.float32)
    t, cursor = piece_labels(labels, label_stride, indices, values, num_labels, rows, in_rows, lead, in_tile, smoothing, first,
                             cursor, stop, LABELS, True, ROWS, BLOCK, RAGGED, WIDTH)  # fmt: skip
    counts = piece_where(where, where_stride, rows, lead, in_tile, first, HAS_WHERE, BLOCK, RAGGED, WIDTH)
    if HAS_WHERE:
        # Scores that do not count may be infinite.
        s, z = tl.where(counts, s, 0.0), tl.where(counts, z, 0.0)
    return s, z, t, counts, cursor


@triton.jit
def _terms(s, z, t, counts, link, scale, LINK: tl.constexpr, ALL: tl.constexpr, ROWS: tl.constexpr):
    """The sums of both sides of both losses and of the divergence; the exponentials of both scores, negated for positives;
    and the gradients of the divergence by both, times ``scale``."""
    x, y, e, f = exponentials(s, z, t, counts, True, ALL)
    total = apart(x, y, e, f, link, LINK, False)
    by_a, by_b = derivatives(x, y, e, f, link, scale, t, LINK, True, False)
    sums = tl.where(t, e, 0.0), tl.where(t, 0.0, e), tl.where(t, f, 0.0), tl.where(t, 0.0, f), total
    a_pos, a_neg, b_pos, b_neg, total = tl.reduce(sums, 1, add_five)
    if ROWS == 1:
        # Scalars: with tensors, Triton would convert all pieces to one layout.
        a_pos, a_neg, b_pos, b_neg, total = tl.reduce((a_pos, a_neg, b_pos, b_neg, total), 0, add_five)
    return a_pos, a_neg, b_pos, b_neg, total, e, f, materialize(by_a), materialize(by_b)


@triton.jit
def _store(grad_a, grad_b, place, in_tile, piece, a_pos_factor, a_neg_factor, b_pos_factor, b_neg_factor):
    """Write both gradients of a piece: that of the divergence, and of the loss."""
    e, f, by_a, by_b, t = piece
    by_a += e * tl.where(t, -a_pos_factor[:, None], a_neg_factor[:, None])
    by_b += f * tl.where(t, -b_pos_factor[:, None], b_neg_factor[:, None])
    tl.store(grad_a + place, by_a.to(grad_a.dtype.element_ty), mask=in_tile)
    tl.store(grad_b + place, by_b.to(grad_b.dtype.element_ty), mask=in_tile)
