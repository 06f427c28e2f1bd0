"""The kernel of ``best`` (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def group_maxima_kernel(
    scores, bias, where, out,
    num_rows, num_labels, num_groups, stride, where_stride, col_blocks,
    HAS_BIAS: tl.constexpr, HAS_WHERE: tl.constexpr, NAN_FIRST: tl.constexpr,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """``out[r, g]``: the key of the largest of ``scores + bias`` among the labels of group g that count, int64. Keys sort like
    the maxima; of equal maxima, the first group has the highest key. NaN is infinite if NAN_FIRST, else it does not count."""
    program = tl.program_id(0)
    rows = (program // col_blocks * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    first = program % col_blocks * GROUPS
    labels = first * GROUP + tl.arange(0, GROUPS * GROUP)
    counts = labels < num_labels
    inside = (rows < num_rows)[:, None] & counts[None, :]
    s = tl.load(scores + rows[:, None] * stride + labels[None, :], mask=inside, other=-float("inf")).to(tl.float32)
    if HAS_BIAS:
        s += tl.load(bias + labels, mask=counts, other=0).to(tl.float32)[None, :]
    # ``tl.max`` would ignore NaN.
    s = tl.where(s == s, s, float("inf") if NAN_FIRST else -float("inf"))
    if HAS_WHERE:
        counted = tl.load(where + rows[:, None] * where_stride + labels[None, :], mask=inside, other=0) != 0
        s = tl.where(counted, s, -float("inf"))
    best = tl.max(tl.reshape(s, [ROWS, GROUPS, GROUP]), axis=2)
    groups = first + tl.arange(0, GROUPS)
    # As integers, the bits of floats sort like the floats if those of negative ones are flipped. Both zeros become +0.
    bits = tl.where(best == 0, 0.0, best).to(tl.int32, bitcast=True)
    key = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    target = out + rows[:, None] * num_groups + groups[None, :]
    key = (key << 32) | (0xFFFFFFFF - groups.to(tl.int64))[None, :]
    tl.store(target, key, mask=(rows < num_rows)[:, None] & (groups < num_groups)[None, :])
