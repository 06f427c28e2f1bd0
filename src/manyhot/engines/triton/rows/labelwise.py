"""Labelwise losses (BCE, focal, asymmetric) and their gradient, in one read and one write of the scores (CUDA).

A HARD label has one side, so only one cost is computed. With an index list, all labels of a row are first treated as negatives,
in groups of neighbours; groups with a listed label are left out of the sum and recomputed, and the gradient of listed labels is
overwritten (see ``lists``).
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.rows.costs import label_cost, one_cost, shifted_cost
from manyhot.engines.triton.rows.lists import AT_ONCE, LISTS
from manyhot.engines.triton.rows.tiles import column_weight, first_listed, place_columns, place_rows, tile_labels, tile_where


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def labelwise_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, row_scale, out_value, out_grad,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    scale_number, pos_number, neg_number, smoothing, gamma_pos, gamma_neg, margin,
    KIND: tl.constexpr, HAS_MARGIN: tl.constexpr, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr,
    LABELS: tl.constexpr, HARD: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    HAS_SCALE: tl.constexpr, EVEN: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """One tile: its part of the row sums, ``[R, CHUNKS]``, and its gradient. KIND is "bce" or "focal" (and asymmetric).

    POWER_POS and POWER_NEG are the gammas where both are small whole numbers, else -1. POS and NEG are the kinds of weights:
    one for each "label", "one" for all, a "number" above 0, or "zero".
    """
    # Tell Triton that sizes are multiples of UNIT, as in ``row_kernel``.
    num_labels, x_stride = num_labels // UNIT * UNIT, x_stride // UNIT * UNIT
    label_stride, where_stride = label_stride // UNIT * UNIT, where_stride // UNIT * UNIT
    chunk, row, rows, in_rows = place_rows(num_rows, CHUNKS, ROWS, EVEN)
    columns, in_tile = place_columns(num_labels, in_rows, chunk * BLOCK, ROWS, BLOCK, EVEN)
    WIDTH: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    s = tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=in_tile, other=0).to(tl.float32)
    counts = in_tile
    if HAS_WHERE:
        counts = tile_where(where, where_stride, rows, columns, in_tile, WIDTH)
    cursor, stop = first_listed(offsets, indices, row, rows, in_rows, chunk * BLOCK, LABELS, ROWS, CHUNKS > 1, BLOCK)
    LISTED: tl.constexpr = LABELS == "lists" and HARD and ROWS == 1 and not HAS_WHERE and POS != "label" and NEG != "label"
    if LISTED:
        s, negative = tl.where(neg_number > 0, s, 0.0), tl.full([ROWS, BLOCK], False, tl.int1)
        cost, slope = label_cost(s, negative, gamma_pos, gamma_neg, margin, KIND, HAS_MARGIN, POWER_POS, POWER_NEG)
        cost, grad = tl.where(in_tile, cost * neg_number, 0.0), slope * neg_number
        total = _with_listed(
            cost, x + row * x_stride, indices, num_labels, chunk * BLOCK, cursor, stop, pos_number, neg_number, gamma_pos,
            gamma_neg, margin, KIND, HAS_MARGIN, POWER_POS, POWER_NEG, BLOCK, WIDTH,
        )  # fmt: skip
    else:
        t, _ = tile_labels(labels, label_stride, indices, values, rows, columns, in_tile, smoothing, cursor, stop,
                           LABELS, HARD, ROWS, BLOCK, "", WIDTH)  # fmt: skip
        pos_w = column_weight(pos_weight, pos_number, columns, num_labels, POS, BLOCK)[None, :]
        neg_w = column_weight(neg_weight, neg_number, columns, num_labels, NEG, BLOCK)[None, :]
        if HARD:
            SKIPS: tl.constexpr = not EVEN or HAS_WHERE or POS == "label" or POS == "zero" or NEG == "label" or NEG == "zero"
            weight = tl.where(t, pos_w, neg_w)
            if not EVEN or HAS_WHERE:
                weight = tl.where(counts, weight, 0.0)
            if SKIPS:
                # Entries of weight 0 are skipped, whatever their score.
                s = tl.where(weight > 0, s, 0.0)
            cost, slope = label_cost(
                tl.where(t, -s, s), t, gamma_pos, gamma_neg, margin, KIND, HAS_MARGIN, POWER_POS, POWER_NEG
            )
            total, grad = cost, tl.where(t, -slope, slope)
            if SKIPS or POS != "one" or NEG != "one":
                total, grad = weight * total, weight * grad
        else:
            up, down = tl.where(counts, t * pos_w, 0.0), tl.where(counts, (1.0 - t) * neg_w, 0.0)
            s = tl.where((up > 0) | (down > 0), s, 0.0)
            pos, pos_slope = one_cost(-s, gamma_pos, KIND, -1)
            if HAS_MARGIN:
                neg, neg_slope = shifted_cost(s, gamma_neg, margin)
            else:
                neg, neg_slope = one_cost(s, gamma_neg, KIND, -1)
            total = tl.where(up > 0, up * pos, 0.0) + tl.where(down > 0, down * neg, 0.0)
            grad = down * neg_slope - up * pos_slope
        total = tl.sum(total, axis=1)
    tl.store(out_value + rows * CHUNKS + chunk, total, mask=in_rows)
    scale = tl.zeros([ROWS], tl.float32) + scale_number
    if HAS_SCALE:
        scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
    grad = grad * scale[:, None]
    tl.store(out_grad + rows[:, None] * num_labels + columns[None, :], grad.to(out_grad.dtype.element_ty), mask=in_tile)
    if LISTED:
        _store_listed(
            out_grad + row * num_labels, x + row * x_stride, indices, cursor, stop, pos_number, gamma_pos, gamma_neg, margin,
            scale, KIND, HAS_MARGIN, POWER_POS, POWER_NEG,
        )  # fmt: skip


@triton.jit
def _with_listed(
    cost, x, indices, num_labels, first, cursor, stop, pos_number, neg_number, gamma_pos, gamma_neg, margin,
    KIND: tl.constexpr, HAS_MARGIN: tl.constexpr, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr,
    BLOCK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """The sum ``[1]`` of the costs of a row's tile, in which all labels were treated as negatives. The row starts at ``x``."""
    sums = tl.sum(tl.reshape(cost, [BLOCK // GROUP, GROUP]), axis=1)
    groups = first // GROUP + tl.arange(0, BLOCK // GROUP)
    positive, negative = tl.full([AT_ONCE], True, tl.int1), tl.full([AT_ONCE, GROUP], False, tl.int1)
    again = tl.zeros([AT_ONCE], tl.float32)
    start = cursor
    while start < stop:
        entries = start + tl.arange(0, AT_ONCE)
        here = entries < stop
        place = tl.load(indices + entries, mask=here, other=-1)
        own = tl.load(x + place, mask=here & (pos_number > 0), other=0).to(tl.float32)
        pos, _ = label_cost(-own, positive, gamma_pos, gamma_neg, margin, KIND, HAS_MARGIN, POWER_POS, POWER_NEG)
        again += tl.where(here, pos * pos_number, 0.0)
        # A group is recomputed with the first of its listed labels.
        before = tl.load(indices + entries - 1, mask=here & (entries > cursor), other=-1)
        fresh = here & ((before < 0) | (before // GROUP != place // GROUP))
        beside = (place // GROUP)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        counts = fresh[:, None] & (beside < num_labels)
        for step in tl.static_range(GROUP):
            listed = tl.load(indices + entries + step, mask=entries + step < stop, other=-1)
            counts = counts & (beside != listed[:, None])
        around = tl.load(x + beside, mask=counts & (neg_number > 0), other=0).to(tl.float32)
        neg, _ = label_cost(around, negative, gamma_pos, gamma_neg, margin, KIND, HAS_MARGIN, POWER_POS, POWER_NEG)
        again += tl.sum(tl.where(counts, neg * neg_number, 0.0), axis=1)
        hit = tl.full([BLOCK // GROUP], False, tl.int1)
        for step in tl.static_range(AT_ONCE):
            listed = tl.load(indices + start + step, mask=start + step < stop, other=-1)
            hit = hit | (groups == tl.where(listed < 0, -1, listed // GROUP).to(tl.int32))
        sums = tl.where(hit, 0.0, sums)
        start += AT_ONCE
    return tl.zeros([1], tl.float32) + tl.sum(sums, axis=0) + tl.sum(again, axis=0)


@triton.jit
def _store_listed(
    out_grad, x, indices, cursor, stop, pos_number, gamma_pos, gamma_neg, margin, scale,
    KIND: tl.constexpr, HAS_MARGIN: tl.constexpr, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr,
):  # fmt: skip
    """Overwrite the gradient of a row's listed labels, after all threads have written theirs."""
    tl.debug_barrier()
    positive = tl.full([AT_ONCE], True, tl.int1)
    start = cursor
    while start < stop:
        entries = start + tl.arange(0, AT_ONCE)
        here = entries < stop
        place = tl.load(indices + entries, mask=here, other=0)
        own = tl.load(x + place, mask=here & (pos_number > 0), other=0).to(tl.float32)
        _, slope = label_cost(-own, positive, gamma_pos, gamma_neg, margin, KIND, HAS_MARGIN, POWER_POS, POWER_NEG)
        tl.store(out_grad + place, (-slope * pos_number * scale).to(out_grad.dtype.element_ty), mask=here)
        start += AT_ONCE
