"""Kernels of the backward pass (CUDA): turn a chunk of scores into its gradient, and sum that over rows."""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.linear.tiles import (
    AT_ONCE,
    cut_lists,
    listed_gradient,
    listed_weights,
    side_state,
    tile_place,
    tile_scores,
    tile_weights,
)
from manyhot.engines.triton.math import distance, exp


@triton.jit(do_not_specialize=["num_rows", "num_blocks", "col_blocks"])
def gradient_kernel(
    scores, target, bias, truth, indices, values, cuts, where, pos_weight, neg_weight, listed, state, grad_pos, grad_neg,
    num_rows, num_labels, first, stride, target_stride, label_stride, where_stride, num_blocks, col_blocks,
    pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, HAS_BIAS: tl.constexpr,
    POS: tl.constexpr, NEG: tl.constexpr, BOTH: tl.constexpr, PER_ROW: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """One tile of scores turned into its gradient in ``target``, which may be ``scores``.

    ``grad_pos`` and ``grad_neg`` have one number per row; without PER_ROW, ``grad_pos`` has one for all rows.
    """
    rows, in_rows, local, labels, block = tile_place(tl.program_id(0), col_blocks, num_rows, first, ROWS, COLS)
    pos_top, pos_factor = side_state(state, grad_pos, rows, in_rows, num_rows, PER_ROW)
    grad_neg = grad_neg if PER_ROW else grad_pos
    neg_top, neg_factor = side_state(state + 2 * num_rows, grad_neg, rows, in_rows, num_rows, PER_ROW)
    s, inside = tile_scores(scores, bias, rows, in_rows, local, labels, num_labels, stride, HAS_BIAS, EVEN)
    if LEAN:
        grad = exp(distance(s, neg_top[:, None])) * (neg_factor * neg_number)[:, None]
    else:
        pos_w, neg_w = tile_weights(
            truth, where, pos_weight, neg_weight, rows, labels, inside, num_labels, label_stride, where_stride,
            pos_number, neg_number, smoothing, LABELS, HAS_WHERE, POS, NEG,
        )  # fmt: skip
        terms = tl.where(neg_w > 0, neg_w * exp(distance(s, neg_top[:, None])), 0.0)
        grad = tl.where(terms == 0, 0.0, terms * neg_factor[:, None])
        if BOTH:
            terms = tl.where(pos_w > 0, pos_w * exp(distance(-s, pos_top[:, None])), 0.0)
            grad -= tl.where(terms == 0, 0.0, terms * pos_factor[:, None])
    places = target + rows[:, None] * target_stride + local[None, :]
    kind = target.dtype.element_ty
    tl.store(places, grad.to(kind), mask=inside)
    if LABELS != "dense":
        start, stop = cut_lists(cuts, rows, in_rows, block, num_blocks)
        done, most = 0, tl.max(stop - start, axis=0)
        if most > 0:
            tl.debug_barrier()
        while done < most:
            entries = start[:, None] + done + tl.arange(0, AT_ONCE)[None, :]
            here = entries < stop[:, None]
            label = tl.load(indices + entries, mask=here, other=0)
            own = tl.load(listed + entries, mask=here, other=0)
            up, down = listed_weights(
                values, where, pos_weight, neg_weight, entries, rows[:, None], label, here, where_stride,
                pos_number, neg_number, smoothing, LABELS, HAS_WHERE, POS, NEG,
            )  # fmt: skip
            own_grad = listed_gradient(
                own, up, down, pos_top[:, None], neg_top[:, None], pos_factor[:, None], neg_factor[:, None]
            )
            place = target + rows[:, None] * target_stride + (label - first)
            tl.store(place, own_grad.to(kind), mask=here)
            done += AT_ONCE


@triton.jit(do_not_specialize=["num_rows"])
def column_sums_kernel(
    terms, factors, out, num_rows, num_labels, stride, SCALED: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """The sums of columns, each row times its factor where SCALED, in float32: the gradient of the bias."""
    labels = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)
    total = tl.zeros([COLS], tl.float32)
    for start in range(0, num_rows, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        inside = (rows < num_rows)[:, None] & (labels < num_labels)[None, :]
        term = tl.load(terms + rows[:, None] * stride + labels[None, :], mask=inside, other=0).to(tl.float32)
        if SCALED:
            term = term * tl.load(factors + rows, mask=rows < num_rows, other=0)[:, None]
        total += tl.sum(term, axis=0)
    tl.store(out + labels, total, mask=labels < num_labels)
