"""Rows too long for the chip: the loss and its gradient with one read from memory and a second from the cache (CUDA).

A row is cut into segments, one program each. A program sums its segment block by block, publishes four numbers, waits for
the other programs of its row, merges their numbers in the order of the segments, and goes over its segment again, which
still lies in the L2 cache, for the gradient. Programs take their places by a ticket, so that those a program waits for have
always started before it; and the result does not depend on who came first.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.kernels.triton_math import distance, exp
from manyhot.kernels.triton_tiles import (
    SAFE,
    add_pairs,
    careful_terms,
    finish,
    first_listed,
    plain_terms,
    publish,
    settle,
    side_exponents,
    side_terms,
    tile_exponents,
    tile_gradient,
)

UNROLL = tl.constexpr(2)


@triton.jit
def merge_chunks(partial, row, FORM: tl.constexpr, CHUNKS: tl.constexpr, MANY: tl.constexpr):
    """A side's largest exponent and sum ``[1]`` from those of a row's chunks, by a tree that is always the same."""
    chunks = tl.arange(0, MANY)
    place = partial + (row.to(tl.int64) * CHUNKS + chunks) * 4
    top = tl.load(place, mask=chunks < CHUNKS, other=0, volatile=True)
    total = tl.load(place + 1, mask=chunks < CHUNKS, other=0, volatile=True)
    highest = tl.max(top if FORM == "split" else tl.where(total == 0, -float("inf"), top), axis=0)
    highest = tl.where(highest == -float("inf"), 0.0, highest)
    merged = tl.sum(tl.where(total == 0, 0.0, total * exp(distance(top, highest))), axis=0)
    one = tl.zeros([1], tl.float32)
    return one + highest, one + merged


@triton.jit
def wait_for_row(arrived, row, CHUNKS: tl.constexpr):
    """Say that this program has published, and wait until all programs of its row have."""
    tl.debug_barrier()
    tl.atomic_add(arrived + row, 1, sem="release", scope="gpu")
    while tl.atomic_add(arrived + row, 0, sem="acquire", scope="gpu") < CHUNKS:
        pass
    tl.debug_barrier()


@triton.jit
def segment_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, offset, row_scale, grad_pos, grad_neg,
    out_value, out_slope, out_grad, state, partial, arrived,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    offset_number, scale_number, pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    OFFSET: tl.constexpr, HAS_SCALE: tl.constexpr, FORM: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr,
    CHUNKS: tl.constexpr, MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One segment of one row, twice."""
    program = tl.program_id(0)
    if CHUNKS > 1:
        program = tl.atomic_add(arrived + num_rows, 1, sem="relaxed")
    chunk = program % CHUNKS
    first = chunk * SEGMENT
    row = (program // CHUNKS).to(tl.int64)
    rows = row + tl.arange(0, 1)
    in_rows = tl.full([1], True, tl.int1)
    shifted: tl.constexpr = FORM == "split" and OFFSET != "zero"
    c = tl.zeros([1], tl.float32) + offset_number
    if OFFSET == "row":
        c = tl.load(offset + rows).to(tl.float32)
    listed, stop = first_listed(offsets, indices, row, rows, in_rows, first, LABELS, 1, CHUNKS > 1)
    pos_top, neg_top = tl.zeros([1], tl.float32), tl.zeros([1], tl.float32)
    pos_sum, neg_sum = tl.zeros([1], tl.float32), tl.zeros([1], tl.float32)
    plain = FORM == "split"
    if plain:
        pos_lanes, neg_lanes = tl.zeros([1, BLOCK], tl.float32), tl.zeros([1, BLOCK], tl.float32)
        cursor = listed
        for start in tl.range(0, SEGMENT, BLOCK, loop_unroll_factor=UNROLL):
            columns = first + start + tl.arange(0, BLOCK)
            in_tile = tl.full([1, BLOCK], True, tl.int1) if EVEN else (columns < num_labels)[None, :]
            pos, neg, cursor = plain_terms(
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
                LABELS, LEAN, HAS_WHERE, POS, NEG, shifted, EVEN, 1, BLOCK, "evict_last",
            )  # fmt: skip
            pos, neg = side_terms(pos, neg, LEAN)
            pos_lanes, neg_lanes = pos_lanes + pos, neg_lanes + neg
        pos_sum, neg_sum = tl.reduce((pos_lanes, neg_lanes), 1, add_pairs)
        plain = tl.max(tl.where(pos_sum + neg_sum <= SAFE, 0, 1), axis=0) == 0
    if not plain:
        pos_lanes, neg_lanes = tl.full([1, BLOCK], -float("inf"), tl.float32), tl.full([1, BLOCK], -float("inf"), tl.float32)
        cursor = listed
        for start in range(0, SEGMENT, BLOCK):
            columns = first + start + tl.arange(0, BLOCK)
            in_tile = tl.full([1, BLOCK], True, tl.int1) if EVEN else (columns < num_labels)[None, :]
            a, b, up, down, cursor = tile_exponents(
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
                LABELS, LEAN, HAS_WHERE, POS, NEG, shifted, EVEN, 1, BLOCK, "evict_last",
            )  # fmt: skip
            pos, neg = side_exponents(a, b, up, down, LEAN)
            pos_lanes, neg_lanes = tl.maximum(pos_lanes, pos), tl.maximum(neg_lanes, neg)
        pos_top, neg_top = settle(tl.max(pos_lanes, axis=1), FORM), settle(tl.max(neg_lanes, axis=1), FORM)
        pos_lanes, neg_lanes = tl.zeros([1, BLOCK], tl.float32), tl.zeros([1, BLOCK], tl.float32)
        cursor = listed
        for start in range(0, SEGMENT, BLOCK):
            columns = first + start + tl.arange(0, BLOCK)
            in_tile = tl.full([1, BLOCK], True, tl.int1) if EVEN else (columns < num_labels)[None, :]
            a, b, up, down, cursor = tile_exponents(
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
                LABELS, LEAN, HAS_WHERE, POS, NEG, shifted, EVEN, 1, BLOCK, "evict_last",
            )  # fmt: skip
            pos, neg = careful_terms(a, b, up, down, pos_top, neg_top, LEAN)
            pos, neg = side_terms(pos, neg, LEAN)
            pos_lanes, neg_lanes = pos_lanes + pos, neg_lanes + neg
        pos_sum, neg_sum = tl.reduce((pos_lanes, neg_lanes), 1, add_pairs)

    pos_here, neg_here = pos_top, neg_top
    if CHUNKS > 1:
        publish(partial, rows, chunk, pos_top, pos_sum, neg_top, neg_sum, in_rows, CHUNKS)
        wait_for_row(arrived, row, CHUNKS)
        pos_top, pos_sum = merge_chunks(partial, row, FORM, CHUNKS, MANY)
        neg_top, neg_sum = merge_chunks(partial + 2, row, FORM, CHUNKS, MANY)
    value, slope, pos_factor, neg_factor = finish(pos_top, pos_sum, neg_top, neg_sum, c, FORM)
    mine = tl.zeros([1], tl.int32) + chunk == 0
    tl.store(out_value + rows, value, mask=mine)
    tl.store(out_slope + rows, slope, mask=mine)
    scale = tl.zeros([1], tl.float32) + scale_number
    if HAS_SCALE:
        scale = tl.load(row_scale + rows).to(tl.float32)
    pos_factor = pos_factor * exp(distance(pos_here, pos_top)) * scale
    neg_factor = neg_factor * exp(distance(neg_here, neg_top)) * scale
    cursor = listed
    for start in tl.range(0, SEGMENT, BLOCK, loop_unroll_factor=UNROLL):
        columns = first + start + tl.arange(0, BLOCK)
        in_tile = tl.full([1, BLOCK], True, tl.int1) if EVEN else (columns < num_labels)[None, :]
        if plain:
            pos, neg, cursor = plain_terms(
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
                LABELS, LEAN, HAS_WHERE, POS, NEG, shifted, EVEN, 1, BLOCK, "evict_first",
            )  # fmt: skip
        else:
            a, b, up, down, cursor = tile_exponents(
                x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
                pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
                LABELS, LEAN, HAS_WHERE, POS, NEG, shifted, EVEN, 1, BLOCK, "evict_first",
            )  # fmt: skip
            pos, neg = careful_terms(a, b, up, down, pos_here, neg_here, LEAN)
        grad = tile_gradient(pos, neg, pos_factor, neg_factor, LEAN)
        if HAS_WHERE:
            counts = tl.load(where + rows[:, None] * where_stride + columns[None, :], mask=in_tile, other=0) != 0
            grad = tl.where(counts, grad, 0.0)
        target = out_grad + rows[:, None] * num_labels + columns[None, :]
        tl.store(target, grad.to(out_grad.dtype.element_ty), mask=in_tile, eviction_policy="evict_first")
