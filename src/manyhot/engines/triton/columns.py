"""The best scores of each label, and the best of the candidates of each label: host side."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.engines.triton.launch.gate import GATE as GATE
from manyhot.engines.triton.launch.gate import LaunchError, interpreted, refusal
from manyhot.engines.triton.launch.launcher import launcher
from manyhot.engines.triton.plans import blocks

# Scores of a tile, which a program keeps in registers, and its warps; and the most rows.
TILE, WARPS, MOST_ROWS = 8192, 4, 4096
# Rows and labels of a tile of the kernel that lists the scores, and its warps.
LISTED_ROWS, LISTED_LABELS, LISTED_WARPS = 16, 128, 4
# A thread keeps the scores of labels that want at most FEW, if these are more than half of very many labels; labels of a
# program, and warps. With 30,000 labels this was slower.
FEW, FEW_FROM, FEW_LABELS, FEW_WARPS = 6, 100_000, 256, 4
# Labels of a program that compares candidates, how many candidates at a time, and warps.
LABELS, BLOCK, SEGMENT_WARPS = 32, 16, 4
_LOWEST = -(1 << 63)


class ColumnBest(NamedTuple):
    """The highest scores of each label, falling, with their rows and labels; ``offsets`` of the labels' segments, each of which
    has one more place at its start: with the score ``inf`` and the row -1."""

    scores: Tensor
    rows: Tensor
    label: Tensor
    offsets: Tensor


def column_best(scores: Tensor, wanted: Tensor) -> ColumnBest | None:
    """The ``wanted [L]`` highest scores of each label, from 1 to all; of equal ones at the end, any. None if no kernel supports
    the call.

    Args:
        scores: ``[R, L]`` without NaN.
        wanted: int64 ``[L]``.
    """
    rows = scores.shape[0]
    if scores.dtype != torch.float32 or scores.is_cuda == interpreted() or scores.stride(-1) != 1 or not 0 < rows <= MOST_ROWS:
        return None
    if type(scores) is not Tensor or refusal(scores.get_device() if scores.is_cuda else None):
        return None
    offsets = torch.cat([wanted.new_zeros(1), (wanted + 1).cumsum(0)])
    try:
        entries = launch_best(scores, wanted.int(), offsets, int(offsets[-1]))
    except LaunchError as failure:
        GATE.close(failure)
        return None
    label = torch.arange(len(wanted), device=scores.device).repeat_interleave(offsets.diff(), output_size=len(entries))
    # By label, then by falling score; place 0 first.
    order = ((label << 32) + (entries >> 32)).sort().indices
    entries = entries[order]
    own_rows = torch.where(entries == _LOWEST, -1, entries & 0xFFFFFFFF)
    return ColumnBest(_scores_of(entries), own_rows, label, offsets)


def _scores_of(entries: Tensor) -> Tensor:
    """The scores that the kernel wrote as falling numbers; ``inf`` for the lowest."""
    keys = -1 - (entries >> 32)
    bits = torch.where(entries == _LOWEST, 0x7F800000, keys ^ ((keys >> 31) & 0x7FFFFFFF))
    return bits.int().view(torch.float32)


def launch_best(scores: Tensor, wanted: Tensor, offsets: Tensor, total: int) -> Tensor:
    """Launch the kernels of ``column_best``: int64 entries with score and row, not sorted."""
    from manyhot.engines.triton.rows.columns import column_top_kernel

    out, labels = offsets.new_empty(total), scores.shape[1]
    others = (wanted > FEW).nonzero().flatten() if labels >= FEW_FROM else wanted
    if 2 * len(others) > labels:
        _launch_any(scores, wanted, offsets, out)
        return out
    numbers = (*scores.shape, scores.stride(0))
    _start(column_top_kernel, blocks(labels, FEW_LABELS), (scores, wanted, offsets, out), numbers, (FEW_LABELS,), FEW_WARPS)
    if len(others):
        _launch_any(scores.index_select(1, others), wanted[others], offsets[others], out)
    return out


def _launch_any(scores: Tensor, wanted: Tensor, offsets: Tensor, out: Tensor) -> None:
    """Write the entries of labels that may want any number of scores; ``offsets`` are where their segments start."""
    from manyhot.engines.triton.rows.columns import column_best_kernel, column_level_kernel

    rows, labels = scores.shape
    tall = 1 << (rows - 1).bit_length()
    wide = max(1, TILE // tall)
    numbers = (rows, labels, scores.stride(0))
    levels = wanted.new_empty((2, labels))
    _start(column_level_kernel, blocks(labels, wide), (scores, wanted, levels), numbers, (tall, wide), WARPS)
    given, tile = (scores, wanted, offsets, levels, out), (LISTED_ROWS, LISTED_LABELS)
    _start(column_best_kernel, blocks(labels, LISTED_LABELS), given, numbers, tile, LISTED_WARPS)


def segment_choice(value: Tensor, clear: Tensor, cut: Tensor, offsets: Tensor, slack: float) -> Tensor | None:
    """int64 ``[L]``: the place of the best entry of each segment. Of the entries with nearly the best value (up to the share
    ``slack``), those with the largest ``clear`` stay, of them those with the best value, of them the one with the highest cut.
    None if a launch fails.

    Args:
        value: float64 ``[N]``, like ``clear`` and ``cut``.
        offsets: int64 ``[L + 1]``; no segment is empty.
    """
    try:
        best = launch_max(value, offsets)
        return launch_choice(value, clear, cut, best - slack * best.abs(), offsets)
    except LaunchError as failure:
        GATE.close(failure)
        return None


def launch_max(value: Tensor, offsets: Tensor) -> Tensor:
    """The highest value of each segment."""
    from manyhot.engines.triton.rows.columns import segment_max_kernel

    labels = len(offsets) - 1
    out = value.new_empty(labels)
    _start(segment_max_kernel, blocks(labels, LABELS), (value, offsets, out), (labels,), (LABELS, BLOCK), SEGMENT_WARPS)
    return out


def launch_choice(value: Tensor, clear: Tensor, cut: Tensor, bound: Tensor, offsets: Tensor) -> Tensor:
    """The place of the best entry of each segment among those that reach the segment's ``bound``."""
    from manyhot.engines.triton.rows.columns import segment_choice_kernel

    labels = len(offsets) - 1
    out = offsets.new_empty(labels)
    given = (value, clear, cut, bound, offsets, out)
    _start(segment_choice_kernel, blocks(labels, LABELS), given, (labels,), (LABELS, BLOCK), SEGMENT_WARPS)
    return out


def _start(kernel: Any, programs: int, tensors: tuple[Tensor, ...], numbers: Any, constants: Any, warps: int) -> None:
    types = (tensors[0].device, *[tensor.dtype for tensor in tensors])
    launcher(kernel, constants, warps, types, numbers)(programs, tensors[0], tensors[1:], numbers)
