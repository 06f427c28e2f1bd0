"""The sides and the reduced loss of span scores, with gradients to their parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines.plain_spans.terms import SpanParts, joined, weighed
from manyhot.engines.saved import put_together, take_apart
from manyhot.engines.terms import LogSum


class SpanLoss(torch.autograd.Function):
    """The reduced loss, computed by an engine; saves the parts and what the engine needs in backward."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, u: Tensor | None, v: Tensor | None, call: tuple[Any, ...]) -> Tensor:
        """The loss of ``(engine, scale, cells, threshold, reduction)``."""
        engine, scale, cells, threshold, reduction = call
        value: Tensor
        value, memory = engine.loss(SpanParts(q, k, u, v, scale), cells, threshold, reduction)
        tensors, constants = take_apart(cells)
        ctx.save_for_backward(q, k, u, v, *tensors, *memory)
        ctx.settings = engine, type(cells), scale, constants
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the parts."""
        return _gradients_once(ctx, grad) if torch.is_grad_enabled() else _gradients(ctx, grad)


# Function.apply without its handling of torch.func, as in ``manyhot.losses.core.fusion``.
run_span_loss: Any = getattr(super(torch.autograd.Function, SpanLoss), "apply", SpanLoss.apply)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of the parts of a ``SpanLoss``."""
    q, k, u, v, *tensors = ctx.saved_tensors
    engine, kind, scale, constants = ctx.settings
    parts = SpanParts(q, k, u, v, scale)
    cells, memory = put_together(tensors, constants)
    made = engine.loss_gradient(parts, kind(*cells), grad, tuple(memory))
    moved = [
        own if own is None or part is None or own.dtype == part.dtype else own.to(part.dtype)
        for own, part in zip(made[:4], parts[:4], strict=True)
    ]
    return (*moved, None)


# Used if backward itself is to be differentiated: its results raise an error in a second backward.
_gradients_once = torch.autograd.function.once_differentiable(_gradients)


class SpanSides(torch.autograd.Function):
    """``(pos, neg)`` of each row and type, or summed over types or rows; saves the parts and the sums."""

    @staticmethod
    def forward(ctx: Any, engine: Any, kind: Any, others: tuple[int, ...], scale: float, *rest: Any) -> tuple[Tensor, Tensor]:
        """Both sides. ``rest`` holds the four parts, the weights of the two sides, and the fields of ``kind``."""
        parts, weights, fields = rest[:4], rest[4:6], rest[6:]
        *sides, memory = engine.sides(SpanParts(*(*parts, scale)), kind(*fields))
        sums = [joined(_weighed(side, weight), others) for side, weight in zip(sides, weights, strict=True)]
        tensors, ctx.constants = take_apart(fields)
        ctx.save_for_backward(*sums[0], *sums[1], *parts, *weights, *tensors, *memory)
        ctx.engine, ctx.kind, ctx.others, ctx.scale = engine, kind, others, scale
        pos, neg = (side.value.squeeze(others) if others else side.value for side in sums)
        return pos, neg

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the parts."""
        saved = ctx.saved_tensors
        parts, weights = SpanParts(*(*saved[4:8], ctx.scale)), saved[8:10]
        fields, memory = put_together(saved[10:], ctx.constants)
        terms = ctx.kind(*fields)
        shape = (parts.q.shape[0], parts.num_types)
        sums = [LogSum(shift.expand(shape), rest.expand(shape)) for shift, rest in (saved[:2], saved[2:4])]
        pulls = []
        for grad, weight in zip(grads, weights, strict=True):
            for axis in ctx.others:
                grad = grad.unsqueeze(axis)
            pulls.append((grad if weight is None else grad * weight).expand(shape))
        made = ctx.engine.gradient(parts, terms, (sums[0], sums[1]), (pulls[0], pulls[1]), tuple(memory))
        moved = (
            None if grad is None or part is None or not needed else grad.to(part.dtype)
            for grad, part, needed in zip(made[:4], parts[:4], ctx.needs_input_grad[4:8], strict=True)
        )
        return (None, None, None, None, *moved, None, None, *(None for _ in ctx.constants))


def _weighed(side: LogSum, weight: Tensor | None) -> LogSum:
    return side if weight is None else weighed(side, weight)
