"""Rows read as words of 64 bits (CUDA): the loss and its gradient in one read and one write of the scores.

The cost per label here is instructions rather than memory, so this kernel does little per label. Scores stay in registers as
they were read, two or four to a word, and their exponentials are computed once for the sums and once more for the gradient. The
labels of a word, a byte each, form a word too; where it is 0, as nearly everywhere, the labels are skipped. For the gradient
they are kept as bits. Index lists have no such words: listed labels are left out and processed separately. Sums are of
unshifted exponentials (m = 0); where one approaches the limits of the range, the whole tile is recomputed with a shift
(``ranges``). A long row is divided among programs, one chunk each, and the chunks are merged before the gradient is written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import exp
from manyhot.engines.triton.packed.brief import conclude_briefly
from manyhot.engines.triton.packed.lists import store_taken, take_listed
from manyhot.engines.triton.packed.ranges import has_no_label, is_in_range, read_offset
from manyhot.engines.triton.packed.tiles import anywhere, read_rest, read_words, store_gradient, sum_words
from manyhot.engines.triton.packed.words import bits_sums, negative_sums
from manyhot.engines.triton.rows.early import start_early
from manyhot.engines.triton.rows.lists import LISTS, find_listed
from manyhot.engines.triton.rows.merge import conclude
from manyhot.engines.triton.rows.scans import careful_store, careful_sums
from manyhot.engines.triton.rows.tiles import add_pairs
from manyhot.engines.triton.rows.totals import add_up, is_finished, note_factor

# Shorter rows have so many programs that starting early, where each of them waits, is slower.
EARLY_FROM = tl.constexpr(4096)


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=LISTS)
def packed_kernel(
    x, labels, offsets, indices, values, where, pos_weight, neg_weight, offset, row_scale, grad_pos, grad_neg,
    out_value, out_slope, out_grad, state, partial, arrived, out_total, ended,
    num_rows, num_labels, x_stride, label_stride, where_stride,
    offset_number, scale_number, pos_number, neg_number, smoothing,
    LABELS: tl.constexpr, LEAN: tl.constexpr, HAS_WHERE: tl.constexpr, POS: tl.constexpr, NEG: tl.constexpr,
    OFFSET: tl.constexpr, SCALE: tl.constexpr, FORM: tl.constexpr, STAGE: tl.constexpr, EVEN: tl.constexpr,
    CHUNKS: tl.constexpr, MANY: tl.constexpr, SEGMENT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """Loss and gradient, one tile per program, without a mask and without weights per label. The scores are summed unchanged; a
    threshold multiplies the sums.

    If UNIT says that rows are aligned to a word (two words with lists), they may have any stride. Otherwise scores, labels and
    gradient are contiguous: words are those of the whole tensor, and the remainder of a row at either end, at most seven
    labels, is processed separately. A whole row is one tile, or two if it is slightly longer than a power of two: BLOCK labels,
    and the rest of SEGMENT.
    """
    if CHUNKS > 1 or BLOCK >= EARLY_FROM:
        start_early()
    if TOTAL == "again":  # noqa: SIM102 - a compile-time condition, then a runtime one
        if is_finished(row_scale, scale_number, state):
            return
    PER: tl.constexpr = 64 // x.dtype.element_ty.primitive_bitwidth
    HALF: tl.constexpr = x.dtype.element_ty == tl.float16
    GROUP: tl.constexpr = 2 * PER
    WORDS: tl.constexpr = BLOCK // PER
    TAIL: tl.constexpr = 0 if CHUNKS > 1 else (SEGMENT - BLOCK) // PER
    RAGGED: tl.constexpr = UNIT % PER != 0 or (LABELS == "lists" and UNIT % GROUP != 0)
    HARD: tl.constexpr = LABELS == "lists" or labels.dtype.element_ty.primitive_bitwidth == 8
    # From this length on every thread has several words.
    PAIRED: tl.constexpr = ROWS == 1 and TAIL == 0 and BLOCK >= 1024
    # From this size on every thread has four words.
    BITS: tl.constexpr = ROWS == 1 and BLOCK >= 512 and LABELS != "lists" and HARD and PER == 4
    SHIFTED: tl.constexpr = FORM == "split" and OFFSET != "zero"
    BRIEF: tl.constexpr = CHUNKS == 1 and (FORM == "split" or OFFSET == "zero")
    INTEGERS: tl.constexpr = HARD and (PER == 2 or not RAGGED)
    # Differs from WORDS and TAIL: Triton uses one layout for all tiles of a shape, and the safe path reads single labels.
    SMALL: tl.constexpr = 256 if WORDS == 512 or TAIL == 512 else 512
    STEP: tl.constexpr = BLOCK if ROWS > 1 else (1024 if WORDS == SMALL or TAIL == SMALL else SMALL)
    SPAN: tl.constexpr = BLOCK + STEP if RAGGED and CHUNKS > 1 else SEGMENT
    program = tl.program_id(0)
    chunk = program % CHUNKS
    row = tl.cast(program // CHUNKS, tl.int64) * ROWS
    rows = row + tl.arange(0, ROWS)
    in_rows = rows < num_rows
    lead = tl.zeros([ROWS], tl.int32)
    begin, end = chunk * BLOCK, chunk * BLOCK + SEGMENT
    if RAGGED:
        lead = ((GROUP - rows * num_labels % GROUP) % GROUP).to(tl.int32)
        if CHUNKS > 1:
            # The chunks of a row start at its first whole word; the first chunk also has the labels before it.
            ahead = tl.max(lead, axis=0)
            begin = tl.where(chunk == 0, 0, begin + ahead)
            end += ahead
    elif EVEN:
        in_rows = tl.full([ROWS], True, tl.int1)
    end = tl.minimum(end, num_labels)
    s, t, in_tile, grad_at = read_words(
        x, labels, num_labels, x_stride, label_stride, rows, in_rows, lead, chunk * WORDS,
        LABELS, HARD, RAGGED, EVEN or TAIL > 0, ROWS, WORDS, PER, HALF, UNIT, "",
    )  # fmt: skip
    if TAIL > 0:
        tail_s, tail_t, in_tail, tail_at = read_words(
            x, labels, num_labels, x_stride, label_stride, rows, in_rows, lead, WORDS,
            LABELS, HARD, RAGGED, EVEN, ROWS, TAIL, PER, HALF, UNIT, "",
        )  # fmt: skip
    cursor, stop = tl.zeros([ROWS], tl.int64), tl.zeros([ROWS], tl.int64)
    if LABELS == "lists":
        cursor, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
        if CHUNKS > 1:
            cursor, stop = find_listed(indices, cursor, stop, begin, end)
        ahead = tl.max(lead, axis=0)
        limit = (num_labels - ahead) // GROUP * GROUP
        if TAIL == 0:
            tail_s = s
        s, tail_s, pos_sum = take_listed(
            s, tail_s, chunk * WORDS, x + row * x_stride, indices, end, cursor, stop, ahead, limit,
            WORDS, TAIL, RAGGED, PER, HALF,
        )  # fmt: skip
        neg_sum = anywhere(tl.sum(negative_sums(s, PAIRED, PER, HALF), axis=1), ROWS)
        if TAIL > 0:
            neg_sum += anywhere(tl.sum(negative_sums(tail_s, False, PER, HALF), axis=1), ROWS)
    else:
        if BITS:
            pos, neg, t = bits_sums(s, t, HALF)
            pos_sum, neg_sum = tl.reduce((pos, neg), 1, add_pairs)
            pos_sum, neg_sum = anywhere(pos_sum, ROWS), anywhere(neg_sum, ROWS)
        else:
            pos_sum, neg_sum = sum_words(s, t, in_tile, smoothing, ROWS, HARD, PAIRED, PER, HALF)
        if TAIL > 0:
            pos_more, neg_more = sum_words(tail_s, tail_t, in_tail, smoothing, ROWS, HARD, False, PER, HALF)
            pos_sum, neg_sum = pos_sum + pos_more, neg_sum + neg_more
    if RAGGED:
        columns, rest, pos_rest, neg_rest = read_rest(
            x, labels, indices, num_labels, smoothing, rows, in_rows, lead, begin, end, cursor, stop, LABELS, HARD, ROWS, GROUP
        )
        pos_more, neg_more = tl.reduce((pos_rest, neg_rest), 1, add_pairs)
        pos_sum, neg_sum = pos_sum + pos_more, neg_sum + neg_more
    zero = tl.zeros([ROWS], tl.float32)
    c, hidden = read_offset(offset, offset_number, num_rows, rows, in_rows, OFFSET, ROWS)
    pos_by, neg_by = zero + pos_number, zero + neg_number
    if SHIFTED:
        pos_by, neg_by = pos_by * exp(c), neg_by * exp(-c)
    if not LEAN or SHIFTED:
        pos_sum, neg_sum = pos_sum * pos_by, neg_sum * neg_by
    empty = pos_sum == 0
    if FORM == "joint":  # noqa: SIM102 - a compile-time condition, then a runtime one
        if tl.max(empty.to(tl.int32), axis=0) > 0:
            if LABELS == "lists":
                empty = tl.where(cursor >= stop, empty, False)
            else:
                empty = tl.where(has_no_label(t, smoothing), empty, False)
                if TAIL > 0:
                    empty = tl.where(has_no_label(tail_t, smoothing), empty, False)
                if RAGGED:
                    ends = tl.load(labels + rows[:, None] * num_labels + columns, mask=rest, other=0)
                    empty = tl.where(has_no_label(ends, smoothing), empty, False)
    if is_in_range(pos_sum, neg_sum, empty, c, in_rows, SHIFTED, FORM, BRIEF):
        if BRIEF:
            pos_factor, neg_factor = conclude_briefly(
                pos_sum, neg_sum, out_value, out_slope, row_scale, scale_number, row, rows, in_rows,
                OFFSET, SCALE, FORM, ROWS, TOTAL,
            )  # fmt: skip
        else:
            pos_factor, neg_factor = conclude(
                zero, pos_sum, zero, neg_sum, c, out_value, out_slope, row_scale, scale_number, partial, arrived,
                row, rows, in_rows, chunk, OFFSET, SCALE, FORM, CHUNKS, MANY, ROWS, INTEGERS, TOTAL,
            )  # fmt: skip
        if not LEAN or SHIFTED:
            pos_factor, neg_factor = pos_factor * pos_by, neg_factor * neg_by
        store_gradient(
            out_grad, grad_at, s, t, in_tile, smoothing, pos_factor, neg_factor, hidden,
            LABELS, SCALE, HARD, BITS, PER, HALF, "",
        )  # fmt: skip
        if TAIL > 0:
            store_gradient(
                out_grad, tail_at, tail_s, tail_t, in_tail, smoothing, pos_factor, neg_factor, hidden,
                LABELS, SCALE, HARD, False, PER, HALF, "",
            )  # fmt: skip
        if RAGGED:
            grad = neg_rest * neg_factor[:, None] - pos_rest * pos_factor[:, None]
            tl.store(out_grad + rows[:, None] * num_labels + columns, grad.to(out_grad.dtype.element_ty), mask=rest)
        if LABELS == "lists":
            store_taken(out_grad + row * num_labels, x + row * x_stride, indices, end, pos_factor, cursor, stop)
    else:
        pos_top, neg_top, pos_sum, neg_sum = careful_sums(
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, end, rows, in_rows, begin, c, cursor, stop,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, False, FORM, ROWS, SPAN, STEP,
        )  # fmt: skip
        pos_factor, neg_factor = conclude(
            pos_top, pos_sum, neg_top, neg_sum, c, out_value, out_slope, row_scale, scale_number, partial, arrived,
            row, rows, in_rows, chunk, OFFSET, SCALE, FORM, CHUNKS, MANY, ROWS, INTEGERS, TOTAL,
        )  # fmt: skip
        careful_store(
            out_grad, num_labels,
            x, labels, indices, values, where, pos_weight, neg_weight, x_stride, label_stride, where_stride,
            pos_number, neg_number, smoothing, end, rows, in_rows, begin, c, cursor, stop,
            pos_top, neg_top, pos_factor, neg_factor,
            LABELS, LEAN, HAS_WHERE, POS, NEG, SHIFTED, False, ROWS, SPAN, STEP,
        )  # fmt: skip
    note_factor(row_scale, scale_number, state, grad_neg, SCALE, TOTAL)
    add_up(out_total, out_value, num_rows, scale_number, chunk, SCALE, CHUNKS, TOTAL)
