"""The largest score of each group of neighbouring labels (CUDA): the best labels of a row are in the groups that lead."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.triton.calls import blocks
from manyhot.engines.triton.linear.inputs import launch

# A tile: rows, and groups of labels.
ROWS, GROUPS = 4, 32


def group_maxima(scores: Tensor, bias: Tensor | None, where: Tensor | None, size: int, *, nan_first: bool = True) -> Tensor:
    """int64 ``[R, groups]``, the keys of the maxima of ``scores [R, C]`` plus ``bias [C]`` where ``where [C]`` or ``[R, C]``;
    groups have ``size`` labels, a power of two. See the kernel."""
    from manyhot.engines.triton.linear.best_kernel import group_maxima_kernel

    rows, num_labels = scores.shape
    groups = blocks(num_labels, size)
    out = scores.new_empty((rows, groups), dtype=torch.int64)
    across = blocks(groups, GROUPS)
    step = 0 if where is None or where.ndim == 1 else where.stride(0)
    launch(
        group_maxima_kernel,
        blocks(rows, ROWS) * across,
        (scores, bias, where, out),
        (rows, num_labels, groups, scores.stride(0), step, across),
        (bias is not None, where is not None, nan_first, size, GROUPS, ROWS),
        4,
    )
    return out
