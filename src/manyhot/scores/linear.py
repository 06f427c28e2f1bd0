"""Scores of a linear head, ``hidden @ weight.T + bias``, that are never stored whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_engine, check_logits, check_unit, shape_text
from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms, Terms, Weight, accumulation_dtype
from manyhot.losses.core.logsumexp import Dim, Labels, LazyScores, check_terms

CHUNK_ELEMENTS = 1 << 24


class LinearScores(LazyScores):
    """The scores ``[..., L]`` of a linear head, described by what they are made of.

    Losses of the family walk over chunks of labels: each chunk's scores are made, summed into two floats a row and
    dropped; backward makes them again. Memory is that of one chunk, whatever L is. Exact: nothing is sampled or skipped.

    Args:
        hidden: ``[..., D]``.
        weight: ``[L, D]``.
        bias: ``[L]``, or None.
        chunk_size: labels a chunk; None takes as many as give chunks of 16 million scores.

    Example:
        >>> from manyhot import SparseLabels, zlpr_loss
        >>> _ = torch.manual_seed(0)
        >>> hidden, weight = torch.randn(2, 8), torch.randn(1000, 8, requires_grad=True)
        >>> scores = LinearScores(hidden, weight)
        >>> loss = zlpr_loss(scores, SparseLabels.from_lists([[3, 700], [5]], num_labels=1000))
        >>> loss.backward()
        >>> scores.shape, weight.grad.shape
        (torch.Size([2, 1000]), torch.Size([1000, 8]))
    """

    __slots__ = ("bias", "chunk_size", "hidden", "weight")

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None = None, *, chunk_size: int | None = None) -> None:
        check_logits("LinearScores", hidden, "hidden")
        check_logits("LinearScores", weight, "weight")
        if weight.ndim != 2 or weight.shape[1] != hidden.shape[-1]:
            raise ValueError(
                f"LinearScores: `weight` must be [L, D] with the D of `hidden`, {hidden.shape[-1]};"
                f" got {shape_text(weight.shape)}."
            )
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError(
                f"LinearScores: `bias` must have one value per label, {shape_text(weight.shape[:1])};"
                f" got {shape_text(bias.shape)}."
            )
        if chunk_size is not None:
            check_at_least("LinearScores", "chunk_size", chunk_size, 1)
        self.hidden, self.weight, self.bias, self.chunk_size = hidden, weight, bias, chunk_size

    @property
    def shape(self) -> torch.Size:
        """``[..., L]``."""
        return torch.Size((*self.hidden.shape[:-1], self.weight.shape[0]))

    @property
    def device(self) -> torch.device:
        """Where the scores would be."""
        return self.hidden.device

    def dense(self) -> Tensor:
        """The whole tensor ``[..., L]``."""
        return torch.nn.functional.linear(self.hidden, self.weight, self.bias)

    def __mul__(self, factor: float) -> LinearScores:
        """The scores times a number: ``hidden`` and ``bias`` are scaled, the weight is left alone."""
        bias = None if self.bias is None else self.bias * factor
        return LinearScores(self.hidden * factor, self.weight, bias, chunk_size=self.chunk_size)

    def __repr__(self) -> str:
        return f"LinearScores({shape_text(self.shape)}, hidden size {self.hidden.shape[-1]})"

    def two_sided_logsumexp(
        self,
        labels: Labels,
        *,
        where: Tensor | None = None,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
        who: str = "two_sided_logsumexp",
    ) -> tuple[Tensor, Tensor]:
        """``(pos, neg)``, each ``[...]``, with gradients to ``hidden``, ``weight`` and ``bias``; see the function."""
        check_unit(who, "smoothing", smoothing)
        check_engine(who, engine, ("torch",))
        if dim not in (-1, len(self.shape) - 1, [-1], (-1,)):
            raise ValueError(f"{who}: LinearScores have their labels on the last axis; got dim {dim}. Call .dense().")
        rows = torch.Size((self.shape[:-1].numel(), self.shape[-1]))
        if isinstance(labels, Tensor) and labels.shape == self.shape:
            labels = labels.reshape(rows)
        terms = check_terms(
            who,
            rows,
            labels,
            where=None if where is None else where.expand(self.shape).reshape(rows),
            pos_weight=pos_weight,
            neg_weight=neg_weight,
            smoothing=smoothing,
            dim=-1,
            validate=validate,
            device=self.device,
        )
        flat = self.hidden.reshape(rows[0], self.hidden.shape[-1])
        size = self.chunk_size or max(1, CHUNK_ELEMENTS // max(rows[0], 1))
        parts = _autocast(flat, self.weight, self.bias)
        sums = _LinearSides.apply(*parts, terms, size)  # type: ignore[no-untyped-call]
        pos, neg = LogSum(*sums[:2]).value, LogSum(*sums[2:]).value
        return pos.reshape(self.shape[:-1]), neg.reshape(self.shape[:-1])


def _autocast(*parts: Tensor | None) -> list[Tensor | None]:
    """The parts in the type a matrix product would take under autocast, so that backward sees the same."""
    device = parts[0].device.type if parts[0] is not None else "cpu"
    if not torch.is_autocast_enabled(device):
        return list(parts)
    dtype = torch.get_autocast_dtype(device)
    return [part if part is None or part.dtype == torch.float64 else part.to(dtype) for part in parts]


def _chunk_scores(hidden: Tensor, weight: Tensor, bias: Tensor | None, start: int, stop: int) -> Tensor:
    part = None if bias is None else bias[start:stop]
    scores = torch.nn.functional.linear(hidden, weight[start:stop], part)
    return scores.to(accumulation_dtype(scores.dtype))


class _LinearSides(torch.autograd.Function):
    """Two sweeps over label chunks: sums forward, gradients backward with each chunk's scores made again."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, terms: DenseTerms | SparseTerms, size: int
    ) -> tuple[Tensor, ...]:
        dtype = accumulation_dtype(torch.promote_types(hidden.dtype, weight.dtype))
        zero = hidden.new_zeros(hidden.shape[:1], dtype=dtype)
        pos = neg = LogSum(zero, torch.full_like(zero, -torch.inf))
        for start in range(0, weight.shape[0], size):
            stop = min(start + size, weight.shape[0])
            part: Terms = terms.columns(start, stop)
            chunk_pos, chunk_neg = part.sides(_chunk_scores(hidden, weight, bias, start, stop))
            pos, neg = pos.merge(chunk_pos), neg.merge(chunk_neg)
        ctx.save_for_backward(hidden, weight, bias, *pos, *neg)
        ctx.terms, ctx.size = terms, size
        ctx.mark_non_differentiable(pos.shift, neg.shift)
        return *pos, *neg

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, *sums = ctx.saved_tensors
        pos, neg = LogSum(*sums[:2]), LogSum(*sums[2:])
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_hidden = hidden.new_zeros(hidden.shape, dtype=pos.rest.dtype) if needs_hidden else None
        grad_weight = torch.empty_like(weight) if needs_weight else None
        grad_bias = torch.empty_like(bias) if needs_bias else None
        for start in range(0, weight.shape[0], ctx.size):
            stop = min(start + ctx.size, weight.shape[0])
            scores = _chunk_scores(hidden, weight, bias, start, stop)
            grad = ctx.terms.columns(start, stop).gradient(scores, pos, neg, grads[1], grads[3])
            half = grad.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden += half @ weight[start:stop].to(hidden.dtype)
            if grad_weight is not None:
                grad_weight[start:stop] = half.mT @ hidden
            if grad_bias is not None:
                grad_bias[start:stop] = grad.sum(dim=0)
        return None if grad_hidden is None else grad_hidden.to(hidden.dtype), grad_weight, grad_bias, None, None
