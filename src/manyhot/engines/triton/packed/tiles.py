"""Tiles of words: scores and labels of rows as they are read, their sums, and the remainder of a row at either end (CUDA).

If UNIT says that rows are aligned to a word (two words with lists), they may have any stride. Otherwise they are RAGGED:
scores, labels and gradient are contiguous, words are those of the whole tensor, and the remainder of a row at either end, at
most seven labels, is processed separately.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import exp
from manyhot.engines.triton.packed.ptx import NOTHING_2, NOTHING_4, NOTHING_H
from manyhot.engines.triton.packed.words import bits_gradient, negative_gradient, word_gradient, word_sums
from manyhot.engines.triton.rows.tiles import add_pairs


@triton.jit
def read_words(
    x, labels, num_labels, x_stride, label_stride, rows, in_rows, lead, first,
    LABELS: tl.constexpr, HARD: tl.constexpr, RAGGED: tl.constexpr, FULL: tl.constexpr, ROWS: tl.constexpr,
    WORDS: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr, UNIT: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """A tile of words from ``first`` on: scores, labels, which words exist, and the offsets of their gradient.

    Index lists have no labels here; the scores are returned in their place.
    """
    GROUP: tl.constexpr = 2 * PER
    words = first + tl.arange(0, WORDS)
    if RAGGED:
        whole = (num_labels - lead) // GROUP
        in_tile = in_rows[:, None] & (words[None, :] // 2 < whole[:, None])
        at = ((rows * num_labels + lead) // GROUP * 2)[:, None] + words[None, :]
        label_at, grad_at = at, at
    else:
        in_tile = in_rows[:, None] & (words < num_labels // PER)[None, :]
        if FULL:
            in_tile = tl.full([ROWS, WORDS], True, tl.int1)
        at = (rows * (x_stride // UNIT * (UNIT // PER)))[:, None] + words[None, :]
        label_at = (rows * (label_stride // UNIT * (UNIT // PER)))[:, None] + words[None, :]
        grad_at = (rows * (num_labels // UNIT * (UNIT // PER)))[:, None] + words[None, :]
    other: tl.constexpr = 0 if not HARD else (NOTHING_H if HALF else (NOTHING_4 if PER == 4 else NOTHING_2))
    s = tl.load(tl.cast(x, tl.pointer_type(tl.int64)) + at, mask=in_tile, other=other, eviction_policy=EVICT)
    if LABELS == "lists":
        t = s
    elif HARD:
        place = tl.cast(labels, tl.pointer_type(tl.int32 if PER == 4 else tl.int16)) + label_at
        t = tl.load(tl.max_contiguous(place, [1, 2]), mask=in_tile, other=0, eviction_policy=EVICT)
    else:
        t = tl.load(tl.cast(labels, tl.pointer_type(tl.int64)) + label_at, mask=in_tile, other=0, eviction_policy=EVICT)
    return s, t, in_tile, grad_at


@triton.jit
def sum_words(
    s, t, in_tile, smoothing,
    ROWS: tl.constexpr, HARD: tl.constexpr, PAIRED: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """The sums ``[ROWS]`` of both sides of a tile."""
    pos, neg = word_sums(s, t, smoothing, HARD, PAIRED, PER, HALF)
    if not HARD:
        # Padding needs a mask: no score makes both terms of a soft label 0.
        pos, neg = tl.where(in_tile, pos, 0.0), tl.where(in_tile, neg, 0.0)
    pos, neg = tl.reduce((pos, neg), 1, add_pairs)
    return anywhere(pos, ROWS), anywhere(neg, ROWS)


@triton.jit
def anywhere(sums, ROWS: tl.constexpr):
    """The sums ``[ROWS]`` of a tile, ready to be added to those of another one. Triton would move all words of a tile to the
    threads of the other, so that its sums are in the right place; the sum of a single row has no place as a scalar."""
    if ROWS == 1:
        sums = tl.zeros([1], tl.float32) + tl.sum(sums, axis=0)
    return sums


@triton.jit
def read_rest(
    x, labels, indices, num_labels, smoothing, rows, in_rows, lead, begin, end, cursor, stop,
    LABELS: tl.constexpr, HARD: tl.constexpr, ROWS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Labels before the first and after the last whole group of words: columns, which of them count here, and their terms.

    Listed labels have no terms here.
    """
    lanes = tl.arange(0, 2 * GROUP)[None, :]
    behind = lead + (num_labels - lead) // GROUP * GROUP
    columns = tl.where(lanes < GROUP, lanes, behind[:, None] + lanes - GROUP)
    bound = tl.where(lanes < GROUP, lead[:, None], num_labels)
    rest = in_rows[:, None] & (columns < bound) & (columns >= begin) & (columns < end)
    at = rows[:, None] * num_labels + columns
    s = tl.load(x + at, mask=rest, other=0).to(tl.float32)
    if LABELS == "lists":
        t = tl.zeros([1, 2 * GROUP], tl.int32)
        while cursor < stop:
            entries = cursor + tl.arange(0, 8)
            listed = tl.load(indices + entries, mask=entries < stop, other=-1).to(tl.int32)
            t = t | tl.max((tl.reshape(columns, [2 * GROUP, 1]) == listed[None, :]).to(tl.int32), axis=1)[None, :]
            cursor += 8
        t = t.to(tl.float32)
    elif HARD:
        t = tl.where(tl.load(labels + at, mask=rest, other=0) != 0, 1.0, 0.0)
    else:
        t = tl.load(labels + at, mask=rest, other=0).to(tl.float32) * (1.0 - smoothing) + smoothing / 2
    pos = tl.where(rest & (t > 0), t * exp(-s), 0.0) if LABELS != "lists" else tl.zeros([ROWS, 2 * GROUP], tl.float32)
    neg = tl.where(rest & (t < 1), (1.0 - t) * exp(s), 0.0)
    return columns, rest, pos, neg


@triton.jit
def store_gradient(
    out_grad, at, s, t, in_tile, smoothing, pos_factor, neg_factor, zero,
    LABELS: tl.constexpr, SCALE: tl.constexpr, HARD: tl.constexpr, BITS: tl.constexpr, PER: tl.constexpr,
    HALF: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a tile. A "number" as SCALE is not negative: the host expands a negative one to one per row."""
    if LABELS == "lists":
        grad = negative_gradient(s, neg_factor[:, None], zero, SCALE != "number", PER, HALF)
    elif BITS:
        grad = bits_gradient(s, t, pos_factor[:, None], neg_factor[:, None], zero, HALF)
    else:
        grad = word_gradient(s, t, smoothing, pos_factor[:, None], neg_factor[:, None], zero, HARD, PER, HALF)
    tl.store(tl.cast(out_grad, tl.pointer_type(tl.int64)) + at, grad, mask=in_tile, eviction_policy=EVICT)
