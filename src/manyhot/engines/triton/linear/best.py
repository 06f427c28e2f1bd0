"""The best labels of each row (CUDA): they are in the groups of neighbouring labels that have the largest scores."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.triton.calls import blocks
from manyhot.engines.triton.linear.inputs import launch

# A tile: rows, and groups of labels.
ROWS, GROUPS = 4, 32
# The most labels that are wanted and the most tiles of a row if one program finds a row's best; it keeps them in registers.
MOST_WANTED, MOST_TILES = 64, 8192
# A program has one warp up to this many keys.
ONE_WARP = 1024


def group_maxima(
    scores: Tensor, bias: Tensor | None, where: Tensor | None, size: int, *, nan_first: bool, flags: Tensor | None
) -> tuple[Tensor, Tensor]:
    """int64 ``[R, groups]``, the keys of the maxima of ``scores [R, C]`` plus ``bias [C]`` where ``where [C]`` or ``[R, C]``;
    and ``[R, tiles]``, the highest of each tile. Groups have ``size`` labels, a power of two. Clears the bool tensor
    ``flags [R, C]``. See the kernel."""
    from manyhot.engines.triton.linear.best_kernel import group_maxima_kernel

    rows, num_labels = scores.shape
    groups = blocks(num_labels, size)
    across = blocks(groups, GROUPS)
    out, tops = (scores.new_empty((rows, width), dtype=torch.int64) for width in (groups, across))
    launch(
        group_maxima_kernel,
        blocks(rows, ROWS) * across,
        (scores, bias, where, out, tops, flags),
        (rows, num_labels, groups, scores.stride(0), _step(where), across),
        (bias is not None, where is not None, flags is not None, nan_first, size, GROUPS, ROWS),
        4,
    )
    return out, tops


def leading_labels(
    scores: Tensor, bias: Tensor | None, where: Tensor | None, size: int, k: int, *, nan_first: bool, flags: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """``(values, places)``, float32 and int64 ``[R, k]``, best first, ties to the lower place; None if too many are wanted.
    Clears the bool tensor ``flags [R, C]``."""
    from manyhot.engines.triton.linear.best_kernel import leading_labels_kernel

    rows, num_labels = scores.shape
    if k > MOST_WANTED or blocks(num_labels, size * GROUPS) > MOST_TILES:
        return None
    keys, tops = group_maxima(scores, bias, where, size, nan_first=nan_first, flags=flags)
    values, places = scores.new_empty((rows, k), dtype=torch.float32), keys.new_empty((rows, k))
    padded, tiles = (1 << (most - 1).bit_length() for most in (k, tops.shape[1]))
    largest = max(padded * size, tiles)
    launch(
        leading_labels_kernel,
        rows,
        (scores, bias, where, keys, tops, values, places),
        (num_labels, keys.shape[1], scores.stride(0), _step(where), tops.shape[1]),
        (bias is not None, where is not None, nan_first, size, GROUPS, k, padded, tiles),
        1 if largest <= ONE_WARP else 4 if largest <= 4 * ONE_WARP else 8,
    )
    return values, places


def _step(where: Tensor | None) -> int:
    """The stride of ``where`` between rows; 0 for one row that is used for all."""
    return 0 if where is None or where.ndim == 1 else where.stride(0)
