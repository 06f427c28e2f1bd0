# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Listed spans on a CUDA device: unpacked and scored once, and merged with the sums over the other cells of a (row, type).

Index lists are sorted by (row, type, first, last). A listed cell that does not count has first and last -1, so that it lies in
no tile. Sums are pairs (top, total), which stand for ``e^top total``. An empty sum has a total of 0, and top is finite.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import exp

LOWEST = tl.constexpr(-float("inf"))


@triton.jit
def finite(top):
    """The maximum to subtract; 0 where it is infinite."""
    return tl.where(tl.abs(top) == float("inf"), 0.0, top)


@triton.jit
def dot(a, b, PRECISION: tl.constexpr):
    """The product of two tiles, summed in float32."""
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def load_rows(part, places, stride, inside, head, D: tl.constexpr):
    """Rows of q or k ``[n, D]``, zero outside."""
    features = tl.arange(0, D)
    mask = inside[:, None] & (features < head)[None, :]
    return tl.load(part + places[:, None] * stride + features[None, :], mask=mask, other=0.0)


@triton.jit(do_not_specialize=["num_rows", "num_types", "num_listed", "num_blocks", "row_steps", "cell_steps"])
def listed_kernel(
    q, k, u, v, lengths, indices, offsets, cells, scores, starts,
    num_rows, num_types, num_tokens, num_listed, head, num_blocks, block_rows, row_steps, cell_steps, scale,
    q_row, q_type, q_token, k_row, k_type, k_token, u_row, u_type, u_token, v_row, v_type, v_token,
    SHARED: tl.constexpr, TRIANGLE: tl.constexpr, D: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """Type, first and last token ``[3, P]`` and score ``[P]`` of every listed cell; where the cells of each (row, type,
    block of first tokens) start."""
    places = tl.program_id(0) * ENTRIES + tl.arange(0, ENTRIES)
    inside = places < num_listed
    cell = tl.load(indices + places, mask=inside, other=0)
    row, top = tl.zeros([ENTRIES], tl.int32), tl.zeros([ENTRIES], tl.int32) + (num_rows - 1)
    for _ in range(row_steps):
        middle = (row + top + 1) // 2
        before = tl.load(offsets + middle, mask=inside, other=0) <= places
        row, top = tl.where(before, middle, row), tl.where(before, top, middle - 1)
    last = (cell % num_tokens).to(tl.int32)
    first = ((cell // num_tokens) % num_tokens).to(tl.int32)
    kind = (cell // num_tokens // num_tokens).to(tl.int32)
    length = tl.load(lengths + row, mask=inside, other=0)
    counted = inside & (first < length) & (last < length)
    if TRIANGLE:
        counted = counted & (first <= last)
    tl.store(cells + places, kind, mask=inside)
    tl.store(cells + num_listed + places, tl.where(counted, first, -1), mask=inside)
    tl.store(cells + 2 * num_listed + places, tl.where(counted, last, -1), mask=inside)
    row, kind, first, last = row.to(tl.int64), kind.to(tl.int64), first.to(tl.int64), last.to(tl.int64)
    features = tl.arange(0, D)
    mask = counted[:, None] & (features < head)[None, :]
    q_place, k_place = row * q_row + first * q_token, row * k_row + last * k_token
    if not SHARED:
        q_place, k_place = q_place + kind * q_type, k_place + kind * k_type
    x = tl.load(q + q_place[:, None] + features[None, :], mask=mask, other=0.0).to(tl.float32)
    y = tl.load(k + k_place[:, None] + features[None, :], mask=mask, other=0.0).to(tl.float32)
    score = tl.sum(x * y, axis=1) * scale
    if SHARED:
        score += tl.load(u + row * u_row + kind * u_type + first * u_token, mask=counted, other=0.0).to(tl.float32)
        score += tl.load(v + row * v_row + kind * v_type + last * v_token, mask=counted, other=0.0).to(tl.float32)
    tl.store(scores + places, score, mask=inside)

    block = places.to(tl.int64)
    per_row = num_types * num_blocks
    wanted = block <= num_rows * per_row
    row = tl.where(wanted, block // per_row, num_rows)
    kind, first = block % per_row // num_blocks, block % num_blocks * block_rows
    aim = (kind * num_tokens + first) * num_tokens
    low = tl.load(offsets + row, mask=wanted, other=0)
    high = tl.load(offsets + row + 1, mask=wanted & (row < num_rows), other=0)
    high = tl.where(row < num_rows, high, low)
    for _ in range(cell_steps):
        middle = (low + high) // 2
        open_ = low < high
        before = open_ & (tl.load(indices + middle, mask=wanted & open_, other=0) < aim)
        low, high = tl.where(before, middle + 1, low), tl.where(before, high, middle)
    tl.store(starts + block, low.to(tl.int32), mask=wanted)


@triton.jit
def soft_label(values, place, inside, smoothing, SOFT: tl.constexpr):
    """The label of a listed cell, smoothed."""
    label = tl.where(inside, 1.0, 0.0)
    if SOFT:
        label = tl.load(values + place, mask=inside, other=0).to(tl.float32)
    return label * (1.0 - smoothing) + smoothing / 2


@triton.jit
def added(top, total, x, weight):
    """The pair (top, total) with ``sum w e^x`` added to it; terms of weight 0 are skipped."""
    x = tl.where(weight > 0, x, LOWEST)
    highest = tl.maximum(top, tl.max(x, axis=0))
    shift = finite(highest)
    return highest, total * exp(top - shift) + tl.sum(weight * exp(x - shift), axis=0)


@triton.jit
def summed(tops, sums, place, size, BLOCK: tl.constexpr):
    """The sum of pairs ``[size]``."""
    top, total = tl.full([], LOWEST, tl.float32), tl.zeros([], tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        here = tl.load(sums + place + at, mask=at < size, other=0.0)
        x = tl.load(tops + place + at, mask=at < size, other=0.0)
        highest = tl.maximum(top, tl.max(tl.where(here == 0, LOWEST, x), axis=0))
        shift = finite(highest)
        total = total * exp(top - shift) + tl.sum(tl.where(here == 0, 0.0, here * exp(x - shift)), axis=0)
        top = highest
    return top, total


@triton.jit
def softplus_and_slope(x):
    """``log(1 + e^x)`` and its derivative."""
    small = exp(-tl.abs(x))
    rest = tl.where(small < 1e-4, small - small * small / 2, tl.log(1.0 + small))
    slope = tl.where(x > 0, 1.0, small) / (1.0 + small)
    return tl.maximum(x, 0.0) + rest, slope


@triton.jit(do_not_specialize=["num_problems", "num_listed", "size", "num_blocks"])
def sides_kernel(
    tops, sums, cells, scores, starts, values, out,
    num_problems, num_listed, size, num_blocks, smoothing, threshold, share,
    SOFT: tl.constexpr, SMOOTH: tl.constexpr, LOSS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``(pos shift, pos rest, neg shift, neg rest)`` of one (row, type), from the sums over unlisted cells and the list.

    With LOSS also its part of ``share sum log(1 + e^{pos + s0}) + log(1 + e^{neg - s0})``: the derivatives by pos and neg go to
    rows 4 and 5 of ``out``, and the value to row 7.
    """
    problem = tl.program_id(0).to(tl.int64)
    neg_top, neg_total = summed(tops, sums, problem * size, size, BLOCK)
    neg_total = neg_total * (1.0 - smoothing / 2)
    pos_top, pos_total = tl.full([], LOWEST, tl.float32), tl.zeros([], tl.float32)
    if SMOOTH:
        pos_top, pos_total = summed(tops + num_problems * size, sums + num_problems * size, problem * size, size, BLOCK)
        pos_total = pos_total * (smoothing / 2)
    start, stop = tl.load(starts + problem * num_blocks), tl.load(starts + (problem + 1) * num_blocks)
    for first in range(start, stop, BLOCK):
        places = first + tl.arange(0, BLOCK)
        inside = places < stop
        counted = inside & (tl.load(cells + num_listed + places, mask=inside, other=-1) >= 0)
        label = soft_label(values, places, counted, smoothing, SOFT)
        score = tl.load(scores + places, mask=counted, other=0.0)
        pos_top, pos_total = added(pos_top, pos_total, -score, tl.where(counted, label, 0.0))
        neg_top, neg_total = added(neg_top, neg_total, score, tl.where(counted, 1.0 - label, 0.0))
    tl.store(out + problem, finite(pos_top))
    tl.store(out + num_problems + problem, tl.log(pos_total))
    tl.store(out + 2 * num_problems + problem, finite(neg_top))
    tl.store(out + 3 * num_problems + problem, tl.log(neg_total))
    if LOSS:
        pos_loss, pos_slope = softplus_and_slope(finite(pos_top) + tl.log(pos_total) + threshold)
        neg_loss, neg_slope = softplus_and_slope(finite(neg_top) + tl.log(neg_total) - threshold)
        tl.store(out + 4 * num_problems + problem, pos_slope * share)
        tl.store(out + 5 * num_problems + problem, neg_slope * share)
        tl.store(out + 7 * num_problems + problem, (pos_loss + neg_loss) * share)


@triton.jit
def pulling(shift, rest, grad):
    """Shift, rest and gradient of a side. If the side is empty or its gradient is 0, the shift is inf: all terms are 0."""
    idle = (rest == LOWEST) | (grad == 0)
    return tl.where(idle, float("inf"), shift), tl.where(idle, 0.0, rest), tl.where(idle, 0.0, grad)


@triton.jit
def side_state(state, place, num_problems, inside, SIDE: tl.constexpr):
    """The result of ``pulling`` for one side (0 positive, 1 negative) of some problems. The gradient is that of the side times
    one number for all problems."""
    shift = tl.load(state + (2 * SIDE) * num_problems + place, mask=inside, other=0.0)
    rest = tl.load(state + (2 * SIDE + 1) * num_problems + place, mask=inside, other=LOWEST)
    grad = tl.load(state + (4 + SIDE) * num_problems + place, mask=inside, other=0.0)
    return pulling(shift, rest, grad * tl.load(state + 6 * num_problems))


@triton.jit
def own_pull(state, scores, values, place, problem, num_problems, smoothing, SOFT: tl.constexpr):
    """The gradient of the score of one listed cell that counts."""
    label = soft_label(values, place, True, smoothing, SOFT)
    score = tl.load(scores + place)
    pos_shift, pos_rest, pos_grad = side_state(state, problem, num_problems, True, 0)
    neg_shift, neg_rest, neg_grad = side_state(state, problem, num_problems, True, 1)
    pos = tl.where(label > 0, label * exp((-score - pos_shift) - pos_rest), 0.0)
    neg = tl.where(label < 1, (1.0 - label) * exp((score - neg_shift) - neg_rest), 0.0)
    return neg_grad * neg - pos_grad * pos
