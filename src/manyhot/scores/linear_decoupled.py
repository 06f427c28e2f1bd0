"""Decoupled softmax of linear scores: the negatives' sum by an engine, and the few listed scores beside it.

The gradient by the scores is that of ``neg``, plus one number for each listed entry. An engine computes the first, chunk by
chunk; the second is added where a chunk's gradient is applied, so that a fused update sees the whole of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, softplus

from manyhot.engines.linear.problem import LinearProblem, Update
from manyhot.engines.terms import SparseTerms
from manyhot.labels.sparse import SparseLabels
from manyhot.scores.linear_sides import local_gradient, local_sums, recall, remember


class _WithEntries:
    """An update that adds the gradient of listed entries to that of each chunk."""

    def __init__(self, update: Update, rows: Tensor, labels: Tensor, entries: Tensor) -> None:
        self.update, self.rows, self.labels, self.entries = update, rows, labels, entries

    def apply(self, problem: LinearProblem, start: int, stop: int, grad: Tensor) -> None:
        """Update the labels ``start`` to ``stop``."""
        inside = (self.labels >= start) & (self.labels < stop)
        places = (self.labels - start).clamp(0, stop - start - 1)
        own = torch.where(inside, self.entries, 0.0).to(grad.dtype)
        grad.index_put_((self.rows, places), own, accumulate=True)
        self.update.apply(problem, start, stop, grad)

    def finish(self, problem: LinearProblem, grad_bias: Tensor | None) -> None:
        """After the last chunk."""
        if grad_bias is not None:
            grad_bias.index_put_((self.labels,), self.entries.to(grad_bias.dtype), accumulate=True)
        self.update.finish(problem, grad_bias)


class LinearDecoupled(torch.autograd.Function):
    """``(hidden, weight, bias, engine, chunk, kept, update, strict, kind of terms, *fields) -> loss [R]``."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
        """``sum_j t_j log(1 + e^{neg - s_j}) / sum_j t_j`` of each row."""
        engine, chunk, kept, update, strict, kind, *fields = rest
        problem = LinearProblem(hidden, weight, bias, kind(*fields), chunk, kept if any(ctx.needs_input_grad[:3]) else 0)
        _, neg, memory, engine = local_sums(engine, problem, strict)
        terms = problem.terms
        assert isinstance(terms, SparseTerms)
        rows, labels = terms.rows, terms.indices
        scores = (hidden[rows].to(neg.dtype) * weight[labels].to(neg.dtype)).sum(dim=1)
        scores = scores if bias is None else scores + bias[labels].to(neg.dtype)
        counted, _ = terms.listed_weights(neg.dtype)
        total = row_sums(counted, terms.offsets)
        share = counted / torch.where(total > 0, total, 1.0)[rows]
        missed = neg[rows] - scores
        remember(ctx, problem, (*memory, share * missed.sigmoid()), fields)
        ctx.engine, ctx.update, ctx.strict, ctx.kind = engine, update, strict, kind
        return row_sums(share * softplus(missed), terms.offsets)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden, weight and bias."""
        problem, (*memory, shares) = recall(ctx)
        terms = problem.terms
        assert isinstance(terms, SparseTerms)
        assert shares is not None
        rows, labels = terms.rows, terms.indices
        entries = -shares * grad[rows]
        pulls = (torch.zeros_like(grad), row_sums(shares, terms.offsets) * grad)
        needs, update = ctx.needs_input_grad[:3], ctx.update
        # Before an update moves the weights.
        more = None
        if needs[0]:
            weight = problem.weight.to(problem.hidden.dtype)
            own = entries.to(weight.dtype)
            more = embedding_bag(labels, weight, terms.offsets, per_sample_weights=own, mode="sum", include_last_offset=True)
        wrapped = None if update is None else _WithEntries(update, rows, labels, entries)
        made = local_gradient(ctx.engine, problem, tuple(memory), pulls, needs, wrapped, ctx.strict)
        by_hidden, by_weight, by_bias = made
        if by_hidden is not None and more is not None:
            by_hidden = by_hidden + more
        if by_weight is not None:
            listed = (problem.hidden[rows].to(entries.dtype) * entries.unsqueeze(1)).to(by_weight.dtype)
            by_weight.index_put_((labels,), listed, accumulate=True)
        if by_bias is not None:
            by_bias.index_put_((labels,), entries.to(by_bias.dtype), accumulate=True)
        return by_hidden, by_weight, by_bias, *((None,) * (6 + len(ctx.constants)))


def row_sums(values: Tensor, offsets: Tensor) -> Tensor:
    """``[R]``: sums of consecutive ``values [P]``, in their order."""
    places = torch.arange(values.shape[0], device=values.device, dtype=offsets.dtype)
    return embedding_bag(places, values.unsqueeze(1), offsets, mode="sum", include_last_offset=True).squeeze(1)


def as_lists(who: str, labels: Any, divided: bool) -> Any:
    """Labels as index lists; labels that are divided among processes are refused."""
    if divided:
        raise ValueError(f"{who}: LinearScores must have all labels in one process; these are divided. Use zlpr_loss.")
    return SparseLabels.from_dense(labels.reshape(-1, labels.shape[-1])) if isinstance(labels, Tensor) else labels
