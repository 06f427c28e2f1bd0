"""Counts of the scores of a row that are above some of them, in one read of the scores (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=("offsets", "own"))
def rank_kernel(
    x, offsets, own, at_least, above, num_rows, num_labels, x_stride, CHUNKS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One tile of a row: for each of the row's entries in ``own``, how many scores are at least as high, and how many are
    higher. The counts of all tiles are added up."""
    program = tl.program_id(0)
    row = tl.cast(program // CHUNKS, tl.int64)
    columns = program % CHUNKS * BLOCK + tl.arange(0, BLOCK)
    # NaN past the end of the row: every comparison with it is false.
    s = tl.load(x + row * x_stride + columns, mask=columns < num_labels, other=float("nan"))
    entry, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
    while entry < stop:
        score = tl.load(own + entry)
        reached, beaten = tl.reduce(((s >= score).to(tl.int32), (s > score).to(tl.int32)), 0, _add_pairs)
        tl.atomic_add(at_least + entry, reached.to(tl.int64), sem="relaxed")
        tl.atomic_add(above + entry, beaten.to(tl.int64), sem="relaxed")
        entry += 1


@triton.jit
def _add_pairs(a, b, c, d):
    return a + c, b + d
