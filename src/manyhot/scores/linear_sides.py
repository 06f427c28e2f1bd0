"""The sides and the loss of linear scores, with gradients to hidden, weight and bias."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from manyhot.engines.linear import ops, plain
from manyhot.engines.linear.problem import Gradients, LinearEngine, LinearProblem, Memory, Needs, Update
from manyhot.engines.linear.registry import failed
from manyhot.engines.terms import DenseTerms, SparseTerms, in_one_part
from manyhot.losses.core.forms import FORMS

Terms = DenseTerms | SparseTerms


class LinearSides(torch.autograd.Function):
    """``(hidden, weight, bias, engine, chunk, kept, update, strict, kind of terms, *fields) -> (pos, neg)``."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
        """Both sides, each ``[R]``."""
        engine, chunk, kept, update, strict, kind, *fields = rest
        problem = LinearProblem(hidden, weight, bias, kind(*fields), chunk, kept if any(ctx.needs_input_grad[:3]) else 0)
        pos, neg, memory, engine = local_sums(engine, problem, strict)
        remember(ctx, problem, memory, fields)
        ctx.engine, ctx.update, ctx.strict, ctx.kind = engine, update, strict, kind
        return pos, neg

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_pos: Tensor, grad_neg: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden, weight and bias."""
        problem, memory = recall(ctx)
        pulls = (grad_pos.contiguous(), grad_neg.contiguous())
        made = local_gradient(ctx.engine, problem, memory, pulls, ctx.needs_input_grad[:3], ctx.update, ctx.strict)
        return *made, *((None,) * (6 + len(ctx.constants)))


class LinearLoss(torch.autograd.Function):
    """``(hidden, weight, bias, offset, engine, chunk, kept, update, form, scale, whole, strict, kind, *fields) -> loss``.

    The engine computes the loss of each row directly from the scores, which saves the operations in between. With ``whole`` the
    loss is ``sum scale loss``, otherwise one value per row. ``kind`` is the type of the terms with these ``fields``.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, offset: Any, *rest: Any) -> Tensor:
        """The loss."""
        engine, chunk, kept, update, form, scale, whole, strict, kind, *fields = rest
        problem = LinearProblem(hidden, weight, bias, kind(*fields), chunk, kept if any(ctx.needs_input_grad[:3]) else 0)
        values, slope, memory = engine.losses(problem, form, offset, scale)
        remember(ctx, problem, memory, fields)
        ctx.engine, ctx.update, ctx.kind, ctx.slope, ctx.whole = engine, update, kind, slope, whole
        ctx.strict, ctx.call = strict, (form, offset, scale)
        value: Tensor = engine.total(values, scale) if whole else values
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden, weight, bias and offset."""
        problem, memory = recall(ctx)
        grad = grad.contiguous()
        pulls = (grad, None if ctx.whole else grad)
        needs = ctx.needs_input_grad[:3]
        try:
            made = local_gradient(ctx.engine, problem, memory, pulls, needs, ctx.update, strict=True)
        except Exception as error:
            if ctx.strict or ctx.update is not None:
                raise
            failed(ctx.engine, error)
            form, offset, scale = ctx.call
            made = plain_loss_gradient(problem, form, offset, scale, grad, needs)
        by_offset = ctx.slope * grad if ctx.needs_input_grad[3] else None
        return *made, by_offset, *((None,) * (9 + len(ctx.constants)))


def plain_loss_gradient(problem: LinearProblem, form: str, offset: Any, scale: Any, grad: Tensor, needs: Needs) -> Gradients:
    """The gradients of ``LinearLoss`` in plain torch."""
    pos, neg, memory = plain.sums(problem)
    with torch.enable_grad():
        pos, neg = pos.requires_grad_(), neg.requires_grad_()
        values = FORMS[form](in_one_part(pos), in_one_part(neg), offset.detach() if isinstance(offset, Tensor) else offset)
        pulls = torch.autograd.grad(values, (pos, neg), (grad * scale).expand_as(values).to(values.dtype))
    return local_gradient(plain, problem, memory, pulls, needs, None, strict=True)


def remember(ctx: Any, problem: LinearProblem, memory: Memory, fields: Any) -> None:
    """Save everything that backward needs, so that torch frees it with the graph."""
    ctx.sizes, ctx.length = (problem.chunk, problem.kept), len(memory)
    ctx.constants = [None if isinstance(field, Tensor) else (field,) for field in fields]
    tensors = [field for field in fields if isinstance(field, Tensor)]
    ctx.save_for_backward(problem.hidden, problem.weight, problem.bias, *memory, *tensors)


def recall(ctx: Any) -> tuple[LinearProblem, Memory]:
    """The problem and the memory of ``remember``."""
    hidden, weight, bias, *saved = ctx.saved_tensors
    stored = iter(saved[ctx.length :])
    terms = ctx.kind(*(next(stored) if constant is None else constant[0] for constant in ctx.constants))
    return LinearProblem(hidden, weight, bias, terms, *ctx.sizes), tuple(saved[: ctx.length])


def local_sums(engine: LinearEngine, problem: LinearProblem, strict: bool) -> tuple[Tensor, Tensor, Memory, LinearEngine]:
    """The sides, and the engine that computed them. Without ``strict`` the plain engine takes over if the engine fails."""
    if torch.compiler.is_compiling() and engine is not plain:
        return *ops.sums(problem), engine
    try:
        return *engine.sums(problem), engine
    except Exception as error:
        if strict:
            raise
        failed(engine, error)
    return *plain.sums(problem), plain


def local_gradient(
    engine: LinearEngine,
    problem: LinearProblem,
    memory: Memory,
    pulls: Any,
    needs: Needs,
    update: Update | None,
    strict: bool,
    group: Any = None,
    more: Tensor | None = None,
) -> Gradients:
    """The gradients in the types of the parts, None for those that the update has applied.

    ``more`` is added to the gradient of hidden, which is then summed over ``group``.
    """
    if torch.compiler.is_compiling() and engine is not plain:
        made = ops.gradient(problem, memory, pulls, needs)
    else:
        try:
            made = engine.gradient(problem, memory, pulls, needs, update)
        except Exception as error:
            if strict or update is not None:
                raise
            failed(engine, error)
            made = plain.gradient(problem, plain.sums(problem)[2], pulls, needs)
    by_hidden, by_weight, by_bias = made
    by_hidden = by_hidden if by_hidden is None or more is None else by_hidden + more
    if group is not None and by_hidden is not None:
        dist.all_reduce(by_hidden, group=group)
    if update is not None:
        update.finish(problem, by_bias)
        by_weight = by_bias = None
    if by_bias is not None and problem.bias is not None:
        by_bias = by_bias.to(problem.bias.dtype)
    return None if by_hidden is None else by_hidden.to(problem.hidden.dtype), by_weight, by_bias
