"""The kernel of ``best`` (CUDA)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def group_maxima_kernel(
    scores, bias, where, out, tops, flags,
    num_rows, num_labels, num_groups, stride, where_stride, col_blocks,
    HAS_BIAS: tl.constexpr, HAS_WHERE: tl.constexpr, HAS_FLAGS: tl.constexpr, NAN_FIRST: tl.constexpr,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """``out[r, g]``: the key of the largest of ``scores + bias`` among the labels of group g that count, int64. Keys sort like
    the maxima; of equal maxima, the first group has the highest key. NaN is infinite if NAN_FIRST, else it does not count.
    ``tops [r, tile]``: the highest key of each tile of GROUPS groups. ``flags [r, l]`` are cleared."""
    program = tl.program_id(0)
    rows = (program // col_blocks * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    first = program % col_blocks * GROUPS
    labels = first * GROUP + tl.arange(0, GROUPS * GROUP)
    counts = labels < num_labels
    inside = (rows < num_rows)[:, None] & counts[None, :]
    s = tl.load(scores + rows[:, None] * stride + labels[None, :], mask=inside, other=-float("inf")).to(tl.float32)
    if HAS_FLAGS:
        empty = tl.zeros([ROWS, GROUPS * GROUP], dtype=tl.uint8)
        tl.store(flags + rows[:, None] * num_labels + labels[None, :], empty, mask=inside)
    if HAS_BIAS:
        s += tl.load(bias + labels, mask=counts, other=0).to(tl.float32)[None, :]
    # ``tl.max`` would ignore NaN.
    s = tl.where(s == s, s, float("inf") if NAN_FIRST else -float("inf"))
    if HAS_WHERE:
        counted = tl.load(where + rows[:, None] * where_stride + labels[None, :], mask=inside, other=0) != 0
        s = tl.where(counted, s, -float("inf"))
    best = tl.max(tl.reshape(s, [ROWS, GROUPS, GROUP]), axis=2)
    groups = first + tl.arange(0, GROUPS)
    # As integers, the bits of floats sort like the floats if those of negative ones are flipped. Both zeros become +0.
    bits = tl.where(best == 0, 0.0, best).to(tl.int32, bitcast=True)
    key = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    target = out + rows[:, None] * num_groups + groups[None, :]
    key = (key << 32) | (0xFFFFFFFF - groups.to(tl.int64))[None, :]
    tl.store(target, key, mask=(rows < num_rows)[:, None] & (groups < num_groups)[None, :])
    tl.store(tops + rows * col_blocks + program % col_blocks, tl.max(key, axis=1), mask=rows < num_rows)


@triton.jit
def leading_labels_kernel(
    scores, bias, where, keys, tops, values, places,
    num_labels, num_groups, stride, where_stride, num_tiles,
    HAS_BIAS: tl.constexpr, HAS_WHERE: tl.constexpr, NAN_FIRST: tl.constexpr,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, K: tl.constexpr, PADDED: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """The K best labels of one row, best first, from the keys of its groups and tiles: the K best tiles, the K best groups in
    them, the K best labels in those. PADDED and TILES are powers of two, at least K and the number of tiles."""
    row = tl.program_id(0).to(tl.int64)
    lowest = -9223372036854775808
    ranks = tl.arange(0, PADDED)
    tiles = tl.arange(0, TILES)
    key = tl.load(tops + row * num_tiles + tiles, mask=tiles < num_tiles, other=lowest)
    # Past the last group, if there are fewer than K tiles.
    first = tl.full([PADDED], 4294967295, dtype=tl.int64)
    for rank in range(K):
        best = tl.max(key, axis=0)
        tile = (4294967295 - (best & 4294967295)) // GROUPS
        first = tl.where((ranks == rank) & (best != lowest), tile * GROUPS, first)
        key = tl.where(tiles == tile, lowest, key)
    groups = first[:, None] + tl.arange(0, GROUPS)[None, :]
    key = tl.load(keys + row * num_groups + groups, mask=groups < num_groups, other=lowest)
    first = tl.full([PADDED], 4294967295, dtype=tl.int64) * GROUP
    for rank in range(K):
        best = tl.max(tl.max(key, axis=1), axis=0)
        first = tl.where((ranks == rank) & (best != lowest), (4294967295 - (best & 4294967295)) * GROUP, first)
        key = tl.where(key == best, lowest, key)
    labels = first[:, None] + tl.arange(0, GROUP)[None, :]
    inside = labels < num_labels
    s = tl.load(scores + row * stride + labels, mask=inside, other=0).to(tl.float32)
    if HAS_BIAS:
        s += tl.load(bias + labels, mask=inside, other=0).to(tl.float32)
    if HAS_WHERE:
        counted = tl.load(where + row * where_stride + labels, mask=inside, other=0) != 0
        s = tl.where(counted, s, -float("inf"))
    if not NAN_FIRST:
        s = tl.where(s == s, s, -float("inf"))
    bits = tl.where(s == 0, 0.0, s).to(tl.int32, bitcast=True)
    bits = tl.where(s == s, bits ^ ((bits >> 31) & 0x7FFFFFFF), 0x7FFFFFFF)
    key = tl.where(inside, (bits.to(tl.int64) << 32) | (4294967295 - labels), lowest)
    for rank in range(K):
        best = tl.max(tl.max(key, axis=1), axis=0)
        high = (best >> 32).to(tl.int32)
        tl.store(values + row * K + rank, (high ^ ((high >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True))
        tl.store(places + row * K + rank, 4294967295 - (best & 4294967295))
        key = tl.where(key == best, lowest, key)
