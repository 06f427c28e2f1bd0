"""Index lists without a label tile (CUDA): all labels of a row are negatives except the few listed ones.

A tile is summed in groups of neighbours held by one thread. Groups with a listed label are left out and summed again without
it. That is exact, since nothing is subtracted, and far cheaper than comparing every label with every listed one. Likewise the
gradient is first written as if all labels were negatives, and the listed entries are then overwritten.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import exp

# Kernel arguments that hold index lists. The list of a row may begin at any address, so kernels are not specialised on the
# alignment of the first list, and all lists share a kernel.
LISTS = ("offsets", "indices", "values")
# Listed labels processed at once, with all their loads in flight together; longer lists take several rounds.
AT_ONCE = tl.constexpr(8)
# Entries compared at once, after a binary search in a list has come this close.
NEAR = tl.constexpr(64)


@triton.jit
def listed_terms(
    x, indices, x_stride, num_labels, row, columns, in_tile, c, cursor, stop,
    SHIFTED: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """``e^s`` of one row's tile as if no label were listed, and the actual sums of both sides, ``[1]``."""
    s = tl.load(x + row * x_stride + columns[None, :], mask=in_tile, other=-float("inf")).to(tl.float32)
    if SHIFTED:
        s = s - c[:, None]
    terms = exp(s)
    sums = tl.sum(tl.reshape(terms, [BLOCK // GROUP, GROUP]), axis=1)
    pos, neg = listed_sums(
        x + row * x_stride, indices, num_labels, tl.min(columns), c, cursor, stop, sums, SHIFTED, BLOCK, GROUP
    )
    return terms, pos, neg


@triton.jit
def find_listed(indices, start, stop, begin, end):
    """The part of a row's list, itself from ``start`` to ``stop``, with the labels from ``begin`` to ``end``."""
    low = _approach(indices, start, stop, begin)
    entries = low + tl.arange(0, NEAR)
    place = tl.load(indices + entries, mask=entries < stop, other=end)
    here = low + tl.sum((place < begin).to(tl.int32), axis=0)
    after = low + tl.sum((place < end).to(tl.int32), axis=0)
    if after == low + NEAR:
        low = _approach(indices, after, stop, end)
        entries = low + tl.arange(0, NEAR)
        place = tl.load(indices + entries, mask=entries < stop, other=end)
        after = low + tl.sum((place < end).to(tl.int32), axis=0)
    return here, after


@triton.jit
def _approach(indices, low, high, label):
    """Binary search: an entry at most NEAR before the first one that is not less than ``label``."""
    while low + NEAR < high:
        middle = (low + high) // 2
        before = tl.load(indices + middle) < label
        low = tl.where(before, middle + 1, low)
        high = tl.where(before, high, middle)
    return low


@triton.jit
def listed_sums(
    x, indices, num_labels, first, c, cursor, stop, sums, SHIFTED: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """The sums of both sides, ``[1]``, from the group sums in which every label counts as a negative."""
    pos, neg, start = tl.zeros([1], tl.float32), tl.zeros([1], tl.float32), cursor
    while start < stop:
        more, other, sums = _take(x, indices, num_labels, first, c, cursor, start, stop, sums, SHIFTED, BLOCK, GROUP)
        pos += more
        neg += other
        start += AT_ONCE
    return pos, neg + tl.sum(sums, axis=0)


@triton.jit
def _take(
    x, indices, num_labels, first, c, origin, start, stop, sums,
    SHIFTED: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """For the next listed labels: the sum of their terms, of their unlisted neighbours' terms, and the other groups' sums."""
    entries = start + tl.arange(0, AT_ONCE)
    place = tl.load(indices + entries, mask=entries < stop, other=-1)
    here = (entries < stop) & (place < first + BLOCK)
    own = tl.load(x + place, mask=here, other=float("inf")).to(tl.float32)
    before = tl.load(indices + entries - 1, mask=here & (entries > origin), other=-1)
    fresh = here & ((before < 0) | (before // GROUP != place // GROUP))
    beside = (place // GROUP)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    around = tl.load(x + beside, mask=fresh[:, None] & (beside < num_labels), other=-float("inf")).to(tl.float32)
    if SHIFTED:
        own, around = own - c, around - c[:, None]
    around = exp(around)
    for step in tl.static_range(GROUP):
        listed = tl.load(indices + entries + step, mask=entries + step < stop, other=-1)
        around = tl.where(beside == listed[:, None], 0.0, around)
    groups = first // GROUP + tl.arange(0, BLOCK // GROUP)
    hit = tl.full([BLOCK // GROUP], False, tl.int1)
    for step in tl.static_range(AT_ONCE):
        listed = tl.load(indices + start + step, mask=start + step < stop, other=-1)
        hit = hit | (groups == tl.where(listed < 0, -1, listed // GROUP).to(tl.int32))
    sums = tl.where(hit, 0.0, sums)
    one = tl.zeros([1], tl.float32)
    return one + tl.sum(exp(-own), axis=0), one + tl.sum(tl.sum(around, axis=1), axis=0), sums


@triton.jit
def store_listed(
    out_grad, x, indices, x_stride, num_labels, row, first, c, factor, cursor, stop,
    SHIFTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Overwrite the gradient at the listed labels, after all threads have written theirs."""
    tl.debug_barrier()
    after = first + BLOCK
    start = cursor
    while start < stop:
        entries = start + tl.arange(0, AT_ONCE)
        place = tl.load(indices + entries, mask=entries < stop, other=after)
        own = tl.load(x + row * x_stride + place, mask=place < after, other=float("inf")).to(tl.float32)
        if SHIFTED:
            own = own - c
        grad = -exp(-own) * factor
        tl.store(out_grad + row * num_labels + place, grad.to(out_grad.dtype.element_ty), mask=place < after)
        start += AT_ONCE
