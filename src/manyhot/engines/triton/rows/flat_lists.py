"""Labelwise losses on index lists, over tiles that know no row ends (CUDA).

The lists become bits first, one for each score (``mark_kernel``). Then tiles are cut from the scores as one line, so that every
number of labels is read in groups of 16 bytes, and a byte of bits comes with each.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.rows.costs import label_cost

# Rows that a program marks, and entries of each that it takes at once.
MARKED_ROWS = 32
AT_ONCE = tl.constexpr(8)


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=("offsets", "indices"))
def mark_kernel(bits, offsets, indices, num_rows, num_labels, ROWS: tl.constexpr):
    """Set the bits of the listed labels of some rows, in words of 32 that are 0 before."""
    rows = tl.cast(tl.program_id(0), tl.int64) * ROWS + tl.arange(0, ROWS)
    in_rows = rows < num_rows
    start = tl.load(offsets + rows, mask=in_rows, other=0)
    left = (tl.load(offsets + rows + 1, mask=in_rows, other=0) - start).to(tl.int32)
    lanes = tl.arange(0, AT_ONCE)[None, :]
    done = 0
    while done < tl.max(left, axis=0):
        label = tl.load(indices + start[:, None] + done + lanes, mask=done + lanes < left[:, None], other=-1)
        place = rows[:, None] * num_labels + label
        # What is no label sets no bit, wherever it came from.
        here = (label >= 0) & (label < num_labels)
        tl.atomic_or(bits + (place >> 5), (1 << (place & 31)).to(tl.int32), mask=here, sem="relaxed")
        done += AT_ONCE


@triton.jit(do_not_specialize=("size",))
def flat_lists_kernel(
    x, bits, out_value, out_grad, size, scale_number, pos_number, neg_number, gamma_pos, gamma_neg, margin,
    KIND: tl.constexpr, HAS_MARGIN: tl.constexpr, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr,
    WEIGHTED: tl.constexpr, SKIPS: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One tile: the sum of its costs, and its gradient. WEIGHTED if a weight is not 1; SKIPS if one is 0."""
    GROUP: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    program = tl.program_id(0)
    begin = tl.cast(program, tl.int64) * BLOCK
    groups, lanes = tl.arange(0, BLOCK // GROUP)[:, None], tl.arange(0, GROUP)[None, :]
    place = groups * GROUP + lanes
    there = tl.full([BLOCK // GROUP, GROUP], True, tl.int1) if EVEN else begin + place < size
    s = tl.load(x + begin + place, mask=there, other=0).to(tl.float32)
    # The bits have room for whole tiles.
    near = tl.load(tl.cast(bits, tl.pointer_type(tl.uint8)) + begin // 8 + groups * GROUP // 8).to(tl.int32)
    if GROUP == 4:
        near = near >> (groups % 2 * 4)
    t = (near & (1 << lanes)) != 0
    weight = tl.where(t, pos_number, neg_number)
    if SKIPS:
        # Entries of weight 0 are skipped, whatever their score.
        s = tl.where(weight > 0, s, 0.0)
    cost, slope = label_cost(tl.where(t, -s, s), t, gamma_pos, gamma_neg, margin, KIND, HAS_MARGIN, POWER_POS, POWER_NEG)
    grad = tl.where(t, -scale_number, scale_number) * slope
    if WEIGHTED:
        cost, grad = cost * weight, grad * weight
    if not EVEN:
        cost = tl.where(there, cost, 0.0)
    tl.store(out_value + program, tl.sum(tl.sum(cost, axis=1), axis=0))
    tl.store(out_grad + begin + place, grad.to(out_grad.dtype.element_ty), mask=there)
