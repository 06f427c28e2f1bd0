"""The kernels of ``table`` (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl

# The column of a padding entry, which fills up a batch of fixed size. It sorts last.
NO_COLUMN = tl.constexpr(2**31 - 1)


@triton.jit
def bag_kernel(
    table, columns, offsets, values, out, width, table_stride, out_stride,
    VALUED: tl.constexpr, ENTRIES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``out[r]``: the sum of ``value * table[column]`` over the entries of row r; entries after the last row are ignored."""
    row = tl.program_id(0).to(tl.int64)
    entry, stop = tl.load(offsets + row).to(tl.int64), tl.load(offsets + row + 1).to(tl.int64)
    places = tl.arange(0, BLOCK)
    inside = places < width
    total = tl.zeros([BLOCK], tl.float32)
    while entry < stop:
        at = entry + tl.arange(0, ENTRIES)
        here = at < stop
        column = tl.load(columns + at, mask=here, other=0).to(tl.int64)
        source = table + column[:, None] * table_stride + places[None, :]
        part = tl.load(source, mask=here[:, None] & inside[None, :], other=0.0).to(tl.float32)
        if VALUED:
            part = part * tl.load(values + at, mask=here, other=0.0).to(tl.float32)[:, None]
        total += tl.sum(part, axis=0)
        entry += ENTRIES
    tl.store(out + row * out_stride + places, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def move_row(weight, squares, rate, total, column, width, weight_stride, BLOCK: tl.constexpr):
    """Row-wise AdaGrad on one row by its whole gradient ``total``."""
    places = tl.arange(0, BLOCK)
    inside = places < width
    square = tl.load(squares + column) + tl.sum(total * total, axis=0) / width
    tl.store(squares + column, square)
    target = weight + column * weight_stride + places
    step = tl.load(rate) / tl.maximum(tl.sqrt(square), 1e-30)
    tl.store(target, tl.load(target, mask=inside, other=0.0) - step * total, mask=inside)


@triton.jit(do_not_specialize=["size"])
def table_update_kernel(
    weight, columns, order, rows, values, grad, squares, rate, partial,
    size, width, weight_stride, grad_stride,
    PART: tl.constexpr, ENTRIES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per entry. The first entry of a column in a part sums ``value * grad[row]`` of the column there.

    A part is PART entries. ``columns`` is sorted; ``order`` has the position of each entry in ``rows`` and ``values``. A column
    inside one part is updated at once. The sums of other columns go to ``partial [parts, 2, width]``, for
    ``table_join_kernel``: slot 0 of a part has the sum of its first column, slot 1 that of a later column that continues in the
    next part.
    """
    entry = tl.program_id(0).to(tl.int64)
    column = tl.load(columns + entry).to(tl.int64)
    before = tl.load(columns + entry - 1, mask=entry > 0, other=-1).to(tl.int64)
    if (column != NO_COLUMN) & ((column != before) | (entry % PART == 0)):
        part = entry // PART
        limit = tl.minimum((part + 1) * PART, size)
        goes_on = tl.load(columns + limit, mask=limit < size, other=-1).to(tl.int64) == column
        slot = 2 * part + (entry % PART != 0).to(tl.int64)
        places = tl.arange(0, BLOCK)
        inside = places < width
        total = tl.zeros([BLOCK], tl.float32)
        going = 1
        while going == 1:
            at = entry + tl.arange(0, ENTRIES)
            own = tl.load(columns + at, mask=at < limit, other=-1).to(tl.int64) == column
            source = tl.load(order + at, mask=at < limit, other=0)
            row = tl.load(rows + source, mask=at < limit, other=0).to(tl.int64)
            value = tl.load(values + source, mask=own, other=0.0).to(tl.float32)
            pull = tl.load(grad + row[:, None] * grad_stride + places[None, :], mask=own[:, None] & inside[None, :], other=0.0)
            total += tl.sum(pull.to(tl.float32) * value[:, None], axis=0)
            entry += ENTRIES
            going = tl.min(own.to(tl.int32), axis=0)
        if (column == before) | goes_on:
            tl.store(partial + slot * width + places, total, mask=inside)
        else:
            move_row(weight, squares, rate, total, column, width, weight_stride, BLOCK)


@triton.jit(do_not_specialize=["size"])
def table_join_kernel(
    weight, columns, squares, rate, partial,
    size, width, weight_stride,
    PART: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per part except the last: adds up the sums of a column that starts in it and continues in the next one."""
    part = tl.program_id(0).to(tl.int64)
    first, limit = part * PART, (part + 1) * PART
    column = tl.load(columns + limit - 1).to(tl.int64)
    before = tl.load(columns + first - 1, mask=part > 0, other=-1).to(tl.int64)
    if (tl.load(columns + limit).to(tl.int64) == column) & (before != column) & (column != NO_COLUMN):
        slot = 2 * part + (tl.load(columns + first).to(tl.int64) != column).to(tl.int64)
        places = tl.arange(0, BLOCK)
        inside = places < width
        total = tl.load(partial + slot * width + places, mask=inside, other=0.0)
        going = 1
        while going == 1:
            part += 1
            at = (part + tl.arange(0, PARTS)) * PART
            own = tl.load(columns + at, mask=at < size, other=-1).to(tl.int64) == column
            source = partial + (2 * (part + tl.arange(0, PARTS)) * width)[:, None] + places[None, :]
            total += tl.sum(tl.load(source, mask=own[:, None] & inside[None, :], other=0.0), axis=0)
            part += PARTS - 1
            going = tl.min(own.to(tl.int32), axis=0)
        move_row(weight, squares, rate, total, column, width, weight_stride, BLOCK)
