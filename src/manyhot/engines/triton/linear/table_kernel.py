"""The kernel of ``table`` (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def table_update_kernel(
    weight, columns, order, rows, values, grad, squares, rate,
    size, width, weight_stride, grad_stride,
    ENTRIES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program for each entry; the first entry of a column sums ``value * grad[row]`` of all of them and moves the row.

    ``columns`` rises; ``order`` has the place of each entry in ``rows`` and ``values``.
    """
    entry = tl.program_id(0).to(tl.int64)
    column = tl.load(columns + entry).to(tl.int64)
    before = tl.load(columns + entry - 1, mask=entry > 0, other=-1).to(tl.int64)
    if column != before:
        places = tl.arange(0, BLOCK)
        inside = places < width
        total = tl.zeros([BLOCK], tl.float32)
        going = 1
        while going == 1:
            at = entry + tl.arange(0, ENTRIES)
            own = tl.load(columns + at, mask=at < size, other=-1).to(tl.int64) == column
            source = tl.load(order + at, mask=own, other=0)
            row = tl.load(rows + source, mask=own, other=0).to(tl.int64)
            value = tl.load(values + source, mask=own, other=0.0).to(tl.float32)
            pull = tl.load(grad + row[:, None] * grad_stride + places[None, :], mask=own[:, None] & inside[None, :], other=0.0)
            total += tl.sum(pull.to(tl.float32) * value[:, None], axis=0)
            entry += ENTRIES
            going = tl.min(own.to(tl.int32), axis=0)
        square = tl.load(squares + column) + tl.sum(total * total, axis=0) / width
        tl.store(squares + column, square)
        target = weight + column * weight_stride + places
        step = tl.load(rate) / tl.maximum(tl.sqrt(square), 1e-30)
        tl.store(target, tl.load(target, mask=inside, other=0.0) - step * total, mask=inside)
