"""Counts of the scores above a cut, by label and by row: host side."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.engines.triton.calls import type_of
from manyhot.engines.triton.launch.gate import GATE as GATE
from manyhot.engines.triton.launch.gate import LaunchError, interpreted, refusal
from manyhot.engines.triton.launch.launcher import launcher
from manyhot.engines.triton.plans import blocks

# Labels and rows of a tile and warps per program, by bytes per score; the same with dense labels.
TILES = {1: (2048, 8, 4), 2: (1024, 8, 4), 4: (1024, 8, 4)}
TRUTH_TILES = {2: (512, 8, 4), 4: (512, 8, 4)}
# Programs to divide the scores among, and the most rows of a program: counts of rows share an integer.
PROGRAMS, MOST_ROWS = 4096, 512
LISTED, LISTED_WARPS = 256, 4
COUNTED = (torch.float32, torch.bfloat16, torch.float16, torch.bool)


class Counts(NamedTuple):
    """Hits, predicted and positive: int32 ``[3, L]`` by label and ``[3, R]`` by row. ``late``, int32 ``[3]``: R minus the first
    row with NaN, and minus the first with a label that is not hard, 0 if there is none; then 0."""

    by_label: Tensor
    by_row: Tensor
    late: Tensor


def count_above(
    scores: Tensor,
    cut: float | Tensor,
    *,
    truth: Tensor | None = None,
    lists: tuple[Tensor, Tensor] | None = None,
    where: Tensor | None = None,
    by_row: bool = True,
    equal: bool = False,
) -> Counts | None:
    """Count the scores that are above ``cut`` and the positives among them, in one read. None if no kernel supports the call.

    Args:
        scores: ``[R, L]``, or bool, where True is above 0.
        cut: a number of the type of the scores, or float32 ``[L]``.
        truth: dense labels ``[R, L]``.
        lists: the rows and the labels of positives, int64 ``[P]`` each.
        where: bool ``[R, L]``; False is not counted.
        by_row: also count by row. Without dense labels only the predictions need it.
        equal: a score that is equal to the cut counts as above; not with ``lists``.
    """
    if not counts_here(scores):
        return None
    tables = [each for each in (scores, truth, where) if each is not None]
    if any(each.stride(1) != 1 for each in tables) or max(scores.shape) >= 1 << 31:
        return None
    try:
        return launch(scores, cut, truth, lists, where, (equal, by_row or truth is not None))
    except LaunchError as failure:
        GATE.close(failure)
        return None


def counts_here(scores: Tensor) -> bool:
    """Whether the kernel counts scores of this type and device."""
    if scores.dtype not in COUNTED or scores.is_cuda == interpreted() or not scores.numel():
        return False
    return not refusal(scores.get_device() if scores.is_cuda else None)


def launch(
    scores: Tensor,
    cut: float | Tensor,
    truth: Tensor | None,
    lists: tuple[Tensor, Tensor] | None,
    where: Tensor | None,
    kinds: tuple[bool, bool],
) -> Counts:
    """Launch the kernels of ``count_above``; ``kinds`` are ``equal`` and ``by_row``."""
    from manyhot.engines.triton.rows.counts import count_kernel, listed_kernel

    rows, labels = scores.shape
    out = torch.zeros(3 * labels + 3 * rows + 3, dtype=torch.int32, device=scores.device)
    cuts, number = (cut, 0.0) if isinstance(cut, Tensor) else (None, float(cut))
    block, tall, warps = (TILES if truth is None else TRUTH_TILES)[scores.element_size()]
    across = blocks(labels, block)
    rows_each = min(MOST_ROWS, blocks(blocks(rows, blocks(PROGRAMS, across)), tall) * tall)
    strides = (scores.stride(0), 0 if truth is None else truth.stride(0), 0 if where is None else where.stride(0))
    others = (cuts, truth, where, out)
    numbers = (number, rows, labels, *strides, across, rows_each)
    constants = (kinds[0], cuts is not None, truth is not None, where is not None, kinds[1], tall, block)
    types = (scores.device, scores.dtype, *map(type_of, others))
    launcher(count_kernel, constants, warps, types, numbers)(across * blocks(rows, rows_each), scores, others, numbers)
    if lists is not None and lists[0].numel():
        own = (cuts, *lists, where, out)
        own_numbers = (number, rows, labels, strides[0], strides[2], lists[0].numel())
        start = launcher(
            listed_kernel,
            (cuts is not None, where is not None, LISTED),
            LISTED_WARPS,
            (scores.device, scores.dtype, *map(type_of, own)),
            own_numbers,
        )
        start(blocks(lists[0].numel(), LISTED), scores, own, own_numbers)
    ends = (3 * labels, 3 * labels + 3 * rows)
    return Counts(out[: ends[0]].view(3, labels), out[ends[0] : ends[1]].view(3, rows), out[ends[1] :])
