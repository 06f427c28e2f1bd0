"""What is done with a finished loss and gradient (CUDA): the values of the rows to one, and the gradient times a factor."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def total_kernel(values, row_scale, out, size, scale_number, divisor, HAS_SCALE: tl.constexpr, BLOCK: tl.constexpr):
    """``sum scale values / divisor`` by one program, always in the same order; rows with a scale of 0 are left out."""
    lanes = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        place = start + tl.arange(0, BLOCK)
        value = tl.load(values + place, mask=place < size, other=0)
        if HAS_SCALE:
            scale = tl.load(row_scale + place, mask=place < size, other=0).to(tl.float32)
            value = tl.where(scale == 0, 0.0, value * scale)
        lanes += value
    tl.store(out, tl.div_rn(tl.sum(lanes, axis=0) * scale_number, divisor))


@triton.jit
def scale_kernel(grad, factor, size, BLOCK: tl.constexpr):
    """``grad *= factor`` with the factor on the device; nothing is touched where it is 1."""
    by = tl.load(factor).to(tl.float32)
    if by != 1.0:
        for start in range(tl.program_id(0).to(tl.int64) * BLOCK, size, tl.num_programs(0).to(tl.int64) * BLOCK):
            place = start + tl.arange(0, BLOCK)
            value = tl.load(grad + place, mask=place < size).to(tl.float32)
            tl.store(grad + place, (value * by).to(grad.dtype.element_ty), mask=place < size)
