"""Decoupled softmax of linear scores: an engine sums the negatives, and the few listed scores are computed apart.

The gradient by the scores is that of ``neg``, plus one number for each listed entry. An engine computes the first, chunk by
chunk. The second is added when a chunk's gradient is applied, so that a fused update gets the complete gradient.

If labels are divided among processes, each process lists the positives among its own labels. Two gathers combine the sums: the
log-sum of the negatives, 8 bytes a row and process in float32, then three sums over the positives, 12 bytes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, softplus

from manyhot.engines.linear.problem import LinearProblem, Update
from manyhot.engines.terms import SparseTerms
from manyhot.engines.triton.linear import table
from manyhot.labels.sparse import SparseLabels
from manyhot.scores.linear_sides import local_gradient, local_sums, recall, remember
from manyhot.scores.shards import Group, gather_equal, merged, share_of

# On CUDA all labels form one chunk if its scores take at most this many bytes: each chunk costs many small launches.
ONE_CHUNK_BYTES = 1 << 29


class _WithEntries:
    """An update that adds the gradient of the listed entries to each chunk's gradient."""

    def __init__(self, update: Update, rows: Tensor, labels: Tensor, entries: Tensor) -> None:
        self.update, self.rows, self.labels, self.entries = update, rows, labels, entries

    def apply(self, problem: LinearProblem, start: int, stop: int, grad: Tensor) -> None:
        """Update the labels ``start`` to ``stop``."""
        entries, labels = self.entries, self.labels
        if stop - start < problem.num_labels:
            # Entries of other chunks add 0 to the first column.
            inside = (labels >= start) & (labels < stop)
            entries, labels = torch.where(inside, entries, 0.0), torch.where(inside, labels - start, 0)
        if len(entries):
            # An entry is listed once, so index_add_ needs no order; index_put_ would sort the entries.
            own, (down, across), (rows, width) = entries.to(grad.dtype), grad.stride(), grad.shape
            flat = grad.as_strided(((rows - 1) * down + (width - 1) * across + 1,), (1,))
            flat.index_add_(0, self.rows * down + (labels if across == 1 else labels * across), own)
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
        # A batch of fixed size may have unused entries after its last list.
        counted = torch.where(torch.arange(len(counted), device=counted.device) < terms.offsets[-1], counted, 0.0)
        # An entry that does not count may have any score.
        missed = torch.where(counted > 0, neg[rows] - scores, 0.0)
        pulled = counted * missed.sigmoid()
        sums = row_sums(torch.stack([counted, counted * softplus(missed), pulled], dim=1), terms.offsets).mT.contiguous()
        total, lost, pull = sums if group is None else gather_equal(sums, group).sum(dim=0)
        total = torch.where(total > 0, total, 1.0)
        # The derivatives by the listed scores, and by this process's sum of the negatives.
        remember(ctx, problem, (*memory, pulled / total[rows], pull / total * own, rows), fields)
        ctx.group, ctx.engine, ctx.update, ctx.strict, ctx.kind = group, engine, update, strict, kind
        value: Tensor = lost / total
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden, weight and bias."""
        problem, (*memory, shares, pull, rows) = recall(ctx)
        terms = problem.terms
        assert isinstance(terms, SparseTerms)
        assert shares is not None
        assert pull is not None
        assert rows is not None
        labels = terms.indices
        entries = -shares * grad[rows]
        pulls = (torch.zeros_like(grad), pull * grad)
        needs, update = ctx.needs_input_grad[:3], ctx.update
        # This must come before an update changes the weights.
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
    if table.sums_rows(weight):
        return table.bag(weight, terms.indices, terms.offsets, own)
    return embedding_bag(terms.indices, weight, terms.offsets, per_sample_weights=own, mode="sum", include_last_offset=True)


def decoupled_chunk(hidden: Tensor, weight: Tensor, chunk: int, kept: int) -> int:
    """Labels per chunk: all of them if their scores are kept on CUDA and are small enough, otherwise ``chunk``."""
    size = hidden.shape[0] * weight.shape[0] * hidden.element_size()
    return max(weight.shape[0], chunk) if hidden.is_cuda and kept == weight.shape[0] and size <= ONE_CHUNK_BYTES else chunk


def row_sums(values: Tensor, offsets: Tensor) -> Tensor:
    """``[R, N]``: sums of consecutive rows of ``values [P, N]``, in their order."""
    places = torch.arange(values.shape[0], device=values.device, dtype=offsets.dtype)
    if table.sums_rows(values):
        return table.bag(values, places, offsets, None)
    return embedding_bag(places, values, offsets, mode="sum", include_last_offset=True)


def as_lists(labels: Any) -> Any:
    """Labels as index lists."""
    return SparseLabels.from_dense(labels.reshape(-1, labels.shape[-1])) if isinstance(labels, Tensor) else labels
