"""A row split into pieces that are read with 16-byte loads, for any number of labels (CUDA); for dice loss and R-Drop.

A row is one power-of-two tile of BLOCK labels and, if it is slightly longer, a smaller tile after it. RAGGED rows are
contiguous, but their length is not a multiple of 16 bytes: tiles then start at the first aligned group of WIDTH labels, and the
few labels before and after the aligned groups form a piece of their own. If all labels around the first tile are few, they form
one piece, which is read label by label.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.rows.bits import bitmask_tile
from manyhot.engines.triton.rows.tiles import tile_labels


@triton.jit
def inner_labels(rows, num_labels, RAGGED: tl.constexpr, WIDTH: tl.constexpr):
    """How many labels each row has before its first aligned group, and in aligned groups; both ``[ROWS]``."""
    lead = tl.zeros(rows.shape, tl.int32)
    inner = lead + num_labels
    if RAGGED:
        lead = ((WIDTH - rows * num_labels % WIDTH) % WIDTH).to(tl.int32)
        inner = (num_labels - lead) // WIDTH * WIDTH
    return lead, inner


@triton.jit
def first_group(rows, stride, lead, RAGGED: tl.constexpr, WIDTH: tl.constexpr):
    """Offset of the first aligned group of each row, ``[ROWS]``."""
    begin = rows * stride
    if RAGGED:
        begin = (begin + lead) // WIDTH * WIDTH
    return begin


@triton.jit
def tile_place(rows, stride, lead, first, RAGGED: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Offsets of BLOCK labels from the ``first`` aligned label on, ``[ROWS, BLOCK]``."""
    return first_group(rows, stride, lead, RAGGED, WIDTH)[:, None] + (first + tl.arange(0, BLOCK))[None, :]


@triton.jit
def tile_mask(
    in_rows, inner, first, FULL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, RAGGED: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Mask of the labels that exist, ``[ROWS, BLOCK]``; all of them if FULL."""
    columns = first + tl.arange(0, BLOCK)
    if FULL:
        in_tile = tl.full([ROWS, BLOCK], True, tl.int1)
    elif RAGGED:
        in_tile = in_rows[:, None] & (columns[None, :] // WIDTH < (inner // WIDTH)[:, None])
    else:
        in_tile = in_rows[:, None] & (columns[None, :] < inner[:, None])
    return in_tile


@triton.jit
def piece_where(
    where, where_stride, rows, lead, in_tile, first, HAS_WHERE: tl.constexpr, BLOCK: tl.constexpr, RAGGED: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Mask of the labels that count: those in the tile, and in ``where`` if there is one."""
    counts = in_tile
    if HAS_WHERE:
        place = where + tile_place(rows, where_stride, lead, first, RAGGED, BLOCK, WIDTH)
        counts = tl.load(tl.max_contiguous(place, [1, WIDTH]), mask=in_tile, other=0) != 0
    return counts


@triton.jit
def end_place(rows, in_rows, num_labels, lead, inner, chunk, CHUNKS: tl.constexpr, WIDTH: tl.constexpr):
    """Offsets and mask of the labels before and after the aligned groups, ``[ROWS, 2 WIDTH]``. The first chunk owns the former,
    the last chunk the latter."""
    lanes = tl.arange(0, 2 * WIDTH)[None, :]
    behind = (lead + inner)[:, None] + lanes - WIDTH
    columns = tl.where(lanes < WIDTH, lanes, behind)
    bound = tl.where(lanes < WIDTH, lead[:, None], num_labels)
    own = tl.where(lanes < WIDTH, 0, CHUNKS - 1) == chunk
    return rows[:, None] * num_labels + columns, in_rows[:, None] & (columns < bound) & own


@triton.jit
def around_place(rows, in_rows, num_labels, lead, BLOCK: tl.constexpr, TAIL: tl.constexpr):
    """Offsets and mask of the labels before and after a tile of BLOCK labels that starts at the first aligned group, ``[ROWS,
    TAIL]``. Every row has labels for the whole tile, and at most TAIL others."""
    lanes = tl.arange(0, TAIL)[None, :]
    columns = tl.where(lanes < lead[:, None], lanes, lanes + BLOCK)
    return rows[:, None] * num_labels + columns, in_rows[:, None] & (columns < num_labels)


@triton.jit
def piece_labels(
    labels, label_stride, indices, values, num_labels, rows, in_rows, lead, in_tile, smoothing, first, cursor, stop,
    LABELS: tl.constexpr, HARD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, RAGGED: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Labels of a tile, bool where HARD and smoothed float32 otherwise, and how far the index lists were read.

    Lists may come as "bits" of contiguous scores (``bitmask.bitmask_kernel``).
    """
    if LABELS == "bits":
        begin = first_group(rows, num_labels, lead, RAGGED, WIDTH) + first
        t = in_tile & bitmask_tile(labels, begin, in_rows, ROWS, BLOCK, WIDTH)
    elif RAGGED:
        place = tile_place(rows, num_labels, lead, first, RAGGED, BLOCK, WIDTH)
        t = tl.load(tl.max_contiguous(labels + place, [1, WIDTH]), mask=in_tile, other=0) > 0
    else:
        t, cursor = tile_labels(labels, label_stride, indices, values, rows, first + tl.arange(0, BLOCK), in_tile, smoothing,
                                cursor, stop, LABELS, HARD, ROWS, BLOCK, "", WIDTH)  # fmt: skip
    return t, cursor


@triton.jit
def end_labels(labels, place, there, LABELS: tl.constexpr):
    """Hard labels at these offsets."""
    if LABELS == "bits":
        t = ((tl.load(labels + place // 8, mask=there, other=0).to(tl.int32) >> (place % 8).to(tl.int32)) & 1) != 0
    else:
        t = tl.load(labels + place, mask=there, other=0) > 0
    return t
