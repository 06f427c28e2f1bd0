"""Rows that fit on chip: the loss and its gradient in one read and one write of the scores (CUDA).

The exponentials that made the sums are also the gradient, so they stay in registers and nothing is read twice. The split
form sums plain exponentials, with m = 0; only where a sum comes near the end of the range is the tile read again and the
largest exponent taken out. (Its zero class makes what underflows irrelevant.) Short rows go several to a program.

The stages "sides" and "gradient" are the two halves for everybody else; there a row may be cut into chunks.
"""

from __future__ import annotations

import triton
import triton.language as tl

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


@triton.jit
def row_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, offset, row_scale, grad_pos, grad_neg,
    out_value, out_slope, out_grad, state, partial, arrived,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    offset_number, scale_number, pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    OFFSET: tl.constexpr, HAS_SCALE: tl.constexpr, FORM: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr,
    CHUNKS: tl.constexpr, MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One tile. STAGE is "fused" (loss and gradient), "sides" (four numbers a row out) or "gradient" (the four in)."""
    chunk = tl.program_id(0) % CHUNKS
    row = (tl.program_id(0) // CHUNKS).to(tl.int64) * ROWS
    rows = row + tl.arange(0, ROWS)
    columns = chunk * BLOCK + tl.arange(0, BLOCK)
    in_rows = rows < num_rows
    in_tile = in_rows[:, None] & (columns < num_labels)[None, :]
    if EVEN:
        in_rows, in_tile = tl.full([ROWS], True, tl.int1), tl.full([ROWS, BLOCK], True, tl.int1)
    shifted: tl.constexpr = FORM == "split" and OFFSET != "zero"
    c = tl.zeros([ROWS], tl.float32) + offset_number
    if OFFSET == "row":
        c = tl.load(offset + rows, mask=in_rows, other=0).to(tl.float32)
    cursor, stop = first_listed(offsets, indices, row, rows, in_rows, chunk * BLOCK, LABELS, ROWS, CHUNKS > 1)
    pos_top, neg_top = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
    plain = STAGE == "fused" and FORM == "split"
    if plain:
        pos, neg, _ = plain_terms(
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
            LABELS, LEAN, HAS_WHERE, POS, NEG, shifted, EVEN, ROWS, BLOCK, "",
        )  # fmt: skip
        pos_sum, neg_sum = tl.reduce(side_terms(pos, neg, LEAN), 1, add_pairs)
        plain = tl.max(tl.where(pos_sum + neg_sum <= SAFE, 0, 1), axis=0) == 0
    else:
        pos, neg = tl.zeros([ROWS, BLOCK], tl.float32), tl.zeros([ROWS, BLOCK], tl.float32)
        pos_sum, neg_sum = pos_top, neg_top
    if not plain:
        a, b, up, down, _ = tile_exponents(
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, num_labels, rows, columns, in_tile, c, cursor, stop,
            LABELS, LEAN, HAS_WHERE, POS, NEG, shifted, EVEN, ROWS, BLOCK, "",
        )  # fmt: skip
        if STAGE == "gradient":
            pos_top = tl.load(state + rows, mask=in_rows, other=0)
            neg_top = tl.load(state + 2 * num_rows + rows, mask=in_rows, other=0)
        else:
            pos_u, neg_u = side_exponents(a, b, up, down, LEAN)
            pos_top, neg_top = settle(tl.max(pos_u, axis=1), FORM), settle(tl.max(neg_u, axis=1), FORM)
        pos, neg = careful_terms(a, b, up, down, pos_top, neg_top, LEAN)
        if STAGE != "gradient":
            pos_sum, neg_sum = tl.reduce(side_terms(pos, neg, LEAN), 1, add_pairs)
    if STAGE == "sides":
        publish(partial, rows, chunk, pos_top, pos_sum, neg_top, neg_sum, in_rows, CHUNKS)
    else:
        if STAGE == "fused":
            value, slope, pos_factor, neg_factor = finish(pos_top, pos_sum, neg_top, neg_sum, c, FORM)
            tl.store(out_value + rows, value, mask=in_rows)
            tl.store(out_slope + rows, slope, mask=in_rows)
            scale = tl.zeros([ROWS], tl.float32) + scale_number
            if HAS_SCALE:
                scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
            pos_factor, neg_factor = pos_factor * scale, neg_factor * scale
        else:
            pos_total = tl.load(state + num_rows + rows, mask=in_rows, other=0)
            neg_total = tl.load(state + 3 * num_rows + rows, mask=in_rows, other=0)
            pos_factor = tl.load(grad_pos + rows, mask=in_rows, other=0) / tl.where(pos_total == 0, 1.0, pos_total)
            neg_factor = tl.load(grad_neg + rows, mask=in_rows, other=0) / tl.where(neg_total == 0, 1.0, neg_total)
        grad = tile_gradient(pos, neg, pos_factor, neg_factor, LEAN)
        if HAS_WHERE:
            counts = tl.load(where + rows[:, None] * where_stride + columns[None, :], mask=in_tile, other=0) != 0
            grad = tl.where(counts, grad, 0.0)
        tl.store(out_grad + rows[:, None] * num_labels + columns[None, :], grad.to(out_grad.dtype.element_ty), mask=in_tile)


@triton.jit
def scale_kernel(grad, factor, size, BLOCK: tl.constexpr):
    """``grad *= factor`` with the factor on the device; nothing is touched where it is 1."""
    by = tl.load(factor).to(tl.float32)
    if by != 1.0:
        for start in range(tl.program_id(0).to(tl.int64) * BLOCK, size, tl.num_programs(0).to(tl.int64) * BLOCK):
            place = start + tl.arange(0, BLOCK)
            value = tl.load(grad + place, mask=place < size).to(tl.float32)
            tl.store(grad + place, (value * by).to(grad.dtype.element_ty), mask=place < size)
