"""Ranks of scores within their rows: host side."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.triton.launch.gate import GATE as GATE
from manyhot.engines.triton.launch.gate import LaunchError, interpreted, refusal
from manyhot.engines.triton.launch.launcher import launcher
from manyhot.engines.triton.plans import blocks

TILE, WARPS = 8192, 8


def count_higher(scores: Tensor, offsets: Tensor, own: Tensor) -> tuple[Tensor, Tensor] | None:
    """For some scores of each row: how many scores of the row are at least as high, and how many are higher.

    Args:
        scores: ``[R, L]``.
        offsets: int64 ``[R + 1]``: the entries of ``own`` that belong to each row.
        own: ``[P]``, in the type of the scores.

    Returns:
        Both counts, int64 ``[P]``; None where the kernel cannot serve the call.
    """
    if scores.dtype != torch.float32 or scores.is_cuda == interpreted() or scores.stride(-1) != 1 or not own.numel():
        return None
    if refusal(scores.get_device() if scores.is_cuda else None):
        return None
    try:
        return launch(scores, offsets.contiguous(), own.contiguous())
    except LaunchError as failure:
        GATE.close(failure)
        return None


def launch(scores: Tensor, offsets: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Launch the kernel of ``count_higher``."""
    from manyhot.engines.triton.rows.ranks import rank_kernel

    counts = torch.zeros(2, own.shape[0], dtype=torch.int64, device=own.device)
    chunks = blocks(scores.shape[1], TILE)
    numbers = (*scores.shape, scores.stride(0))
    types = (scores.device, scores.dtype, offsets.dtype, own.dtype, counts.dtype, counts.dtype)
    start = launcher(rank_kernel, (chunks, TILE), WARPS, types, numbers)
    start(scores.shape[0] * chunks, scores, (offsets, own, counts[0], counts[1]), numbers)
    return counts[0], counts[1]
