"""Kernels that apply a gradient to the weights of a linear head (CUDA), with stochastic rounding to bfloat16.

The noise of an entry depends on a 64-bit seed, a 64-bit step, the number of its label and of its column, and on nothing else:
not on tiles, chunks or devices. ``manyhot.engines.linear.rounding`` has the same in plain torch.
"""

from __future__ import annotations

import triton
import triton.language as tl

GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
SECOND = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def mix(x):
    """The finaliser of splitmix64: every bit of the result depends on every bit of ``x``."""
    x = (x ^ (x >> 30)) * tl.full([], FIRST, tl.uint64)
    x = (x ^ (x >> 27)) * tl.full([], SECOND, tl.uint64)
    return x ^ (x >> 31)


@triton.jit
def noise(seed, step, labels, columns):
    """Integers from 0 to 65535, ``[labels, columns]``."""
    golden = tl.full([], GOLDEN, tl.uint64)
    key = mix(tl.load(seed).to(tl.uint64) + tl.load(step).to(tl.uint64) * golden)
    keys = mix(key + labels.to(tl.uint64) * golden)
    low, high = keys.to(tl.uint32)[:, None], (keys >> 32).to(tl.uint32)[:, None]
    h = columns.to(tl.uint32)[None, :] + low
    h = (h ^ (h >> 16)) * tl.full([], 0x7FEB352D, tl.uint32)
    h = (h ^ (h >> 15) ^ high) * tl.full([], 0x846CA68B, tl.uint32)
    return (h ^ (h >> 16)) >> 16


@triton.jit
def rounded(x, seed, step, labels, columns, kind: tl.constexpr, ROUND: tl.constexpr):
    """``x`` in the type of the weights: bfloat16 up or down by chance, so that its mean is ``x``; float32 as it is."""
    if ROUND:
        bits = x.to(tl.uint32, bitcast=True)
        up = (bits + noise(seed, step, labels, columns)) & 0xFFFF0000
        # Infinities and NaN are unchanged.
        bits = tl.where((bits & 0x7F800000) == 0x7F800000, bits, up)
        x = bits.to(tl.float32, bitcast=True)
    return x.to(kind)


@triton.jit
def row_update_kernel(
    weight, grad, squares, seed, step, rate,
    num_rows, first, offset, width, weight_stride, grad_stride, decay, epsilon,
    KIND: tl.constexpr, ROUND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``KIND`` "sgd" or "adagrad" on some rows of the weights, given their gradient. Each row has one sum of squares.

    The rows start at row ``first`` of the weights, and row 0 of the weights is that of the label ``offset``.
    """
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = (rows < num_rows)[:, None] & (columns < width)[None, :]
    g = tl.load(grad + rows[:, None] * grad_stride + columns[None, :], mask=inside, other=0).to(tl.float32)
    target = weight + (first + rows)[:, None] * weight_stride + columns[None, :]
    w = tl.load(target, mask=inside, other=0).to(tl.float32)
    lr = tl.load(rate)
    w = w * (1.0 - lr * decay)
    if KIND == "adagrad":
        place = squares + first + rows
        total = tl.load(place, mask=rows < num_rows, other=0) + tl.sum(g * g, axis=1) / width
        tl.store(place, total, mask=rows < num_rows)
        g = g / (tl.sqrt(total) + epsilon)[:, None]
    w = w - lr * g
    tl.store(target, rounded(w, seed, step, offset + first + rows, columns, weight.dtype.element_ty, ROUND), mask=inside)
