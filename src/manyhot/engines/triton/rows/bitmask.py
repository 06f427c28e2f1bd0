"""The kernel that converts index lists to a bitmask with one bit per score (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl

# Rows per program, and list entries per row processed at once.
ROWS_PER_PROGRAM = 32
AT_ONCE = tl.constexpr(8)


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=("offsets", "indices"))
def bitmask_kernel(bits, offsets, indices, num_rows, num_labels, ROWS: tl.constexpr):
    """Set the bits of the listed labels of ROWS rows; ``bits`` is zero-initialised."""
    rows = tl.cast(tl.program_id(0), tl.int64) * ROWS + tl.arange(0, ROWS)
    in_rows = rows < num_rows
    start = tl.load(offsets + rows, mask=in_rows, other=0)
    left = (tl.load(offsets + rows + 1, mask=in_rows, other=0) - start).to(tl.int32)
    lanes = tl.arange(0, AT_ONCE)[None, :]
    done = 0
    while done < tl.max(left, axis=0):
        label = tl.load(indices + start[:, None] + done + lanes, mask=done + lanes < left[:, None], other=-1)
        place = rows[:, None] * num_labels + label
        # Entries out of range are ignored.
        here = (label >= 0) & (label < num_labels)
        tl.atomic_or(bits + (place >> 5), (1 << (place & 31)).to(tl.int32), mask=here, sem="relaxed")
        done += AT_ONCE
