"""Kernels of the forward pass (CUDA): divide the index lists by blocks of labels, sum a chunk of scores."""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.linear.tiles import (
    AT_ONCE,
    LOWEST,
    cut_lists,
    plain_terms,
    tile_place,
    tile_scores,
    tile_weights,
    top_and_total,
)


@triton.jit(do_not_specialize=["num_rows", "num_blocks", "parts"])
def cut_kernel(indices, offsets, cuts, num_rows, num_blocks, parts, COLS: tl.constexpr, BLOCK: tl.constexpr):
    """``cuts[r, k]``: the first entry of row r's list with a label of at least ``k COLS``, by binary search."""
    program = tl.program_id(0)
    row = (program // parts).to(tl.int64)
    blocks = (program % parts) * BLOCK + tl.arange(0, BLOCK)
    wanted = blocks.to(tl.int64) * COLS
    low = tl.zeros([BLOCK], tl.int64) + tl.load(offsets + row)
    high = tl.zeros([BLOCK], tl.int64) + tl.load(offsets + row + 1)
    while tl.max(high - low, axis=0) > 0:
        open_ = low < high
        middle = (low + high) // 2
        before = tl.load(indices + middle, mask=open_, other=0) < wanted
        low = tl.where(open_ & before, middle + 1, low)
        high = tl.where(open_ & (before == 0), middle, high)
    tl.store(cuts + row * (num_blocks + 1) + blocks, low.to(tl.int32), mask=blocks <= num_blocks)


@triton.jit(do_not_specialize=["num_rows", "num_blocks", "col_blocks"])
def sums_kernel(
    scores, bias, truth, indices, cuts, where, pos_weight, neg_weight, listed, parts,
    num_rows, num_labels, first, stride, label_stride, where_stride, num_blocks, col_blocks,
    pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, HAS_BIAS: tl.constexpr,
    POS: tl.constexpr, NEG: tl.constexpr, BOTH: tl.constexpr, EXPS: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """One tile: its (shift, sum) pairs into ``parts``, and the scores of its listed labels into ``listed``.

    LEAN, lists without mask, smoothing or weights per label: listed scores are replaced by -inf in the chunk before it is read,
    because a listed label is not a negative. Otherwise listed labels are excluded by comparison. With EXPS the terms replace
    the scores.
    """
    rows, in_rows, local, labels, block = tile_place(tl.program_id(0), col_blocks, num_rows, first, ROWS, COLS)
    if LABELS != "dense":
        start, stop = cut_lists(cuts, rows, in_rows, block, num_blocks)
        done, most = 0, tl.max(stop - start, axis=0)
        while done < most:
            entries = start[:, None] + done + tl.arange(0, AT_ONCE)[None, :]
            here = entries < stop[:, None]
            label = tl.load(indices + entries, mask=here, other=0)
            place = scores + rows[:, None] * stride + (label - first)
            own = tl.load(place, mask=here, other=0).to(tl.float32)
            if HAS_BIAS:
                own += tl.load(bias + label, mask=here, other=0).to(tl.float32)
            tl.store(listed + entries, own, mask=here)
            if LEAN:
                # Several threads may hold an entry: all of them read it before any of them writes.
                tl.debug_barrier()
                tl.store(place, tl.full([ROWS, AT_ONCE], LOWEST, tl.float32).to(scores.dtype.element_ty), mask=here)
            done += AT_ONCE
        if LEAN:  # noqa: SIM102 - a compile-time condition, then a runtime one
            if most > 0:
                tl.debug_barrier()
    s, inside = tile_scores(scores, bias, rows, in_rows, local, labels, num_labels, stride, HAS_BIAS, EVEN)
    WIDTH: tl.constexpr = 4 if BOTH else 2
    place = parts + (rows * num_blocks + block) * WIDTH
    if LEAN:
        terms, neg_top, neg_total = plain_terms(s, in_rows, ROWS)
        neg_total = neg_total * neg_number
        if EXPS:
            target = scores + rows[:, None] * stride + local[None, :]
            tl.store(target, terms.to(scores.dtype.element_ty), mask=inside)
    else:
        pos_w, neg_w = tile_weights(
            truth, where, pos_weight, neg_weight, rows, labels, inside, num_labels, label_stride, where_stride,
            pos_number, neg_number, smoothing, LABELS, HAS_WHERE, POS, NEG,
        )  # fmt: skip
        if LABELS != "dense":
            done = 0
            while done < most:
                here = start + done < stop
                label = tl.load(indices + start + done, mask=here, other=-1)
                other = labels[None, :] != label[:, None]
                pos_w, neg_w = tl.where(other, pos_w, 0.0), tl.where(other, neg_w, 0.0)
                done += 1
        neg_top, neg_total = top_and_total(s, neg_w)
        if BOTH:
            pos_top, pos_total = top_and_total(-s, pos_w)
            tl.store(place + 2, pos_top, mask=in_rows)
            tl.store(place + 3, pos_total, mask=in_rows)
    tl.store(place, neg_top, mask=in_rows)
    tl.store(place + 1, neg_total, mask=in_rows)
