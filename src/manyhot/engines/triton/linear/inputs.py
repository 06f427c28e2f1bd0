"""What the forward and the backward pass of the linear engine share: the inputs of the kernels, and the scores of a chunk."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.engines.linear.problem import LinearProblem
from manyhot.engines.terms import SparseTerms, Weight
from manyhot.engines.triton.calls import as_matrix, blocks, type_of
from manyhot.engines.triton.launch.launcher import Blocks, launcher

# A tile: rows, labels, warps.
ROWS, COLS, WARPS = 4, 2048, 4
# Rows of a chunk start at multiples of this many labels; a tile has no more labels.
ALIGNED = 256
# Pairs that the merge kernel reads at once, and cuts per program of the kernel that divides the lists.
MERGED = 256


class Saved(NamedTuple):
    """What forward saves for backward."""

    # float32 [4, R]: the exponent factored out of the terms and their factor, of positives, then of negatives. If terms are
    # kept instead of scores, [5, R]: the last row is the factor of the kept terms.
    state: Tensor
    scores: Tensor | None  # [R, kept labels]: scores without the bias, or the terms of the gradient
    listed: Tensor | None  # float32 [P]: the scores of the listed labels
    cuts: Tensor | None  # int32 [R, blocks + 1]: where each list enters each block of labels


class KernelInputs:
    """The terms in the form the kernels read."""

    __slots__ = (
        "both",
        "cuts",
        "indices",
        "kinds",
        "lean",
        "neg",
        "numbers",
        "offsets",
        "pos",
        "strides",
        "truth",
        "values",
        "where",
    )

    def __init__(self, problem: LinearProblem) -> None:
        terms, shape = problem.terms, (problem.num_rows, problem.num_labels)
        self.truth = self.indices = self.offsets = self.values = None
        if isinstance(terms, SparseTerms):
            self.indices, self.offsets, self.values = terms.indices.contiguous(), terms.offsets.contiguous(), terms.values
            labels = "lists" if self.values is None else "soft lists"
        else:
            self.truth, labels = rows_as_matrix(terms.labels, shape), "dense"
        self.where = None if terms.where is None else rows_as_matrix(terms.where, shape)
        self.pos, pos_number, pos_kind = weight_argument(terms.pos_weight, problem)
        self.neg, neg_number, neg_kind = weight_argument(terms.neg_weight, problem)
        self.numbers = (pos_number, neg_number, float(terms.smoothing))
        self.strides = (row_stride(self.truth), row_stride(self.where))
        self.both = labels == "dense" or terms.smoothing != 0
        self.lean = not self.both and self.where is None and neg_kind == "number" and neg_number > 0
        self.kinds = (labels, self.where is not None, pos_kind, neg_kind)

    def cut(self, problem: LinearProblem) -> Tensor | None:
        """Where each row's list enters each block of labels."""
        if self.indices is None or self.offsets is None:
            return None
        from manyhot.engines.triton.linear.sums import cut_kernel

        count = blocks(problem.num_labels, COLS)
        cuts = self.indices.new_empty((problem.num_rows, count + 1), dtype=torch.int32)
        parts = blocks(count + 1, MERGED)
        numbers = (problem.num_rows, count, parts)
        launch(cut_kernel, problem.num_rows * parts, (self.indices, self.offsets, cuts), numbers, (COLS, MERGED), 4)
        return cuts


def rows_as_matrix(matrix: Tensor, shape: tuple[int, int]) -> Tensor:
    """``matrix`` broadcast to ``shape``, contiguous along rows."""
    return as_matrix(matrix, matrix.new_empty(()).expand(shape))


def row_stride(matrix: Tensor | None) -> int:
    """The stride between rows; 0 for a missing matrix."""
    return 0 if matrix is None else matrix.stride(0)


def weight_argument(weight: Weight, problem: LinearProblem) -> tuple[Tensor | None, float, str]:
    """A weight per label, a weight for all labels, and which of the two is used."""
    if isinstance(weight, Tensor):
        return weight.reshape(-1).expand(problem.num_labels).contiguous(), 1.0, "label"
    return None, 1.0 if weight is None else float(weight), "number"


def launch(
    kernel: Any,
    programs: int,
    tensors: tuple[Tensor | None, ...],
    numbers: tuple[Any, ...],
    constants: Any,
    warps: int,
    blocks: Blocks = (),
) -> None:
    """Launch a kernel on tensors, the first as descriptors with ``blocks``, then numbers, then constants."""
    first, *others = tensors
    assert first is not None
    types = (first.device, first.dtype, *map(type_of, others))
    launcher(kernel, constants, warps, types, numbers, blocks=blocks)(programs, first, others, numbers)


def tile_rows(problem: LinearProblem) -> int:
    """Rows per tile."""
    return min(ROWS, 1 << max(problem.num_rows - 1, 0).bit_length())


def new_scores(problem: LinearProblem, width: int) -> Tensor:
    """Memory for the scores of ``width`` labels."""
    return problem.hidden.new_empty((problem.num_rows, width))


def new_buffer(problem: LinearProblem) -> Tensor:
    """Buffer for the scores of a chunk; cuBLAS is slow on rows that start at odd places."""
    return new_scores(problem, blocks(min(problem.chunk, problem.num_labels), ALIGNED) * ALIGNED)


def chunk_scores(problem: LinearProblem, start: int, stop: int, kept: Tensor | None, buffer: Tensor | None) -> Tensor:
    """Compute the scores of some labels without the bias."""
    out = kept[:, start:stop] if problem.keeps(stop) else buffer[:, : stop - start]  # type: ignore[index]
    multiply(problem.hidden, problem.weight_of(start, stop), out)
    return out


def multiply(hidden: Tensor, weight: Tensor, out: Tensor) -> None:
    """``out = hidden @ weight.T``."""
    for first, last in aligned_parts(weight.shape[0]):
        torch.mm(hidden, weight[first:last].mT, out=out[:, first:last])


def aligned_parts(num_labels: int) -> list[tuple[int, int]]:
    """The labels in two parts: cuBLAS is slow where a dimension of a product is odd, so the odd part should be small."""
    even = num_labels // 512 * 512
    return [(first, last) for first, last in ((0, even), (even, num_labels)) if first < last]
