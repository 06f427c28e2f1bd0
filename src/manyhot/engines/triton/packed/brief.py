"""The loss of a row and the factors of its gradient from sums that are not near the limits of the range, in few instructions
(CUDA).

The general form (``rows.merge.conclude``) takes logarithms that are exact everywhere and sums in units of ``e^m``; for a row of
some hundred labels that was a quarter of all instructions.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import inverse, log1p_fast
from manyhot.engines.triton.rows.totals import store_values


@triton.jit
def conclude_briefly(
    pos, neg, out_value, out_slope, row_scale, scale_number, row, rows, in_rows,
    OFFSET: tl.constexpr, SCALE: tl.constexpr, FORM: tl.constexpr, ROWS: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """``rows.merge.conclude`` for sums whose product is finite, with the offset multiplied in (split) or without one (joint).

    split   log(1 + p) + log(1 + n)     factors  1 / (1 + p), 1 / (1 + n)
    joint   log(1 + p n)                factors  n / (1 + p n), p / (1 + p n)
    """
    if FORM == "split":
        value = log1p_fast(pos + neg + pos * neg)
        pos_factor, neg_factor = inverse(1.0 + pos), inverse(1.0 + neg)
        slope = pos * pos_factor - neg * neg_factor
    else:
        value = log1p_fast(pos * neg)
        share = inverse(1.0 + pos * neg)
        slope = pos * neg * share
        pos_factor, neg_factor = neg * share, pos * share
    if OFFSET == "row":
        tl.store(out_slope + rows, slope, mask=in_rows)
    scale = tl.zeros([ROWS], tl.float32) + scale_number
    if SCALE == "rows":
        scale = tl.load(row_scale + rows, mask=in_rows, other=0).to(tl.float32)
    elif SCALE == "one":
        scale = scale * tl.load(row_scale)
    store_values(out_value, value, scale, row, rows, in_rows, 0, SCALE, 1, ROWS, TOTAL)
    return pos_factor * scale, neg_factor * scale
