"""Host side of the kernel that computes scores and uses them at once: which problems it serves, in tiles of which size."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.engines.linear.problem import LinearProblem
from manyhot.engines.triton.calls import blocks
from manyhot.engines.triton.launch.launcher import interpreted
from manyhot.engines.triton.launch.residency import multiprocessors
from manyhot.engines.triton.linear.inputs import COLS, KernelInputs, Saved, launch

# Everything was measured on Hopper, with hidden size 768.
CAPABILITY = (9, 0)
# Programs that share the listed labels of a row, and hidden units that they read at once.
SHARED, DEPTH = 4, 256


class ProductTile(NamedTuple):
    """Rows and labels per tile, hidden units per step, steps that are loaded ahead, warps, programs per multiprocessor."""

    rows: int
    cols: int
    depth: int
    stages: int
    warps: int
    together: int


# The fastest tile of each mode of the kernel. Two small programs share a multiprocessor: one uses its scores while the other
# multiplies.
TILES = {
    "sums": ProductTile(128, 128, 64, 3, 4, 2),
    "terms": ProductTile(128, 128, 64, 3, 4, 2),
    "gradient": ProductTile(128, 128, 64, 3, 4, 2),
}


# With fewer labels, too few programs run.
LEAST_LABELS = 1 << 15
# With a larger hidden size, the faster product of cuBLAS is worth more than scores that are not written.
LARGEST_SIZE = 1024
# Rows of all tiles, at most, relative to the rows of the problem.
PADDING = 1.25
# Listed labels, at most, per row and block of labels: each is compared with a whole tile. Five of 32,768 are 0.31.
LISTED = 1 / 3


def uses_tiles(problem: LinearProblem, inputs: KernelInputs) -> bool:
    """Whether the kernel serves a problem and is faster there than cuBLAS followed by kernels that read the scores."""
    parts = (problem.hidden, problem.weight)
    if not inputs.lean or parts[0].dtype != parts[1].dtype or any(part.stride(1) != 1 for part in parts):
        return False
    # Tensor descriptors need rows that start at multiples of 16 bytes.
    aligned = all(part.stride(0) * part.element_size() % 16 == 0 and part.data_ptr() % 16 == 0 for part in parts)
    if not aligned or any(parts[0].shape[1] % tile.depth for tile in TILES.values()):
        return False
    if interpreted():
        return True
    half = problem.hidden.dtype != torch.float32
    return half and _capability(problem.hidden.device) == CAPABILITY and faster(problem, inputs)


def faster(problem: LinearProblem, inputs: KernelInputs) -> bool:
    """Whether tiles are faster than cuBLAS; the limits are above."""
    assert inputs.indices is not None
    rows, num_labels = max(problem.num_rows, 1), problem.num_labels
    padded = blocks(rows, TILES["sums"].rows) * TILES["sums"].rows
    return (
        num_labels >= LEAST_LABELS
        and problem.hidden.shape[1] <= LARGEST_SIZE
        and padded <= PADDING * rows
        and inputs.indices.shape[0] * COLS <= LISTED * rows * num_labels
    )


@functools.cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def _multiprocessors(x: Tensor) -> int:
    return multiprocessors(x.get_device(), of_context=False) if x.is_cuda else 1


def listed_scores(problem: LinearProblem, inputs: KernelInputs) -> Tensor:
    """The scores of the listed labels, float32 ``[P]``."""
    from manyhot.engines.triton.linear.product_kernel import listed_scores_kernel

    hidden, weight, bias = problem.hidden, problem.weight, problem.bias
    assert inputs.indices is not None
    out = hidden.new_empty(inputs.indices.shape, dtype=torch.float32)
    launch(
        listed_scores_kernel,
        problem.num_rows * SHARED,
        (hidden, weight, bias, inputs.indices, inputs.offsets, out),
        (hidden.stride(0), weight.stride(0), SHARED),
        (bias is not None, hidden.shape[1], DEPTH),
        4,
    )
    return out


def tile_sums(problem: LinearProblem, inputs: KernelInputs, cuts: Tensor | None, kept: Tensor | None) -> tuple[Tensor, int]:
    """Forward: the pairs of the tiles, ``[R, tiles, 2]``, and the labels of a tile. Terms that are kept go to ``kept``."""
    tile = TILES["terms" if problem.kept else "sums"]
    parts = problem.hidden.new_empty((problem.num_rows, blocks(problem.num_labels, tile.cols), 2), dtype=torch.float32)
    for mode, start, stop in (("terms", 0, problem.kept), ("sums", problem.kept, problem.num_labels)):
        if start < stop:
            tensors = (cuts, None, None, None, None, None, None, parts, kept)
            _launch(problem, inputs, tile, mode, (start, stop), tensors)
    return parts, tile.cols


def tile_gradient(
    problem: LinearProblem,
    inputs: KernelInputs,
    memory: Saved,
    pulls: tuple[Tensor, Tensor | None],
    chunk: tuple[int, int],
    grad: Tensor,
) -> None:
    """Backward: the gradient of the scores of a chunk."""
    tensors = (memory.cuts, inputs.values, inputs.pos, memory.listed, memory.state, *pulls, None, grad)
    _launch(problem, inputs, TILES["gradient"], "gradient", chunk, tensors)


def _launch(
    problem: LinearProblem, inputs: KernelInputs, tile: ProductTile, mode: str, chunk: tuple[int, int], tensors: Any
) -> None:
    from manyhot.engines.triton.linear.product_kernel import product_kernel

    start, stop = chunk
    cuts, values, pos, listed, state, grad_pos, grad_neg, parts, target = tensors
    labels, _, pos_kind, _ = inputs.kinds
    row_blocks = blocks(problem.num_rows, tile.rows)
    tiles = row_blocks * blocks(stop - start, tile.cols)
    pos_number, neg_number, _ = inputs.numbers
    # Without a target its descriptor is never used.
    matrices = (problem.hidden, problem.weight, problem.hidden if target is None else target)
    launch(
        product_kernel,
        min(tiles, tile.together * _multiprocessors(problem.hidden)),
        (*matrices, problem.bias, inputs.indices, values, cuts, pos, listed, state, grad_pos, grad_neg, parts),
        (problem.num_rows, stop, start, blocks(problem.num_labels, tile.cols), blocks(problem.num_labels, COLS), row_blocks,
         tiles, pos_number, neg_number),
        (mode, labels, pos_kind, problem.bias is not None, grad_neg is not None, problem.hidden.shape[1], COLS, *tile[:4]),
        tile.warps,
        ((tile.rows, tile.depth), (tile.cols, tile.depth), (tile.rows, tile.cols // 2)),
    )  # fmt: skip
