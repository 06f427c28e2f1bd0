"""Index lists with words (CUDA): listed labels are left out of the words and processed separately.

They are few, so all words are treated as negatives and need no labels. A listed score is set to -inf there, its term is 0, and
its gradient is overwritten after all threads have written theirs.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import exp
from manyhot.engines.triton.packed.words import leave_out
from manyhot.engines.triton.rows.lists import AT_ONCE


@triton.jit
def take_listed(
    s, tail_s, first, x, indices, end, cursor, stop, ahead, limit,
    WORDS: tl.constexpr, TAIL: tl.constexpr, RAGGED: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """A row's words from ``first`` on, and the TAIL after them, without the labels listed from ``cursor`` to ``stop``.

    The row starts at ``x``, and labels from ``end`` on are not summed. If RAGGED, the words begin ``ahead`` labels after the
    start of the row and hold ``limit`` labels.

    Returns:
        Both tiles, -inf at listed labels, and the sum ``[1]`` of the listed labels' terms.
    """
    words = first + tl.arange(0, WORDS)[None, :]
    pos = tl.zeros([AT_ONCE], tl.float32)
    left = (stop - cursor).to(tl.int32)
    at = indices + cursor
    while left > 0:
        own, _, _ = _read_listed(x, at, left, end)
        a, b = _entry(at, 0, left, ahead, limit, RAGGED), _entry(at, 1, left, ahead, limit, RAGGED)
        c, d = _entry(at, 2, left, ahead, limit, RAGGED), _entry(at, 3, left, ahead, limit, RAGGED)
        e, f = _entry(at, 4, left, ahead, limit, RAGGED), _entry(at, 5, left, ahead, limit, RAGGED)
        g, h = _entry(at, 6, left, ahead, limit, RAGGED), _entry(at, 7, left, ahead, limit, RAGGED)
        s = leave_out(s, words, a, b, c, d, e, f, g, h, PER, HALF)
        if TAIL > 0:
            tail_words = WORDS + tl.arange(0, TAIL)[None, :]
            tail_s = leave_out(tail_s, tail_words, a, b, c, d, e, f, g, h, PER, HALF)
        pos += exp(-own)
        left -= AT_ONCE
        at += AT_ONCE
    return s, tail_s, tl.zeros([1], tl.float32) + tl.sum(pos, axis=0)


@triton.jit
def _entry(at, step: tl.constexpr, left, ahead, limit, RAGGED: tl.constexpr):
    label = tl.load(at + step, mask=step < left, other=-1).to(tl.int32)
    if RAGGED:
        label = label - ahead
        label = tl.where((label >= 0) & (label < limit), label, -1)
    return label


@triton.jit
def store_taken(out_grad, x, indices, end, factor, cursor, stop):
    """Write the gradient of a row's listed labels, after all threads have written theirs."""
    tl.debug_barrier()
    left = (stop - cursor).to(tl.int32)
    at = indices + cursor
    while left > 0:
        own, place, there = _read_listed(x, at, left, end)
        tl.store(out_grad + place, (-exp(-own) * factor).to(out_grad.dtype.element_ty), mask=there)
        left -= AT_ONCE
        at += AT_ONCE


@triton.jit
def _read_listed(x, at, left, end):
    """The next listed labels: scores (+inf where there is none), columns, and which of them exist."""
    lanes = tl.arange(0, AT_ONCE)
    place = tl.load(at + lanes, mask=lanes < left, other=-1).to(tl.int32)
    there = (place >= 0) & (place < end)
    return tl.load(x + place, mask=there, other=float("inf")).to(tl.float32), place, there
