"""The linear engine on the CPU, in chunks of labels.

In float32, unless there are thousands of rows, everything is one call of the library (``linear_head``). Otherwise products are
by oneDNN or BLAS, sums and gradients by the native engine; chunks are small enough that weights and scores stay in cache from
one product to the next.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from manyhot.engines.linear.plain import log_sums as log_sums
from manyhot.engines.linear.problem import Gradients, LinearProblem, Memory, Needs, Update, new_gradients
from manyhot.engines.native import engine as native
from manyhot.engines.native import linear_head
from manyhot.engines.native.engine import available as available
from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms

# Scores per chunk, and the bounds on its labels: small enough to stay in cache, large enough to be worth a call.
CHUNK_ELEMENTS, LEAST_LABELS, MOST_LABELS = 1 << 18, 2048, 8192
# Default for the bytes of scores that may be kept.
KEPT_BYTES = 128 << 20


def supports(hidden: Tensor, weight: Tensor, bias: Tensor | None, terms: DenseTerms | SparseTerms) -> bool:
    """Whether this engine supports the problem."""
    parts = (hidden, weight, *(() if bias is None else (bias,)))
    if not all(part.device.type == "cpu" and part.dtype in native.SCORES for part in parts):
        return False
    return native.supports(hidden, terms)


def chunk_size(hidden: Tensor, num_labels: int, kept: bool) -> int:  # noqa: ARG001
    """Labels per chunk."""
    return min(max(CHUNK_ELEMENTS // max(hidden.shape[0], 1), LEAST_LABELS), MOST_LABELS)


def default_budget(device: torch.device) -> int:  # noqa: ARG001
    """Default for the bytes of scores that may be kept."""
    return KEPT_BYTES


def sums(problem: LinearProblem) -> tuple[Tensor, Tensor, Memory]:
    """Forward: one pass over the labels. Returns ``pos`` and ``neg``, float32 ``[R]``, and what backward needs."""
    if linear_head.serves(problem):
        kept = _new_kept(problem)
        pos, neg = linear_head.sums(problem, kept)
        return pos.value, neg.value, (*pos, *neg, *kept)
    found: list[tuple[LogSum, LogSum]] = []
    kept = []
    for (start, stop), terms in zip(problem.chunks(), cut_terms(problem), strict=True):
        scores = _scores(problem, problem.weight_of(start, stop), start, stop)
        found.append(native.sides(scores, terms))
        if problem.keeps(stop):
            kept.append(scores)
    pos, neg = (_merged(problem, [sides[side] for sides in found]) for side in (0, 1))
    return pos.value, neg.value, (*pos, *neg, *kept)


def empty_memory(problem: LinearProblem) -> list[Tensor]:
    """Empty tensors with the shapes and types of what ``sums`` saves for backward."""
    rows = [problem.hidden.new_empty(problem.num_rows, dtype=torch.float32) for _ in range(4)]
    return rows + _new_kept(problem)


def _new_kept(problem: LinearProblem) -> list[Tensor]:
    """Memory for the scores of each chunk that are kept."""
    kept = (stop - start for start, stop in problem.chunks() if problem.keeps(stop))
    return [problem.hidden.new_empty((problem.num_rows, size)) for size in kept]


def _merged(problem: LinearProblem, parts: list[LogSum]) -> LogSum:
    """The total of the sums of all chunks."""
    if not parts:
        zero = problem.hidden.new_zeros(problem.num_rows, dtype=torch.float32)
        return LogSum(zero, torch.full_like(zero, -torch.inf))
    shifts, rests = torch.stack([part.shift for part in parts]), torch.stack([part.rest for part in parts])
    shift = torch.where(rests == -torch.inf, -torch.inf, shifts).amax(dim=0)
    shift = torch.where(shift.isinf(), 0.0, shift)
    return LogSum(shift, torch.logsumexp(shifts - shift + rests, dim=0))


def gradient(
    problem: LinearProblem, memory: Memory, pulls: tuple[Tensor, Tensor], needs: Needs, update: Update | None = None
) -> Gradients:
    """Backward: a second pass over the labels; see ``LinearEngine``."""
    pos, neg = log_sums(memory)
    hidden, kept = problem.hidden, [scores for scores in memory[4:] if scores is not None]
    made = by_hidden, by_weight, by_bias = new_gradients(problem, needs, update)
    if update is None and linear_head.serves(problem):
        linear_head.gradient(problem, kept, (pos, neg), pulls, made)
        return made
    room = hidden.new_empty(problem.num_rows * min(problem.chunk, problem.num_labels))
    for number, ((start, stop), terms) in enumerate(zip(problem.chunks(), cut_terms(problem), strict=True)):
        own = problem.weight_of(start, stop)
        scores = kept[number] if problem.keeps(stop) else _scores(problem, own, start, stop)
        grad = room[: scores.numel()].view(scores.shape)
        native.gradient(scores, terms, pos, neg, *pulls, out=grad)
        if by_hidden is not None:
            by_hidden += product(grad, own.mT)
        if by_weight is not None:
            part = by_weight[start:stop]
            torch.mm(grad.mT, hidden, out=part) if part.dtype == grad.dtype else part.copy_(grad.mT @ hidden)
        if by_bias is not None:
            torch.sum(grad, dim=0, dtype=torch.float32, out=by_bias[start:stop])
        if update is not None:
            update.apply(problem, start, stop, grad)
    return by_hidden, by_weight, by_bias


def _scores(problem: LinearProblem, weight: Tensor, start: int, stop: int) -> Tensor:
    bias = None if problem.bias is None else problem.bias[start:stop].to(problem.hidden.dtype)
    return product(problem.hidden, weight, bias)


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """``a @ b.T + bias``. In float32 oneDNN is faster than BLAS for these shapes; for other types torch uses oneDNN already."""
    if a.dtype == torch.float32 and min(*a.shape, *b.shape) > 1 and _has_onednn():
        out: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
        return out
    return torch.nn.functional.linear(a, b, bias)


@functools.cache
def _has_onednn() -> bool:
    """Whether torch has oneDNN's linear product and it computes the right result."""
    try:
        a = torch.arange(6, dtype=torch.float32).view(2, 3)
        made = torch.ops.mkldnn._linear_pointwise(a, a, None, "none", [], "")
        return torch.equal(made, a @ a.mT)
    except (AttributeError, RuntimeError):
        return False


def cut_terms(problem: LinearProblem) -> Iterator[DenseTerms | SparseTerms]:
    """The terms of each chunk; index lists are sorted by chunk once."""
    terms, size = problem.terms, problem.chunk
    if isinstance(terms, DenseTerms):
        for start, stop in problem.chunks():
            yield terms.columns(start, stop)
        return
    rows, count = problem.num_rows, -(-problem.num_labels // size)
    chunk = terms.indices // size
    order = chunk.argsort(stable=True)
    indices = (terms.indices - chunk * size)[order]
    values = None if terms.values is None else terms.values[order]
    listed = torch.bincount(chunk * rows + terms.rows, minlength=count * rows).view(count, rows)
    offsets = torch.nn.functional.pad(listed.cumsum(dim=1), (1, 0))
    stops = listed.sum(dim=1).cumsum(dim=0).tolist()
    none = terms._replace(indices=terms.indices[:0], offsets=terms.offsets[:1], values=None)
    begin = 0
    for place, (start, stop) in enumerate(problem.chunks()):
        part = slice(begin, stops[place])
        own = None if values is None else values[part]
        shared = none.columns(start, stop)
        yield shared._replace(indices=indices[part], offsets=offsets[place], values=own)
        begin = stops[place]
