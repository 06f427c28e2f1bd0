"""The linear engine on CUDA: host side. cuBLAS computes the products, chunk by chunk of labels; our kernels do the rest.

Forward computes the scores of a chunk, sums them into a pair for each row and block of labels, and merges the pairs. Backward
turns the scores of a chunk, kept or recomputed, into their gradient, and multiplies it twice. Where that is faster, one kernel
computes scores and uses them at once; see ``product``. Nothing waits for the device. With TRITON_INTERPRET=1 set before the
first import it runs on the CPU, in float32.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from manyhot.engines.linear.problem import LinearProblem, Memory
from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms
from manyhot.engines.triton.calls import blocks, per_row
from manyhot.engines.triton.engine import available as available
from manyhot.engines.triton.engine import total as total
from manyhot.engines.triton.launch.launcher import interpreted
from manyhot.engines.triton.linear.backward import gradient as gradient
from manyhot.engines.triton.linear.inputs import (
    COLS,
    MERGED,
    WARPS,
    KernelInputs,
    Saved,
    chunk_scores,
    launch,
    new_buffer,
    new_scores,
    row_stride,
    tile_rows,
)
from manyhot.engines.triton.linear.product import listed_scores, tile_sums, uses_tiles

TYPES = (torch.float32, torch.bfloat16, torch.float16)
# Bytes of a chunk of scores: if scores are kept, and if they are recomputed, where larger products are faster. With 132
# multiprocessors, the tiles of the second size can be divided evenly among them.
CHUNK_BYTES, CHUNK_BYTES_AGAIN = 64 << 20, 264 << 20
# Blocks of a row from which on the merge kernel reads more of them at once.
MANY = 4096
# The default share of the device's memory for kept scores.
KEPT_SHARE = 16


def supports(hidden: Tensor, weight: Tensor, bias: Tensor | None, terms: DenseTerms | SparseTerms) -> bool:
    """Whether this engine can serve the problem."""
    parts = (hidden, weight, bias, *terms)
    cuda = hidden.is_cuda
    if hidden.dtype not in TYPES or weight.dtype not in TYPES or cuda == interpreted():
        return False
    return all(part.is_cuda == cuda for part in parts if isinstance(part, Tensor))


def chunk_size(hidden: Tensor, num_labels: int, kept: bool) -> int:
    """Labels per chunk: a multiple of the block."""
    size = CHUNK_BYTES if kept else CHUNK_BYTES_AGAIN
    most = max(size // (max(hidden.shape[0], 1) * hidden.element_size()) // COLS, 1)
    return min(most, max(blocks(num_labels, COLS), 1)) * COLS


def fitted_chunk(size: int) -> int:
    """The chunk size rounded to whole blocks."""
    return blocks(size, COLS) * COLS


def default_budget(device: torch.device) -> int:
    """Default for the bytes of scores that may be kept."""
    return _device_memory(device) // KEPT_SHARE


# A compiled graph treats the answer as a constant; see ``manyhot.engines.registry``.
default_budget._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _device_memory(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 1 << 30


def sums(problem: LinearProblem) -> tuple[Tensor, Tensor, Memory]:
    """Forward: one pass over the labels. Returns ``pos`` and ``neg``, float32 ``[R]``, and what backward needs."""
    pos, neg, memory = _sweep(problem, "sides", 0.0, 1.0)
    assert neg is not None
    return pos, neg, memory


def losses(
    problem: LinearProblem, form: str, offset: Tensor | float, scale: Tensor | float
) -> tuple[Tensor, Tensor | None, Memory]:
    """Forward of ``sum scale loss``, ``loss = FORMS[form](pos, neg, offset)``; ``offset`` and ``scale``: a number or ``[R]``.

    Returns:
        The loss of each row, float32 ``[R]``; where ``offset`` is a tensor, its gradient ``[R]``; what backward needs.
    """
    return _sweep(problem, form, offset, scale)


def _sweep(
    problem: LinearProblem, form: str, offset: Tensor | float, scale: Tensor | float
) -> tuple[Tensor, Tensor | None, Memory]:
    inputs = KernelInputs(problem)
    cuts = inputs.cut(problem)
    kept = new_scores(problem, blocks(problem.kept, COLS) * COLS) if problem.kept else None
    # The gradient of a loss is a factor per row times the terms, so the terms can be kept; float16 has too small a range.
    exps = form != "sides" and inputs.lean and kept is not None and problem.hidden.dtype != torch.float16
    if (exps or kept is None) and uses_tiles(problem, inputs):
        parts, cols = tile_sums(problem, inputs, cuts, kept)
        listed: Tensor | None = listed_scores(problem, inputs)
    else:
        (parts, listed), cols = _block_sums(problem, inputs, cuts, kept, exps), COLS
    return _merge(problem, inputs, (parts, listed, cuts, kept), form, offset, scale, exps, cols)


def _block_sums(
    problem: LinearProblem, inputs: KernelInputs, cuts: Tensor | None, kept: Tensor | None, exps: bool
) -> tuple[Tensor, Tensor | None]:
    """The pairs of the blocks ``[R, blocks, 2 or 4]`` and the scores of listed labels, from scores that cuBLAS computes."""
    from manyhot.engines.triton.linear.sums import sums_kernel

    count, rows = blocks(problem.num_labels, COLS), tile_rows(problem)
    parts = problem.hidden.new_empty((problem.num_rows, count, 4 if inputs.both else 2), dtype=torch.float32)
    listed = None if inputs.indices is None else parts.new_empty(inputs.indices.shape)
    buffer = new_buffer(problem) if problem.kept < problem.num_labels else None
    labels, has_where, *weights = inputs.kinds
    constants = (labels, inputs.lean, has_where, problem.bias is not None, *weights, inputs.both)
    for start, stop in problem.chunks():
        scores = chunk_scores(problem, start, stop, kept, buffer)
        across = blocks(stop - start, COLS)
        launch(
            sums_kernel,
            blocks(problem.num_rows, rows) * across,
            (scores, problem.bias, inputs.truth, inputs.indices, cuts, inputs.where, inputs.pos, inputs.neg, listed, parts),
            (problem.num_rows, problem.num_labels, start, scores.stride(0), *inputs.strides, count, across, *inputs.numbers),
            (*constants, exps and problem.keeps(stop), (stop - start) % COLS == 0, rows, COLS),
            WARPS,
        )
    return parts, listed


def log_sums(memory: Memory) -> tuple[LogSum, LogSum]:
    """Both sides, as ``sums`` saved them."""
    pos_top, pos_factor, neg_top, neg_factor = Saved(*memory).state  # type: ignore[arg-type]
    return _log_sum(pos_top, pos_factor), _log_sum(neg_top, neg_factor)


def _log_sum(top: Tensor, factor: Tensor) -> LogSum:
    """A log-sum from the exponent factored out of it and the reciprocal of the rest, which is 0 for an empty sum."""
    empty = factor == 0
    rest = torch.where(empty, -torch.inf, -torch.log(torch.where(empty, 1.0, factor)))
    return LogSum(torch.where(top.isinf(), 0.0, top), torch.where(top.isinf() & ~empty, top, rest))


def empty_memory(problem: LinearProblem) -> list[Tensor]:
    """Tensors with the shapes and types of what ``sums`` saves for backward, empty ones for None."""
    terms, rows = problem.terms, problem.hidden.new_empty((4, problem.num_rows), dtype=torch.float32)
    scores = new_scores(problem, blocks(problem.kept, COLS) * COLS) if problem.kept else problem.hidden.new_empty(0)
    if not isinstance(terms, SparseTerms):
        return [rows, scores, problem.hidden.new_empty(0), problem.hidden.new_empty(0)]
    cuts = (problem.num_rows, blocks(problem.num_labels, COLS) + 1)
    return [rows, scores, rows.new_empty(terms.indices.shape), rows.new_empty(cuts, dtype=torch.int32)]


def _merge(
    problem: LinearProblem,
    inputs: KernelInputs,
    made: tuple[Tensor, Tensor | None, Tensor | None, Tensor | None],
    form: str,
    offset: Tensor | float,
    scale: Tensor | float,
    exps: bool,
    cols: int,
) -> tuple[Tensor, Tensor | None, Memory]:
    """Merge the pairs of blocks of ``cols`` labels into sides or losses."""
    from manyhot.engines.triton.linear.merge import merge_kernel

    parts, listed, cuts, kept = made
    first, state = parts.new_empty(problem.num_rows), parts.new_empty((5 if exps else 4, problem.num_rows))
    offsets, offset_number = per_row(offset)
    scales, scale_number = per_row(scale)
    second = parts.new_empty(problem.num_rows) if form == "sides" or offsets is not None else None
    labels, has_where, *weights = inputs.kinds
    moved = "number" if offsets is None else "row"
    tensors = (parts, listed, inputs.indices, inputs.offsets, inputs.values, inputs.where, inputs.pos, inputs.neg)
    launch(
        merge_kernel,
        problem.num_rows,
        (*tensors, offsets, scales, kept if exps else None, first, second, second, state),
        (
            problem.num_rows,
            parts.shape[1],
            inputs.strides[1],
            row_stride(kept),
            problem.kept,
            *inputs.numbers,
            offset_number,
            1.0 if scales is not None else scale_number,
        ),
        (
            labels,
            inputs.both,
            has_where,
            *weights,
            exps,
            moved,
            scales is not None,
            form,
            cols,
            MERGED if parts.shape[1] < MANY else 4 * MERGED,
        ),
        4,
    )
    return first, second, Saved(state, kept, listed, cuts)
