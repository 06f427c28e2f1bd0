"""The largest score of each group of neighbouring labels (CUDA): the best labels of a row are in the groups that lead."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.triton.calls import blocks
from manyhot.engines.triton.linear.inputs import launch

# A tile: rows, and groups of labels.
ROWS, GROUPS = 4, 32


def group_maxima(scores: Tensor, bias: Tensor | None, where: Tensor | None, size: int) -> Tensor:
    """float32 ``[R, groups]`` of ``scores [R, C]``, groups of ``size`` labels, a power of two; see the kernel."""
    from manyhot.engines.triton.linear.best_kernel import group_maxima_kernel

    rows, num_labels = scores.shape
    groups = blocks(num_labels, size)
    out = scores.new_empty((rows, groups), dtype=torch.float32)
    across = blocks(groups, GROUPS)
    launch(
        group_maxima_kernel,
        blocks(rows, ROWS) * across,
        (scores, bias, where, out),
        (rows, num_labels, groups, scores.stride(0), across),
        (bias is not None, where is not None, size, GROUPS, ROWS),
        4,
    )
    return out
