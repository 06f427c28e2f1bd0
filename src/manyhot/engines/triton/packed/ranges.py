"""Which sums of unshifted exponentials are exact, by form and offset (CUDA).

The split form has a zero class on each side, so that terms that underflow do not matter; only sums that are too large are
recomputed. The joint form multiplies both sides, so sums that are too small are recomputed too, unless the side is empty.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.rows.tiles import SAFE

# Sums of the joint form are exact from this size on: terms that underflow are 1e-38 or less.
LOWEST = tl.constexpr(1e-24)
# The product of two sums up to this size is finite; in the joint form, far from the limits of the range.
BRIEF_SAFE, BRIEF_JOINT_SAFE = tl.constexpr(1e18), tl.constexpr(1e14)
# A threshold up to this size multiplies the sums; beyond, it is subtracted from every score.
NEAR = tl.constexpr(20.0)


@triton.jit
def read_offset(offset, offset_number, num_rows, rows, in_rows, OFFSET: tl.constexpr, ROWS: tl.constexpr):
    """The offset of each row, and a 0 that the assembler cannot recognise."""
    c = tl.zeros([ROWS], tl.float32)
    hidden = offset_number
    if OFFSET == "row":
        c = tl.load(offset + rows, mask=in_rows, other=0).to(tl.float32)
    elif OFFSET == "number":
        c = c + offset_number
        hidden = tl.where(num_rows < 0, 1.0, 0.0)
    return c, hidden


@triton.jit
def has_no_label(labels, smoothing):
    """Which rows have no positive in a tile. Labels may be single, words or bits."""
    return (tl.max((labels != 0).to(tl.int32), axis=1) == 0) & (smoothing == 0)


@triton.jit
def is_in_range(pos_sum, neg_sum, empty, c, in_rows, SHIFTED: tl.constexpr, FORM: tl.constexpr, BRIEF: tl.constexpr):
    """Whether the sums of all rows of a tile are exact, and if BRIEF their product too; ``empty`` marks rows without a
    positive."""
    LIMIT: tl.constexpr = SAFE if not BRIEF else (BRIEF_SAFE if FORM == "split" else BRIEF_JOINT_SAFE)
    fits = pos_sum + neg_sum <= LIMIT
    if SHIFTED:
        fits = fits & (tl.abs(c) <= NEAR)
    if FORM == "joint":
        fits = (fits & tl.where(empty, True, pos_sum >= LOWEST) & (neg_sum >= LOWEST)) | ~in_rows
    return tl.max(tl.where(fits, 0, 1), axis=0) == 0
