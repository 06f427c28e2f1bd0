"""Decoupled softmax of linear scores: the negatives' sum by an engine, and the few listed scores beside it.

The gradient by the scores is that of ``neg``, plus one number for each listed entry. An engine computes the first, chunk by
chunk; the second is added where a chunk's gradient is applied, so that a fused update sees the whole of it.

Where labels are divided among processes, each lists the positives of its own labels, and two gathers bring the sums together:
the log-sum of the negatives, 8 bytes a row and process in float32, then three sums over the positives, 12 bytes.
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
from manyhot.scores.shards import Group, gather_equal, merged, share_of


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
    """``(hidden, weight, bias, group, engine, chunk, kept, update, strict, kind of terms, *fields) -> loss [R]``."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, group: Group, *rest: Any) -> Tensor:
        """``sum_j t_j log(1 + e^{neg - s_j}) / sum_j t_j`` of each row."""
        engine, chunk, kept, update, strict, kind, *fields = rest
        problem = LinearProblem(hidden, weight, bias, kind(*fields), chunk, kept if any(ctx.needs_input_grad[:3]) else 0)
        _, neg, memory, engine = local_sums(engine, problem, strict)
        own = torch.ones_like(neg)
        if group is not None:
            part = engine.log_sums(memory)[1]
            parts = gather_equal(torch.stack(part), group)
            whole = merged(parts[:, 0], parts[:, 1])
            neg, own = whole.value, share_of(part, whole)
        terms = problem.terms
        assert isinstance(terms, SparseTerms)
        rows, labels = terms.rows, terms.indices
        scores = (hidden[rows].to(neg.dtype) * weight[labels].to(neg.dtype)).sum(dim=1)
        scores = scores if bias is None else scores + bias[labels].to(neg.dtype)
        counted, _ = terms.listed_weights(neg.dtype)
        missed = neg[rows] - scores
        pulled = counted * missed.sigmoid()
        sums = torch.stack([row_sums(each, terms.offsets) for each in (counted, counted * softplus(missed), pulled)])
        total, lost, pull = sums if group is None else gather_equal(sums, group).sum(dim=0)
        total = torch.where(total > 0, total, 1.0)
        # The derivatives by the listed scores, and by this process's sum of the negatives.
        remember(ctx, problem, (*memory, pulled / total[rows], pull / total * own), fields)
        ctx.group, ctx.engine, ctx.update, ctx.strict, ctx.kind = group, engine, update, strict, kind
        value: Tensor = lost / total
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden, weight and bias."""
        problem, (*memory, shares, pull) = recall(ctx)
        terms = problem.terms
        assert isinstance(terms, SparseTerms)
        assert shares is not None
        assert pull is not None
        rows, labels = terms.rows, terms.indices
        entries = -shares * grad[rows]
        pulls = (torch.zeros_like(grad), pull * grad)
        needs, update = ctx.needs_input_grad[:3], ctx.update
        # Before an update moves the weights.
        more = _by_hidden(problem, terms, entries) if needs[0] else None
        wrapped = None if update is None else _WithEntries(update, rows, labels, entries)
        made = local_gradient(ctx.engine, problem, tuple(memory), pulls, needs, wrapped, ctx.strict, ctx.group, more)
        by_hidden, by_weight, by_bias = made
        if by_weight is not None:
            listed = (problem.hidden[rows].to(entries.dtype) * entries.unsqueeze(1)).to(by_weight.dtype)
            by_weight.index_put_((labels,), listed, accumulate=True)
        if by_bias is not None:
            by_bias.index_put_((labels,), entries.to(by_bias.dtype), accumulate=True)
        return by_hidden, by_weight, by_bias, *((None,) * (7 + len(ctx.constants)))


def decoupled_rows(hidden: Tensor, weight: Tensor, bias: Tensor | None, group: Group, *rest: Any) -> Tensor:
    """``LinearDecoupled``, outside of a compiled graph where labels are divided among processes."""
    run: Any = LinearDecoupled.apply
    if group is not None:
        from manyhot.scores.outside_graph import sharded_decoupled

        run = sharded_decoupled
    values: Tensor = run(hidden, weight, bias, group, *rest)
    return values


def _by_hidden(problem: LinearProblem, terms: SparseTerms, entries: Tensor) -> Tensor:
    """``[R, D]``: the gradient of the listed entries by hidden."""
    weight = problem.weight.to(problem.hidden.dtype)
    if not len(weight):
        return torch.zeros_like(problem.hidden)
    own = entries.to(weight.dtype)
    return embedding_bag(terms.indices, weight, terms.offsets, per_sample_weights=own, mode="sum", include_last_offset=True)


def row_sums(values: Tensor, offsets: Tensor) -> Tensor:
    """``[R]``: sums of consecutive ``values [P]``, in their order."""
    places = torch.arange(values.shape[0], device=values.device, dtype=offsets.dtype)
    return embedding_bag(places, values.unsqueeze(1), offsets, mode="sum", include_last_offset=True).squeeze(1)


def as_lists(labels: Any) -> Any:
    """Labels as index lists."""
    return SparseLabels.from_dense(labels.reshape(-1, labels.shape[-1])) if isinstance(labels, Tensor) else labels
