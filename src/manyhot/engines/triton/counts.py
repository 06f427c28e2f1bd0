"""Counts of the scores above a cut, by label and by row: host side."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.engines.triton.calls import type_of
from manyhot.engines.triton.launch.gate import GATE as GATE
from manyhot.engines.triton.launch.gate import LaunchError, interpreted, refusal
from manyhot.engines.triton.launch.launcher import launcher
from manyhot.engines.triton.plans import blocks

# Labels and rows of a tile and warps per program, by bytes per score and whether rows are counted, too; programs to divide
# the scores among.
TILES = {
    (1, False): (2048, 8, 4),
    (1, True): (2048, 8, 4),
    (2, False): (2048, 4, 8),
    (2, True): (1024, 4, 4),
    (4, False): (1024, 4, 4),
    (4, True): (1024, 8, 4),
}
PROGRAMS = 4096
# Dense labels of a program, and index lists of a program; warps.
DENSE, DENSE_WARPS = 8192, 4
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
        by_row: count the predictions by row, too.
        equal: a score that is equal to the cut counts as above; not with labels.
    """
    if not counts_here(scores):
        return None
    tables = [each for each in (scores, truth, where) if each is not None]
    if any(each.stride(1) != 1 for each in tables) or max(scores.shape) >= 1 << 31:
        return None
    given = (*tables, *(lists or ()))
    if any(type(each) is not Tensor or each.device != scores.device for each in given):
        return None
    try:
        return launch(scores, cut, truth, lists, where, (equal, by_row))
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
    from manyhot.engines.triton.rows.counts import count_kernel

    rows, labels = scores.shape
    out = torch.zeros(3 * labels + 3 * rows + 3, dtype=torch.int32, device=scores.device)
    cuts, number = (cut, 0.0) if isinstance(cut, Tensor) else (None, float(cut))
    block, tall, warps = TILES[scores.element_size(), kinds[1]]
    across = blocks(labels, block)
    rows_each = blocks(blocks(rows, blocks(PROGRAMS, across)), tall) * tall
    steps = (scores.stride(0), 0 if where is None else where.stride(0))
    constants = (kinds[0], cuts is not None, where is not None, kinds[1], tall, block)
    numbers = (number, rows, labels, *steps, across, rows_each)
    _start(count_kernel, across * blocks(rows, rows_each), (scores, cuts, where, out), numbers, constants, warps)
    if truth is not None:
        _add_dense(truth, scores, cuts, where, out, number)
    if lists is not None and lists[0].numel():
        _add_listed(lists, scores, cuts, where, out, number)
    ends = (3 * labels, 3 * labels + 3 * rows)
    return Counts(out[: ends[0]].view(3, labels), out[ends[0] : ends[1]].view(3, rows), out[ends[1] :])


def _add_dense(truth: Tensor, scores: Tensor, cuts: Tensor | None, where: Tensor | None, out: Tensor, cut: float) -> None:
    """Add the hits and positives of dense labels."""
    from manyhot.engines.triton.rows.counts import truth_kernel

    rows, labels = scores.shape
    across = blocks(labels, DENSE)
    steps = (truth.stride(0), scores.stride(0), 0 if where is None else where.stride(0))
    constants = (cuts is not None, where is not None, DENSE)
    numbers = (cut, rows, labels, *steps, across)
    _start(truth_kernel, rows * across, (truth, scores, cuts, where, out), numbers, constants, DENSE_WARPS)


def _add_listed(
    lists: tuple[Tensor, Tensor], scores: Tensor, cuts: Tensor | None, where: Tensor | None, out: Tensor, cut: float
) -> None:
    """Add the hits and positives of index lists."""
    from manyhot.engines.triton.rows.counts import listed_kernel

    size = lists[0].numel()
    numbers = (cut, *scores.shape, scores.stride(0), 0 if where is None else where.stride(0), size)
    constants = (cuts is not None, where is not None, LISTED)
    _start(listed_kernel, blocks(size, LISTED), (scores, cuts, *lists, where, out), numbers, constants, LISTED_WARPS)


def _start(kernel: Any, programs: int, tensors: tuple[Any, ...], numbers: Any, constants: Any, warps: int) -> None:
    types = (tensors[0].device, *map(type_of, tensors))
    launcher(kernel, constants, warps, types, numbers)(programs, tensors[0], tensors[1:], numbers)
