"""The best scores of each label, and the best of the candidates of each label (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("num_rows",))
def column_level_kernel(x, wanted, levels, num_rows, num_labels, stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    """``levels [0]``: a number that exactly the ``wanted`` highest keys of a label reach, or the key of the last of them if
    equal scores prevent that; ``levels [1]``: how many keys are above it. ROWS is at least the number of rows: a program keeps
    its scores in registers."""
    columns = tl.program_id(0) * COLS + tl.arange(0, COLS)
    rows = tl.arange(0, ROWS)
    inside = columns < num_labels
    there = (rows < num_rows)[:, None] & inside[None, :]
    s = tl.load(x + rows.to(tl.int64)[:, None] * stride + columns[None, :], mask=there, other=0.0)
    key = tl.where(there, _key_of(s), -2147483648)
    want = tl.load(wanted + columns, mask=inside, other=1)
    # The highest number that as many keys reach as are wanted, bit by bit from the lowest number on; or the first that exactly
    # as many reach.
    least = tl.full([COLS], -2147483648, dtype=tl.int32)
    step = tl.full([COLS], -2147483648, dtype=tl.int32)
    found = tl.where(inside, 0, 1)
    bits = 32
    while bits > 0:
        higher = least + step
        reached = tl.sum((key >= higher[None, :]).to(tl.int32), axis=0)
        least = tl.where((reached >= want) & (found == 0), higher, least)
        found = tl.where(reached == want, 1, found)
        step = (step >> 1) & 0x7FFFFFFF
        bits = tl.where(tl.min(found, axis=0) == 1, 0, bits - 1)
    tl.store(levels + columns, least, mask=inside)
    tl.store(levels + num_labels + columns, tl.sum((key > least[None, :]).to(tl.int32), axis=0), mask=inside)


@triton.jit
def _key_of(s):
    """As integers, the bits of floats sort like the floats if those of negative ones are flipped. Both zeros become +0."""
    bits = tl.where(s == 0, 0.0, s).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit(do_not_specialize=("num_rows",))
def column_best_kernel(
    x, wanted, offsets, levels, out, num_rows, num_labels, stride, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """The ``wanted`` highest scores of some labels, by row, from place 1 of each label's segment on; of the lowest, equal ones
    are taken by row. An entry has a number that falls with the score in its high half, and the row in its low half; that of
    place 0 is the lowest of all."""
    columns = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = columns < num_labels
    want = tl.load(wanted + columns, mask=inside, other=0)[None, :]
    least = tl.load(levels + columns, mask=inside, other=0)[None, :]
    start = tl.load(offsets + columns, mask=inside, other=0)
    higher = tl.zeros([COLS], dtype=tl.int32)
    same = tl.load(levels + num_labels + columns, mask=inside, other=0)
    for first in range(0, num_rows, ROWS):
        rows = first + tl.arange(0, ROWS)
        there = (rows < num_rows)[:, None] & inside[None, :]
        key = _key_of(tl.load(x + rows.to(tl.int64)[:, None] * stride + columns[None, :], mask=there, other=0.0))
        above = (there & (key > least)).to(tl.int32)
        equal = (there & (key == least)).to(tl.int32)
        # Both counts are below 32,768.
        seen = tl.cumsum(above + (equal << 16), axis=0)
        rank = tl.where(above == 1, higher[None, :] + (seen & 65535), same[None, :] + (seen >> 16))
        kept = (above + equal == 1) & (rank <= want)
        entry = ((-1 - key).to(tl.int64) << 32) | rows[:, None]
        tl.store(out + start[None, :] + rank, entry, mask=kept)
        higher += tl.sum(above, axis=0)
        same += tl.sum(equal, axis=0)
    tl.store(out + start, tl.full([COLS], -9223372036854775808, dtype=tl.int64), mask=inside)


@triton.jit(do_not_specialize=("num_rows",))
def column_top_kernel(x, wanted, offsets, out, num_rows, num_labels, stride, COLS: tl.constexpr):
    """What ``column_best_kernel`` writes, for labels with at most six ``wanted``: a thread keeps the six highest scores of its
    labels, falling, and their rows."""
    columns = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = columns < num_labels
    # Every score takes the place of NaN.
    a = tl.full([COLS], float("nan"), dtype=tl.float32)
    b, c, d, e, f = a, a, a, a, a
    row_a = tl.zeros([COLS], dtype=tl.int32)
    row_b, row_c, row_d, row_e, row_f = row_a, row_a, row_a, row_a, row_a
    for number in tl.range(0, num_rows, loop_unroll_factor=4):
        s = tl.load(x + tl.cast(number, tl.int64) * stride + columns, mask=inside, other=0.0)
        row = tl.zeros([COLS], dtype=tl.int32) + number
        a, row_a, s, row = _insert(a, row_a, s, row)
        b, row_b, s, row = _insert(b, row_b, s, row)
        c, row_c, s, row = _insert(c, row_c, s, row)
        d, row_d, s, row = _insert(d, row_d, s, row)
        e, row_e, s, row = _insert(e, row_e, s, row)
        f, row_f, s, row = _insert(f, row_f, s, row)
    want = tl.load(wanted + columns, mask=inside, other=99)
    start = out + tl.load(offsets + columns, mask=inside, other=0)
    few = want <= 6
    tl.store(start, tl.full([COLS], -9223372036854775808, dtype=tl.int64), mask=few)
    _store_entry(start + 1, a, row_a, few)
    _store_entry(start + 2, b, row_b, few & (want > 1))
    _store_entry(start + 3, c, row_c, few & (want > 2))
    _store_entry(start + 4, d, row_d, few & (want > 3))
    _store_entry(start + 5, e, row_e, few & (want > 4))
    _store_entry(start + 6, f, row_f, few & (want > 5))


@triton.jit
def _insert(kept, kept_row, s, row):
    """The higher of two scores, the first if they are equal or the other is NaN; and the other one."""
    stays = s <= kept
    return tl.where(stays, kept, s), tl.where(stays, kept_row, row), tl.where(stays, s, kept), tl.where(stays, row, kept_row)


@triton.jit
def _store_entry(place, s, row, kept):
    tl.store(place, ((-1 - _key_of(s)).to(tl.int64) << 32) | row, mask=kept)


@triton.jit
def segment_max_kernel(value, offsets, out, num_labels, LABELS: tl.constexpr, BLOCK: tl.constexpr):
    """The highest value of each segment."""
    labels = tl.program_id(0) * LABELS + tl.arange(0, LABELS)
    inside = labels < num_labels
    start = tl.load(offsets + labels, mask=inside, other=0)
    stop = tl.load(offsets + labels + 1, mask=inside, other=0)
    best = tl.full([LABELS], -float("inf"), dtype=tl.float64)
    for first in range(0, tl.max(stop - start), BLOCK):
        at = start[:, None] + first + tl.arange(0, BLOCK)[None, :]
        best = tl.maximum(best, tl.max(tl.load(value + at, mask=at < stop[:, None], other=-float("inf")), axis=1))
    tl.store(out + labels, best, mask=inside)


@triton.jit
def segment_choice_kernel(value, clear, cut, bound, offsets, out, num_labels, LABELS: tl.constexpr, BLOCK: tl.constexpr):
    """The place of one entry of each segment. Of those whose value is at least the segment's ``bound`` these stay: the most
    clear, of them the best, of them those with the highest cut, of them the first."""
    labels = tl.program_id(0) * LABELS + tl.arange(0, LABELS)
    inside = labels < num_labels
    start = tl.load(offsets + labels, mask=inside, other=0)
    stop = tl.load(offsets + labels + 1, mask=inside, other=0)
    least = tl.load(bound + labels, mask=inside, other=0.0)[:, None]
    low = -float("inf")
    length = tl.max(stop - start)
    widest = tl.full([LABELS], low, dtype=tl.float64)
    best = tl.full([LABELS], low, dtype=tl.float64)
    highest = tl.full([LABELS], low, dtype=tl.float64)
    chosen = tl.zeros([LABELS], dtype=tl.int64)
    # Entries are compared one after the other chunk; a chunk that has a better entry starts anew.
    for first in range(0, length, BLOCK):
        at = start[:, None] + first + tl.arange(0, BLOCK)[None, :]
        there = at < stop[:, None]
        v = tl.load(value + at, mask=there, other=low)
        room = tl.load(clear + at, mask=there, other=low)
        c = tl.load(cut + at, mask=there, other=low)
        near = there & (v >= least)
        own_room = tl.max(tl.where(near, room, low), axis=1)
        near = near & (room == own_room[:, None])
        own_best = tl.max(tl.where(near, v, low), axis=1)
        near = near & (v == own_best[:, None])
        own_cut = tl.max(tl.where(near, c, low), axis=1)
        near = near & (c == own_cut[:, None])
        place = tl.min(tl.where(near, at, 9223372036854775807), axis=1)
        same = (own_room == widest) & (own_best == best)
        better = (own_room > widest) | ((own_room == widest) & (own_best > best)) | (same & (own_cut > highest))
        widest = tl.where(better, own_room, widest)
        best = tl.where(better, own_best, best)
        highest = tl.where(better, own_cut, highest)
        chosen = tl.where(better, place, chosen)
    tl.store(out + labels, chosen, mask=inside)
