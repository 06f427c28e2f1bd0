"""The kernel between the passes (CUDA): from the sums of blocks to the sides or the loss of a row."""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.linear.tiles import (
    LOWEST,
    add_terms,
    join_lanes,
    listed_gradient,
    listed_weights,
)
from manyhot.engines.triton.math import distance, exp
from manyhot.engines.triton.rows.tiles import finish

# The smallest factor of kept terms.
SMALLEST = tl.constexpr(1e-30)


@triton.jit
def _settle(top, total):
    """A pair in the form the gradient needs: each infinite term of an infinite side counts fully; an empty side has none."""
    total = tl.where(top == float("inf"), 1.0, total)
    return tl.where(top == LOWEST, 0.0, top), total


@triton.jit
def _value(top, total):
    """``top + log total``; -inf for an empty sum, inf for an infinite one."""
    return tl.where(total == 0, LOWEST, top + tl.log(tl.where(total == 0, 1.0, total)))


@triton.jit
def own_level(lowest, highest):
    """The largest exponent that was factored out of a row's kept terms; 0 if there are none."""
    high = tl.max(highest, axis=0)
    return tl.where(high == LOWEST, 0.0, high)


@triton.jit
def level_row(terms, parts, own, num_kept, WIDTH: tl.constexpr, COLS: tl.constexpr):
    """Rescale the kept terms of a row to one exponent; needed only where scores are very large or very small."""
    columns = tl.arange(0, COLS)
    for block in range(0, tl.cdiv(num_kept, COLS)):
        top = tl.load(parts + block * WIDTH)
        if top != own:
            place = terms + block * COLS + columns
            term = tl.load(place).to(tl.float32) * exp(distance(top, own))
            tl.store(place, term.to(terms.dtype.element_ty))


@triton.jit(do_not_specialize=["num_rows", "num_blocks", "where_stride", "num_kept"])
def merge_kernel(
    parts, listed, indices, offsets, values, where, pos_weight, neg_weight, offset, row_scale, terms,
    out_pos, out_neg, out_slope, state,
    num_rows, num_blocks, where_stride, stride, num_kept, pos_number, neg_number, smoothing, offset_number, scale_number,
    LABELS: tl.constexpr, BOTH: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    EXPS: tl.constexpr, OFFSET: tl.constexpr, HAS_SCALE: tl.constexpr, FORM: tl.constexpr, COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row from the pairs of its blocks and the scores of its listed labels.

    FORM "sides" gives ``pos`` and ``neg``; "split" and "joint" give the loss of the row in the place of ``pos``. ``state``
    holds what the gradient needs: the exponent factored out of either side, and the factor of the remaining terms.

    With EXPS the terms of the first ``num_kept`` labels were kept instead of the scores. They are rescaled to one exponent per
    row, and those of the listed labels are written: the gradient is a factor per row, in ``state``, times them.
    """
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    neg_top, neg_total = tl.full([BLOCK], LOWEST, tl.float32), tl.zeros([BLOCK], tl.float32)
    pos_top, pos_total = tl.full([BLOCK], LOWEST, tl.float32), tl.zeros([BLOCK], tl.float32)
    lowest, highest = tl.full([BLOCK], float("inf"), tl.float32), tl.full([BLOCK], LOWEST, tl.float32)
    WIDTH: tl.constexpr = 4 if BOTH else 2
    for start in range(0, num_blocks, BLOCK):
        there = start + lanes < num_blocks
        place = parts + (row * num_blocks + start + lanes) * WIDTH
        top, total = tl.load(place, mask=there, other=0), tl.load(place + 1, mask=there, other=0)
        neg_top, neg_total = add_terms(neg_top, neg_total, top, total)
        if EXPS:
            kept = (total != 0) & ((start + lanes) * COLS < num_kept)
            lowest = tl.where(kept, tl.minimum(lowest, top), lowest)
            highest = tl.where(kept, tl.maximum(highest, top), highest)
        if BOTH:
            pos_top, pos_total = add_terms(
                pos_top, pos_total, tl.load(place + 2, mask=there, other=0), tl.load(place + 3, mask=there, other=0)
            )
    if LABELS != "dense":
        start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
        while start < stop:
            entries = start + lanes
            here = entries < stop
            label = tl.load(indices + entries, mask=here, other=0)
            own = tl.load(listed + entries, mask=here, other=0)
            pos_w, neg_w = listed_weights(
                values, where, pos_weight, neg_weight, entries, row, label, here, where_stride,
                pos_number, neg_number, smoothing, LABELS, HAS_WHERE, POS, NEG,
            )  # fmt: skip
            pos_top, pos_total = add_terms(pos_top, pos_total, -own, pos_w)
            neg_top, neg_total = add_terms(neg_top, neg_total, own, neg_w)
            start += BLOCK
    pos_top, pos_total = join_lanes(pos_top, pos_total)
    neg_top, neg_total = join_lanes(neg_top, neg_total)
    pos_top, pos_total = _settle(pos_top, pos_total)
    neg_top, neg_total = _settle(neg_top, neg_total)
    if FORM == "sides":
        tl.store(out_pos + row, _value(pos_top, pos_total))
        tl.store(out_neg + row, _value(neg_top, neg_total))
        pos_factor, neg_factor = 1.0 / pos_total, 1.0 / neg_total
    else:
        c = tl.zeros([1], tl.float32) + offset_number
        if OFFSET == "row":
            c += tl.load(offset + row).to(tl.float32)
        scale = tl.zeros([1], tl.float32) + scale_number
        if HAS_SCALE:
            scale = scale * tl.load(row_scale + row).to(tl.float32)
        moved = c if FORM == "split" else tl.zeros([1], tl.float32)
        above, below = pos_top + moved, neg_top - moved
        if FORM == "split":
            above = tl.where(pos_total == 0, 0.0, tl.maximum(above, 0.0))
            below = tl.where(neg_total == 0, 0.0, tl.maximum(below, 0.0))
        up = tl.where(pos_total == 0, 0.0, pos_total * exp(distance(pos_top + moved, above)))
        down = tl.where(neg_total == 0, 0.0, neg_total * exp(distance(neg_top - moved, below)))
        value, slope, pos_factor, neg_factor = finish(above, up, below, down, c, FORM)
        pos_top, neg_top = above - moved, below + moved
        if EXPS:
            own = own_level(lowest, highest)
            reach = tl.where(neg_total == 0, 1.0, neg_number * neg_factor * exp(distance(own, neg_top)))
            # A smaller factor is negligible, and must not be 0: the terms of listed labels are divided by it.
            reach = tl.maximum(reach, SMALLEST)
            if tl.min(lowest, axis=0) < tl.max(highest, axis=0):
                level_row(terms + row * stride, parts + row * num_blocks * WIDTH, own, num_kept, WIDTH, COLS)
            tl.debug_barrier()
            start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
            while start < stop:
                entries = start + lanes
                label = tl.load(indices + entries, mask=entries < stop, other=0)
                here = (entries < stop) & (label < num_kept)
                score = tl.load(listed + entries, mask=here, other=0)
                pos_w, neg_w = listed_weights(
                    values, where, pos_weight, neg_weight, entries, row, label, here, where_stride,
                    pos_number, neg_number, smoothing, LABELS, HAS_WHERE, POS, NEG,
                )  # fmt: skip
                grad = listed_gradient(score, pos_w, neg_w, pos_top, neg_top, pos_factor, neg_factor) / reach
                tl.store(terms + row * stride + label, grad.to(terms.dtype.element_ty), mask=here)
                start += BLOCK
            tl.store(state + 4 * num_rows + row + tl.arange(0, 1), reach * scale)
        pos_factor, neg_factor = pos_factor * scale, neg_factor * scale
        tl.store(out_pos + row + tl.arange(0, 1), value)
        if OFFSET == "row":
            tl.store(out_slope + row + tl.arange(0, 1), slope * scale)
    one = row + tl.arange(0, 1)
    # An empty side has the exponent inf and the factor 0, so that no score can give it an infinite term.
    tl.store(state + one, tl.where(pos_total == 0, float("inf"), pos_top))
    tl.store(state + num_rows + one, tl.where(pos_total == 0, 0.0, pos_factor))
    tl.store(state + 2 * num_rows + one, tl.where(neg_total == 0, float("inf"), neg_top))
    tl.store(state + 3 * num_rows + one, tl.where(neg_total == 0, 0.0, neg_factor))
