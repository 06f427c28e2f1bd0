"""The kernel that converts index lists to a bitmask with one bit per score (CUDA).

A program has some rows, whose bits fill whole words, or a part of their words if they are many. It first clears its words.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.rows.early import start_early

# Rows per program: the bits of 32 rows of any length fill whole words. Words per program at most. Words cleared at once.
ROWS_PER_PROGRAM = 32
WORDS_PER_PROGRAM = 4096
CLEARED = tl.constexpr(1024)
# List entries per row processed at once.
AT_ONCE = tl.constexpr(8)


@triton.jit(do_not_specialize=("num_rows", "num_labels", "num_words"), do_not_specialize_on_alignment=("offsets", "indices"))
def bitmask_kernel(
    bits, offsets, indices, num_rows, num_labels, num_words, ROWS: tl.constexpr, PARTS: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """The bits of ROWS rows in PARTS programs, up to WORDS words each. The words after those of the last row are 0."""
    start_early()
    group, part = tl.cast(tl.program_id(0) // PARTS, tl.int64), tl.program_id(0) % PARTS
    first, last = group * num_labels, (group + 1) * num_labels
    if group == (num_rows - 1) // ROWS:
        last = tl.cast(num_words, tl.int64)
    begin = first + part * WORDS
    end = tl.where(part == PARTS - 1, last, tl.minimum(begin + WORDS, last))
    for start in range(begin, end, CLEARED):
        words = start + tl.arange(0, CLEARED)
        tl.store(bits + words, tl.zeros([CLEARED], tl.int32), mask=words < end)
    tl.debug_barrier()
    rows = group * ROWS + tl.arange(0, ROWS)
    in_rows = rows < num_rows
    start = tl.load(offsets + rows, mask=in_rows, other=0)
    left = (tl.load(offsets + rows + 1, mask=in_rows, other=0) - start).to(tl.int32)
    lanes = tl.arange(0, AT_ONCE)[None, :]
    done = 0
    while done < tl.max(left, axis=0):
        label = tl.load(indices + start[:, None] + done + lanes, mask=done + lanes < left[:, None], other=-1)
        place = rows[:, None] * num_labels + label
        word = place >> 5
        # Entries out of range are ignored.
        here = (label >= 0) & (label < num_labels) & (word >= begin) & (word < end)
        tl.atomic_or(bits + word, (1 << (place & 31)).to(tl.int32), mask=here, sem="relaxed")
        done += AT_ONCE
