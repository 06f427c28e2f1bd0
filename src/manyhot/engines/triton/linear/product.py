"""Host side of the kernel that computes scores and uses them at once: which problems it serves, in tiles of which size."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.engines.linear.problem import LinearProblem
from manyhot.engines.triton.calls import blocks
from manyhot.engines.triton.launch.launcher import interpreted
from manyhot.engines.triton.linear.inputs import COLS, KernelInputs, Saved, launch

# The device the tiles were measured on: Hopper.
CAPABILITY = (9, 0)
# Programs that share the listed labels of a row, and hidden units that they read at once.
SHARED, DEPTH = 4, 256


class Tile(NamedTuple):
    """Rows and labels per program, hidden units per step, steps that are loaded ahead, warps."""

    rows: int
    cols: int
    depth: int
    stages: int
    warps: int


TILE = Tile(128, 256, 64, 3, 8)


def tile_for(problem: LinearProblem, inputs: KernelInputs) -> Tile | None:
    """The tile for a problem; None if cuBLAS should compute the scores, followed by kernels that read them."""
    hidden, weight, tile = problem.hidden, problem.weight, TILE
    parts = (hidden, weight)
    if not inputs.lean or weight.dtype != hidden.dtype or hidden.shape[1] % tile.depth or not problem.num_rows:
        return None
    if any(part.stride(1) != 1 for part in parts):
        return None
    if interpreted():
        return tile
    aligned = all(part.stride(0) % 8 == 0 and part.data_ptr() % 16 == 0 for part in parts)
    return tile if aligned and hidden.dtype != torch.float32 and _capability(hidden.device) == CAPABILITY else None


@functools.cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


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


def tile_sums(
    problem: LinearProblem, inputs: KernelInputs, tile: Tile, cuts: Tensor | None, kept: Tensor | None
) -> Tensor:
    """Forward: the pairs of the tiles, ``[R, tiles, 2]``. The terms of labels that are kept go to ``kept``."""
    parts = problem.hidden.new_empty((problem.num_rows, blocks(problem.num_labels, tile.cols), 2), dtype=torch.float32)
    for mode, start, stop in (("terms", 0, problem.kept), ("sums", problem.kept, problem.num_labels)):
        if start < stop:
            tensors = (cuts, None, None, None, None, None, None, parts, kept)
            _launch(problem, inputs, tile, mode, (start, stop), tensors)
    return parts


def tile_gradient(
    problem: LinearProblem,
    inputs: KernelInputs,
    tile: Tile,
    memory: Saved,
    pulls: tuple[Tensor, Tensor | None],
    chunk: tuple[int, int],
    grad: Tensor,
) -> None:
    """Backward: the gradient of the scores of a chunk."""
    tensors = (memory.cuts, inputs.values, inputs.pos, memory.listed, memory.state, *pulls, None, grad)
    _launch(problem, inputs, tile, "gradient", chunk, tensors)


def _launch(
    problem: LinearProblem, inputs: KernelInputs, tile: Tile, mode: str, chunk: tuple[int, int], tensors: Any
) -> None:
    from manyhot.engines.triton.linear.product_kernel import product_kernel

    start, stop = chunk
    cuts, values, pos, listed, state, grad_pos, grad_neg, parts, target = tensors
    labels, _, pos_kind, _ = inputs.kinds
    row_blocks = blocks(problem.num_rows, tile.rows)
    tiles = row_blocks * blocks(stop - start, tile.cols)
    pos_number, neg_number, _ = inputs.numbers
    launch(
        product_kernel,
        tiles,
        (problem.hidden, problem.weight, problem.bias, inputs.indices, values, cuts, pos, listed, state, grad_pos, grad_neg,
         parts, target),
        (problem.num_rows, stop, start, problem.hidden.stride(0), problem.weight.stride(0),
         0 if target is None else target.stride(0), blocks(problem.num_labels, tile.cols), blocks(problem.num_labels, COLS),
         row_blocks, tiles, pos_number, neg_number),
        (mode, labels, pos_kind, problem.bias is not None, grad_neg is not None, problem.hidden.shape[1], COLS, *tile[:4]),
        tile.warps,
    )  # fmt: skip
