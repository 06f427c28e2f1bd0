"""Rows read as words of 64 bits (CUDA): the loss and its gradient in one read and one write of the scores.

What a label costs here is instructions before it is memory, so this kernel does little for one. Scores stay in registers as
they were read, two or four to a word, and their exponentials are made once for the sums and once more for the gradient. The
labels of a word, a byte each, are a word too, and where it is 0, as nearly everywhere, none of them is looked at; index lists
become such words first. Sums are of plain exponentials, with m = 0; where one comes near the end of the range the whole tile
goes the careful way. (The zero class makes what underflows irrelevant.) Of a long row every program keeps a chunk, and the
chunks are merged before the gradient is written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.kernels.triton_lists import find_listed
from manyhot.kernels.triton_math import exp
from manyhot.kernels.triton_merge import conclude
from manyhot.kernels.triton_scans import careful_store, careful_sums
from manyhot.kernels.triton_tiles import SAFE, add_pairs
from manyhot.kernels.triton_words import word_gradient, word_labels, word_sums

# -inf in every score of a word: what stands beyond the end of a row, where its term is 0.
NOTHING_4, NOTHING_2 = tl.constexpr(-0x007F007F007F0080), tl.constexpr(-0x007FFFFF00800000)


@triton.jit
def packed_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, offset, row_scale, grad_pos, grad_neg,
    out_value, out_slope, out_grad, state, partial, arrived,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    offset_number, scale_number, pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    OFFSET: tl.constexpr, HAS_SCALE: tl.constexpr, FORM: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr,
    CHUNKS: tl.constexpr, MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """One tile a program, fused and split, with no offset, no mask and no weight for each label.

    Where UNIT says that rows start on a word (of lists, on two), they may lie apart. Elsewhere scores, labels and gradient lie
    row behind row: words are those of the whole, and what is left of a row at either end, at most seven labels, is taken apart.
    """
    PER: tl.constexpr = 64 // x.dtype.element_ty.primitive_bitwidth
    GROUP: tl.constexpr = 2 * PER
    WORDS: tl.constexpr = BLOCK // PER
    RAGGED: tl.constexpr = UNIT % PER != 0 or (LABELS == "lists" and UNIT % GROUP != 0)
    HARD: tl.constexpr = LABELS == "lists" or labels.dtype.element_ty.primitive_bitwidth == 8
    # Not WORDS: Triton lays tiles of one shape out in one way, and the careful one is of single labels.
    STEP: tl.constexpr = BLOCK if ROWS > 1 else (256 if WORDS == 512 else 512)
    SPAN: tl.constexpr = BLOCK + STEP if RAGGED and CHUNKS > 1 else BLOCK
    program = tl.program_id(0)
    if CHUNKS > 1:
        program = tl.atomic_add(arrived + num_rows, 1, sem="relaxed")
    chunk = program % CHUNKS
    row = tl.cast(program // CHUNKS, tl.int64) * ROWS
    rows = row + tl.arange(0, ROWS)
    in_rows = rows < num_rows
    words = chunk * WORDS + tl.arange(0, WORDS)
    lead = tl.zeros([ROWS], tl.int32)
    begin, end = chunk * BLOCK, chunk * BLOCK + BLOCK
    if RAGGED:
        start = rows * num_labels
        lead = ((GROUP - start % GROUP) % GROUP).to(tl.int32)
        whole = (num_labels - lead) // GROUP
        in_tile = in_rows[:, None] & (words[None, :] // 2 < whole[:, None])
        at = ((start + lead) // GROUP * 2)[:, None] + words[None, :]
        label_at, grad_at = at, at
        if CHUNKS > 1:
            # The chunks of a row are counted from its first whole word, and the first one takes what is before.
            ahead = tl.max(lead, axis=0)
            begin = tl.where(chunk == 0, 0, begin + ahead)
            end += ahead
    else:
        in_tile = in_rows[:, None] & (words < num_labels // PER)[None, :]
        if EVEN:
            in_rows, in_tile = tl.full([ROWS], True, tl.int1), tl.full([ROWS, WORDS], True, tl.int1)
        at = (rows * (x_stride // UNIT * (UNIT // PER)))[:, None] + words[None, :]
        label_at = (rows * (label_stride // UNIT * (UNIT // PER)))[:, None] + words[None, :]
        grad_at = (rows * (num_labels // UNIT * (UNIT // PER)))[:, None] + words[None, :]
    end = tl.minimum(end, num_labels)
    other: tl.constexpr = 0 if not HARD else (NOTHING_4 if PER == 4 else NOTHING_2)
    s = tl.load(tl.cast(x, tl.pointer_type(tl.int64)) + at, mask=in_tile, other=other)
    if HARD:
        # Lists have no label stride, so that nothing is read: what counts is that their tile is laid out as one that was read.
        present = in_tile if LABELS == "dense" else words[None, :] < label_stride
        place = tl.cast(labels, tl.pointer_type(tl.int32 if PER == 4 else tl.int16)) + label_at
        t = tl.load(tl.max_contiguous(place, [1, 2]), mask=present, other=0)
    else:
        t = tl.load(tl.cast(labels, tl.pointer_type(tl.int64)) + label_at, mask=in_tile, other=0)
    cursor, stop = tl.zeros([ROWS], tl.int64), tl.zeros([ROWS], tl.int64)
    if LABELS == "lists":
        cursor, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
        if CHUNKS > 1:
            cursor, stop = find_listed(indices, cursor, stop, begin, end)
        ahead = tl.max(lead, axis=0)
        t = word_labels(t, words[None, :], indices, cursor, stop, ahead, (num_labels - ahead) // GROUP * GROUP, PER)
    pos, neg = word_sums(s, t, smoothing, HARD, PER)
    if not HARD:
        # No score makes both terms of a soft label vanish.
        pos, neg = tl.where(in_tile, pos, 0.0), tl.where(in_tile, neg, 0.0)
    pos_sum, neg_sum = tl.reduce((pos, neg), 1, add_pairs)
    if RAGGED:
        columns, rest, pos_rest, neg_rest = _rest(
            x, labels, indices, num_labels, smoothing, rows, in_rows, lead, begin, end, cursor, stop, LABELS, HARD, ROWS, GROUP
        )
        pos_more, neg_more = tl.reduce((pos_rest, neg_rest), 1, add_pairs)
        pos_sum, neg_sum = pos_sum + pos_more, neg_sum + neg_more
    if not LEAN:
        pos_sum, neg_sum = pos_sum * pos_number, neg_sum * neg_number
    zero = tl.zeros([ROWS], tl.float32)
    if tl.max(tl.where(pos_sum + neg_sum <= SAFE, 0, 1), axis=0) == 0:
        pos_factor, neg_factor = conclude(
            zero, pos_sum, zero, neg_sum, zero, out_value, out_slope, row_scale, scale_number, partial, arrived,
            row, rows, in_rows, chunk, HAS_SCALE, FORM, CHUNKS, MANY, ROWS,
        )  # fmt: skip
        if not LEAN:
            pos_factor, neg_factor = pos_factor * pos_number, neg_factor * neg_number
        grad = word_gradient(s, t, smoothing, pos_factor[:, None], neg_factor[:, None], offset_number, HARD, PER)
        tl.store(tl.cast(out_grad, tl.pointer_type(tl.int64)) + grad_at, grad, mask=in_tile)
        if RAGGED:
            grad = neg_rest * neg_factor[:, None] - pos_rest * pos_factor[:, None]
            tl.store(out_grad + rows[:, None] * num_labels + columns, grad.to(out_grad.dtype.element_ty), mask=rest)
    else:
        pos_top, neg_top, pos_sum, neg_sum = careful_sums(
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, end, rows, in_rows, begin, zero, cursor, stop,
            LABELS, LEAN, HAS_WHERE, POS, NEG, False, False, FORM, ROWS, SPAN, STEP,
        )  # fmt: skip
        pos_factor, neg_factor = conclude(
            pos_top, pos_sum, neg_top, neg_sum, zero, out_value, out_slope, row_scale, scale_number, partial, arrived,
            row, rows, in_rows, chunk, HAS_SCALE, FORM, CHUNKS, MANY, ROWS,
        )  # fmt: skip
        careful_store(
            out_grad, num_labels,
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, end, rows, in_rows, begin, zero, cursor, stop,
            pos_top, neg_top, pos_factor, neg_factor,
            LABELS, LEAN, HAS_WHERE, POS, NEG, False, False, ROWS, SPAN, STEP,
        )  # fmt: skip


@triton.jit
def _rest(
    x, labels, indices, num_labels, smoothing, rows, in_rows, lead, begin, end, cursor, stop,
    LABELS: tl.constexpr, HARD: tl.constexpr, ROWS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Labels before the first and behind the last whole group of words: columns, which of them count here, and their terms."""
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
    pos = tl.where(rest & (t > 0), t * exp(-s), 0.0)
    neg = tl.where(rest & (t < 1), (1.0 - t) * exp(s), 0.0)
    return columns, rest, pos, neg
