"""The arguments and results of an engine for linear scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms, accumulation_dtype

# Which of hidden, weight and bias need a gradient.
Needs = tuple[bool, bool, bool]
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
# What forward saves for backward; each engine has its own.
Memory = tuple[Tensor | None, ...]


class LinearProblem(NamedTuple):
    """Scores ``hidden @ weight.T + bias`` of R rows and L labels, with the terms of their sides.

    ``hidden [R, D]`` has the type in which products are computed; ``weight [L, D]`` and ``bias [L]`` may have another, and are
    cast chunk by chunk. The scores of the first ``kept`` labels are kept from forward to backward; backward recomputes the
    others.
    """

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    terms: DenseTerms | SparseTerms
    chunk: int
    kept: int

    @property
    def num_rows(self) -> int:
        """R."""
        return self.hidden.shape[0]

    @property
    def num_labels(self) -> int:
        """L."""
        return self.weight.shape[0]

    @property
    def sum_type(self) -> torch.dtype:
        """The type in which sums are accumulated."""
        return accumulation_dtype(self.hidden.dtype)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Where the chunks of labels start and stop."""
        for start in range(0, self.num_labels, self.chunk):
            yield start, min(start + self.chunk, self.num_labels)

    def keeps(self, stop: int) -> bool:
        """Whether the scores of the chunk that ends at ``stop`` are kept."""
        return stop <= self.kept

    def weight_of(self, start: int, stop: int) -> Tensor:
        """The weights of some labels in the type of the products."""
        part = self.weight[start:stop]
        return part if part.dtype == self.hidden.dtype else part.to(self.hidden.dtype)


class Update(Protocol):
    """Applies the gradient of the weights chunk by chunk, so that it never exists as a whole."""

    def apply(self, problem: LinearProblem, start: int, stop: int, grad: Tensor) -> None:
        """Update the labels ``start`` to ``stop`` by ``grad [R, stop - start]``, the gradient of their scores."""
        ...

    def finish(self, problem: LinearProblem, grad_bias: Tensor | None) -> None:
        """Called after the last chunk, with the gradient of the bias ``[L]``."""
        ...


class LinearEngine(Protocol):
    """The functions of an engine for linear scores. Modules implement it.

    An engine that computes whole losses also has ``losses`` and ``total``.
    """

    def chunk_size(self, hidden: Tensor, num_labels: int, kept: bool) -> int:
        """Default number of labels per chunk; ``kept`` says whether all scores are kept for backward."""
        ...

    def default_budget(self, device: torch.device) -> int:
        """Default budget in bytes for kept scores."""
        ...

    def sums(self, problem: LinearProblem) -> tuple[Tensor, Tensor, Memory]:
        """Forward: ``pos`` and ``neg``, each ``[R]``, and what backward needs."""
        ...

    def log_sums(self, memory: Memory) -> tuple[LogSum, LogSum]:
        """Both sides, as ``sums`` saved them."""
        ...

    def gradient(
        self, problem: LinearProblem, memory: Memory, pulls: Any, needs: Needs, update: Update | None = None
    ) -> Gradients:
        """Backward.

        Args:
            problem: the problem of the forward call.
            memory: what forward saved; it is not changed.
            pulls: the gradients by ``pos`` and ``neg``, each ``[R]``.
            needs: which of hidden, weight and bias need a gradient.
            update: applies the gradient of the weight, which is then returned as None.

        Returns:
            Gradients of hidden and bias in the type of the sums, and of the weight in its own type.
        """
        ...


def new_gradients(problem: LinearProblem, needs: Needs, update: Update | None) -> Gradients:
    """Memory for the gradients that are needed: zeros for hidden, which is accumulated."""
    hidden, weight, kind = problem.hidden, problem.weight, problem.sum_type
    by_hidden = hidden.new_zeros(hidden.shape, dtype=kind) if needs[0] else None
    by_weight = weight.new_empty(weight.shape) if needs[1] and update is None else None
    by_bias = hidden.new_empty(problem.num_labels, dtype=kind) if needs[2] and problem.bias is not None else None
    return by_hidden, by_weight, by_bias
