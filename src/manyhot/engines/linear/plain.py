"""The linear engine in plain torch: the reference that the other engines are tested against, and their fallback."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.linear.problem import Gradients, LinearProblem, Memory, Needs, Update, new_gradients
from manyhot.engines.terms import LogSum, accumulation_dtype

# Scores per chunk; fewer on a CPU, so that they stay in cache.
CHUNK_ELEMENTS, CPU_ELEMENTS = 1 << 24, 1 << 19


def chunk_size(hidden: Tensor, num_labels: int, kept: bool) -> int:  # noqa: ARG001
    """Labels per chunk."""
    return max(1, (CHUNK_ELEMENTS if hidden.is_cuda else CPU_ELEMENTS) // max(hidden.shape[0], 1))


def default_budget(device: torch.device) -> int:  # noqa: ARG001
    """Default for the bytes of scores that may be kept."""
    return 0


def sums(problem: LinearProblem) -> tuple[Tensor, Tensor, Memory]:
    """Forward: one pass over the labels. Returns ``pos`` and ``neg``, each ``[R]``, and what backward needs."""
    zero = problem.hidden.new_zeros(problem.num_rows, dtype=problem.sum_type)
    pos = neg = LogSum(zero, torch.full_like(zero, -torch.inf))
    for start, stop in problem.chunks():
        scores = _scores(problem, problem.weight_of(start, stop), start, stop)
        chunk_pos, chunk_neg = problem.terms.columns(start, stop).sides(scores)
        pos, neg = pos.merge(chunk_pos), neg.merge(chunk_neg)
    return pos.value, neg.value, (*pos, *neg)


def log_sums(memory: Memory) -> tuple[LogSum, LogSum]:
    """Both sides, as ``sums`` saved them."""
    return LogSum(*memory[:2]), LogSum(*memory[2:4])  # type: ignore[arg-type]


def gradient(
    problem: LinearProblem, memory: Memory, pulls: tuple[Tensor, Tensor], needs: Needs, update: Update | None = None
) -> Gradients:
    """Backward: a second pass, which recomputes each chunk's scores; see ``LinearEngine``."""
    pos, neg = log_sums(memory)
    by_hidden, by_weight, by_bias = new_gradients(problem, needs, update)
    for start, stop in problem.chunks():
        own = problem.weight_of(start, stop)
        scores = _scores(problem, own, start, stop)
        grad = problem.terms.columns(start, stop).gradient(scores, pos, neg, *pulls)
        half = grad.to(problem.hidden.dtype)
        if by_hidden is not None:
            by_hidden += half @ own
        if by_weight is not None:
            by_weight[start:stop] = half.mT @ problem.hidden
        if by_bias is not None:
            by_bias[start:stop] = grad.sum(dim=0)
        if update is not None:
            update.apply(problem, start, stop, half)
    return by_hidden, by_weight, by_bias


def _scores(problem: LinearProblem, weight: Tensor, start: int, stop: int) -> Tensor:
    bias = None if problem.bias is None else problem.bias[start:stop].to(weight.dtype)
    scores = torch.nn.functional.linear(problem.hidden, weight, bias)
    return scores.to(accumulation_dtype(scores.dtype))
