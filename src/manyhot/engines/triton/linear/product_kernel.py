"""Kernels that compute the scores of a tile and use them at once (CUDA), so that scores are neither written nor read again."""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.linear.tiles import (
    AT_ONCE,
    LOWEST,
    cut_lists,
    listed_gradient,
    listed_weights,
    plain_terms,
    safe_terms,
    side_state,
)
from manyhot.engines.triton.math import distance, exp


@triton.jit
def listed_scores_kernel(
    hidden, weight, bias, indices, offsets, listed, hidden_stride, weight_stride, parts,
    HAS_BIAS: tl.constexpr, SIZE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The scores of the listed labels of a row; ``parts`` programs share a row."""
    row, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    start, stop = tl.load(offsets + row) + part * AT_ONCE, tl.load(offsets + row + 1)
    while start < stop:
        entries = start + tl.arange(0, AT_ONCE)
        here = entries < stop
        label = tl.load(indices + entries, mask=here, other=0).to(tl.int64)
        total = tl.zeros([AT_ONCE, DEPTH], tl.float32)
        for first in range(0, SIZE, DEPTH):
            at = first + tl.arange(0, DEPTH)
            h = tl.load(hidden + row * hidden_stride + at, mask=at < SIZE, other=0).to(tl.float32)
            inside = here[:, None] & (at < SIZE)[None, :]
            w = tl.load(weight + label[:, None] * weight_stride + at[None, :], mask=inside, other=0).to(tl.float32)
            total += h[None, :] * w
        score = tl.sum(total, axis=1)
        if HAS_BIAS:
            score += tl.load(bias + label, mask=here, other=0).to(tl.float32)
        tl.store(listed + entries, score, mask=here)
        start += parts * AT_ONCE


@triton.jit
def tile_product(hidden, weight, row, label, SIZE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr,
                 STAGES: tl.constexpr):  # fmt: skip
    """``hidden @ weight.T`` in float32 for ROWS rows from ``row`` on and COLS labels from ``label`` on, 0 beyond the end."""
    s = tl.zeros([ROWS, COLS], tl.float32)
    for first in tl.range(0, SIZE, DEPTH, num_stages=STAGES):
        s = tl.dot(hidden.load([row, first]), weight.load([label, first]).T, s, input_precision="ieee")
    return s


@triton.jit
def store_halves(target, row, column, made, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A tile stored half by half: the buffer of a half leaves room for another program or one more step loaded ahead."""
    halves = tl.permute(tl.reshape(made, [ROWS, 2, COLS // 2]), [0, 2, 1])
    left, right = tl.split(halves)
    target.store([row, column], left)
    target.store([row, column + COLS // 2], right)


@triton.jit
def listed_columns(indices, entries, here, first, COLS: tl.constexpr):
    """The columns of listed labels in a tile of COLS labels from ``first`` on, and whether any of them is in it."""
    column = (tl.load(indices + entries, mask=here, other=-1) - first).to(tl.int32)
    inside = here & (column >= 0) & (column < COLS)
    return tl.where(inside, column, -1), tl.max(tl.where(inside, 1, 0), axis=0) > 0


@triton.jit
def without_listed(s, indices, start, stop, most, first, COLS: tl.constexpr):
    """The scores of COLS labels from ``first`` on, with -inf in place of those of listed labels."""
    done = 0
    while done < most:
        column, found = listed_columns(indices, start + done, start + done < stop, first, COLS)
        if found:
            s = tl.where(tl.arange(0, COLS)[None, :] == column[:, None], LOWEST, s)
        done += 1
    return s


@triton.jit
def with_listed(
    grad, indices, values, pos_weight, listed, state, grad_pos, start, stop, most, first, rows, in_rows, num_rows,
    neg_top, neg_factor, pos_number, neg_number,
    LABELS: tl.constexpr, POS: tl.constexpr, PER_ROW: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The gradient of COLS labels from ``first`` on, with that of listed labels in their places."""
    done = 0
    while done < most:
        entries, here = start + done, start + done < stop
        column, found = listed_columns(indices, entries, here, first, COLS)
        if found:
            here = column >= 0
            score = tl.load(listed + entries, mask=here, other=0)
            up, down = listed_weights(
                values, None, pos_weight, None, entries, rows, column + first, here, 0, pos_number, neg_number, 0.0,
                LABELS, False, POS, "number",
            )  # fmt: skip
            pos_top, pos_factor = side_state(state, grad_pos, rows, in_rows, num_rows, PER_ROW)
            own = listed_gradient(score, up, down, pos_top, neg_top, pos_factor, neg_factor)
            grad = tl.where(tl.arange(0, COLS)[None, :] == column[:, None], own[:, None], grad)
        done += 1
    return grad


@triton.jit(do_not_specialize=["num_rows", "num_labels", "first", "num_parts", "num_blocks", "row_blocks", "tiles"])
def product_kernel(
    hidden, weight, target, bias, indices, values, cuts, pos_weight, listed, state, grad_pos, grad_neg, parts,
    num_rows, num_labels, first, num_parts, num_blocks, row_blocks, tiles, pos_number, neg_number,
    MODE: tl.constexpr, LABELS: tl.constexpr, POS: tl.constexpr, HAS_BIAS: tl.constexpr, PER_ROW: tl.constexpr,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The scores of the labels from ``first`` to ``num_labels``, tile by tile, each used at once.

    MODE "sums": the (shift, sum) pair of the negatives of each row goes to ``parts``. "terms": as "sums", and the terms go to
    ``target``. "gradient": the gradient of the scores goes to ``target``; see ``gradient_kernel``. Problems are lean, as in
    ``sums_kernel``. ``hidden``, ``weight`` and ``target`` are tensor descriptors, the last of half tiles. ``cuts`` has blocks
    of BLOCK labels, a multiple of COLS.
    """
    # Both loops become one: the loads of the next tile start while this one is used.
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        # Programs that run together share labels, so that the weights are read once from memory.
        row, column = tile % row_blocks * ROWS, tile // row_blocks * COLS
        label = first + column
        s = tile_product(hidden, weight, row, label, SIZE, ROWS, COLS, DEPTH, STAGES)
        rows, labels = (row + tl.arange(0, ROWS)).to(tl.int64), label + tl.arange(0, COLS)
        in_rows, in_labels = rows < num_rows, labels < num_labels
        start, stop = cut_lists(cuts, rows, in_rows, label // BLOCK, num_blocks)
        most = tl.max(stop - start, axis=0)
        if HAS_BIAS:
            s += tl.load(bias + labels, mask=in_labels, other=0).to(tl.float32)[None, :]
        if MODE == "gradient":
            pull = grad_neg if PER_ROW else grad_pos
            top, factor = side_state(state + 2 * num_rows, pull, rows, in_rows, num_rows, PER_ROW)
            made = exp(distance(s, top[:, None])) * (factor * neg_number)[:, None]
            made = with_listed(
                made, indices, values, pos_weight, listed, state, grad_pos, start, stop, most, label, rows, in_rows, num_rows,
                top, factor, pos_number, neg_number, LABELS, POS, PER_ROW, COLS,
            )  # fmt: skip
        else:
            if label + COLS > num_labels:
                s = tl.where(in_labels[None, :], s, LOWEST)
            s = without_listed(s, indices, start, stop, most, label, COLS)
            if MODE == "terms":
                made, top, total = safe_terms(s)
            else:
                made, top, total = plain_terms(s, in_rows, ROWS)
            place = parts + (rows * num_parts + label // COLS) * 2
            tl.store(place, top, mask=in_rows)
            tl.store(place + 1, total * neg_number, mask=in_rows)
        if MODE != "sums":
            store_halves(target, row, column, made.to(target.dtype), ROWS, COLS)
