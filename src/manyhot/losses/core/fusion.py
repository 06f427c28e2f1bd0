"""Autograd functions for a reduced loss whose gradient is computed in the same pass as the loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines import ops
from manyhot.engines.readable import is_readable
from manyhot.engines.registry import Engine
from manyhot.engines.saved import put_together, take_apart
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.totals import total
from manyhot.losses.core.layout import Rows

Terms = DenseTerms | SparseTerms


def apply_fused(rows: Rows, scale: Tensor | float, engine: Engine, loss: Any, offset: Tensor | float) -> Tensor:
    """The reduced loss, with its gradient computed in the same pass."""
    out: Tensor
    if not torch.compiler.is_compiling():
        out = _run_eager(rows.logits, offset, (scale, engine, loss, rows.terms))
    elif torch.is_grad_enabled():
        out = _Compiled.apply(rows.logits, offset, scale, loss, type(rows.terms), *rows.terms)  # type: ignore[no-untyped-call]
    else:
        out = loss.fused(ops, rows.logits, offset, rows.terms, scale)[0]
    return out


def apply_half(rows: Rows, scale: Tensor | float, engine: Engine, loss: Any, offset: Tensor | float) -> Tensor:
    """The same for float16 scores."""
    out: Tensor
    if not torch.compiler.is_compiling():
        out = _run_half(rows.logits, offset, (scale, engine, loss, rows.terms))
    elif torch.is_grad_enabled():
        out = _CompiledHalf.apply(rows.logits, offset, scale, loss.form, type(rows.terms), *rows.terms)  # type: ignore[no-untyped-call]
    else:
        out = ops.half(rows.logits, rows.terms, loss.form, offset, scale)[0]  # type: ignore[arg-type]
    return out


class _Eager(torch.autograd.Function):
    """Forward keeps the finished gradient; the first backward scales it in place and returns it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, offset: Any, call: tuple[Any, Engine, Any, Terms]) -> Tensor:
        scale, engine, loss, terms = call
        value: Tensor
        value, grad, slope = loss.fused(engine, x, offset, terms, scale, whole=True)
        _save(ctx, x, offset, call, (grad, slope))
        return value

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        # Autograd runs CUDA backward on its own thread; keep Python work here minimal. Reading the saved tensors raises if one
        # was changed in place, or if the graph was freed.
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            return (*_differentiable(ctx, saved, grad_out), None)
        own, finished = is_readable(grad_out), ctx.finished
        grad, slope = (finished.pop() if own else finished[0]) if finished else _recompute_gradient(ctx, saved)
        grad = ctx.settings[0].scale_(grad, grad_out) if own else scaled(grad, grad_out)
        if slope is None:
            return grad, None, None
        by_x, by_offset = ctx.needs_input_grad[:2]
        by_slope = slope * _inputs(ctx, saved)[2] * grad_out if by_offset else None
        return grad if by_x else None, by_slope, None


def _save(ctx: Any, x: Tensor, offset: Any, call: tuple[Any, Engine, Any, Terms], finished: Any) -> None:
    """Save the inputs, which ``_inputs`` restores, and the ``finished`` gradient."""
    scale, engine, loss, terms = call
    tensors, ctx.constants = take_apart((offset, scale, *terms))
    ctx.save_for_backward(x, *tensors)
    ctx.settings, ctx.finished = (engine, loss, type(terms)), [finished]


def _inputs(ctx: Any, saved: Any) -> tuple[Tensor, Any, Any, Terms]:
    """Scores, offset, scale and terms of the forward call."""
    x, *tensors = saved
    (offset, scale, *fields), _ = put_together(tensors, ctx.constants)
    return x, offset, scale, ctx.settings[2](*fields)


def _recompute_gradient(ctx: Any, saved: Any) -> tuple[Tensor, Tensor | None]:
    """The gradient for a second backward through a retained graph."""
    engine, loss = ctx.settings[:2]
    x, offset, scale, terms = _inputs(ctx, saved)
    _, grad, slope = loss.fused(engine, x, offset, terms, scale, whole=True)
    return grad, slope


def scaled(grad: Tensor, factor: Tensor) -> Tensor:
    """``grad * factor`` in the type of ``grad``, for a factor that is not a plain tensor, as under ``vmap``."""
    return (grad * factor).to(grad.dtype)


def _differentiable(ctx: Any, saved: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
    """The gradient recomputed by the plain form, so that it can be differentiated again."""
    x, offset, scale, terms = _inputs(ctx, saved)
    reduced = total(ctx.settings[1].plain(x, offset, terms), scale)
    return wanted_gradients(ctx, reduced, (x, offset), grad_out)


def wanted_gradients(ctx: Any, reduced: Tensor, inputs: tuple[Any, Any], grad_out: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of a reduced loss by the two ``inputs``, which can be differentiated again; None where none is needed."""
    wanted = ctx.needs_input_grad[:2]
    needed = [part for part, want in zip(inputs, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(reduced, needed, grad_out.to(reduced.dtype), create_graph=True))
    return tuple(next(found) if want else None for want in wanted)


# Function.apply without its support for torch.func, which takes as long as a launch. Under torch.func no engine is chosen.
_run_eager: Any = getattr(super(torch.autograd.Function, _Eager), "apply", _Eager.apply)


class _Repeated(_Eager):
    """The same for a call whose value and gradient are already computed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _: Any, call: tuple[Any, ...]) -> Tensor:
        made, tensors, ctx.settings, ctx.constants = call
        ctx.save_for_backward(x, *tensors)
        value: Tensor
        value, ctx.held = made
        ctx.finished = ()
        return value

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        # Autograd runs CUDA backward on its own thread, with cold caches: every line takes a microsecond.
        ctx.saved_tensors  # noqa: B018 - raises if one was changed in place, or if the graph was freed
        grad = ctx.held
        if grad is None or torch.is_grad_enabled() or type(grad_out) is not Tensor:
            return _Eager.backward(ctx, grad_out)
        ctx.held = None
        scale = ctx.settings[3]
        if scale is not None:
            return (scale(grad, grad_out) if is_readable(grad_out) else scaled(grad, grad_out)), None, None
        try:
            return grad.mul_(grad_out), None, None
        except RuntimeError:  # a factor of ``vmap``, which cannot be multiplied in place
            return scaled(grad, grad_out), None, None


_run_repeated: Any = getattr(super(torch.autograd.Function, _Repeated), "apply", _Repeated.apply)


class _EagerHalf(_Eager):
    """The same in float16. Float16 cannot represent every gradient before its scale is known, so backward finishes it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, offset: Any, call: tuple[Any, Engine, Any, Terms]) -> Tensor:
        scale, engine, loss, terms = call
        value, held = engine.half_fused(x, terms, loss.form, offset, scale)
        _save(ctx, x, offset, call, held)
        return value

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            return (*_differentiable(ctx, saved, grad_out), None)
        if not is_readable(grad_out):
            with torch.enable_grad():
                return (*_differentiable(ctx, saved, grad_out), None)
        engine, loss = ctx.settings[:2]

        def problem() -> tuple[Any, ...]:
            x, offset, scale, terms = _inputs(ctx, saved)
            return x, terms, loss.form, offset, scale

        held = ctx.finished.pop() if ctx.finished else engine.half_fused(*problem())[1]
        return engine.half_finish(held, grad_out, problem), None, None


class _RepeatedHalf(_EagerHalf):
    """The same for a call whose value and gradient are already computed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _: Any, call: tuple[Any, ...]) -> Tensor:
        return _Repeated.forward(ctx, x, _, call)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        ctx.saved_tensors  # noqa: B018 - as in ``_Repeated``
        held = ctx.held
        if held is None or torch.is_grad_enabled() or not is_readable(grad_out):
            return _EagerHalf.backward(ctx, grad_out)
        ctx.held = None
        grad = ctx.settings[3](held, grad_out)
        if grad is None:
            ctx.finished = [held]
            return _EagerHalf.backward(ctx, grad_out)
        return grad, None, None


_run_repeated_half: Any = getattr(super(torch.autograd.Function, _RepeatedHalf), "apply", _RepeatedHalf.apply)
_run_half: Any = getattr(super(torch.autograd.Function, _EagerHalf), "apply", _EagerHalf.apply)


def repeated(x: Tensor) -> Any:
    """The function that adds a computed loss and its gradient to autograd's graph. Its arguments are the scores, None, and
    ``(value and gradient, tensors of the terms, settings, constants)``."""
    return _run_repeated_half if x.dtype == torch.float16 else _run_repeated


class _Compiled(torch.autograd.Function):
    """The same for compiled graphs: operators instead of engines."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, offset: Any, scale: Any, loss: Any, kind: type[Terms], *fields: Any) -> Tensor:
        value: Tensor
        value, grad, slope = loss.fused(ops, x, offset, kind(*fields), scale)
        by_offset = slope * scale if isinstance(offset, Tensor) else None
        ctx.save_for_backward(grad, by_offset)
        ctx.rest = 3 + len(fields)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad, by_offset = ctx.saved_tensors
        by_offset = None if by_offset is None else by_offset * grads[0]
        return ops.scaled(grad, grads[0]), by_offset, *((None,) * ctx.rest)


class _CompiledHalf(torch.autograd.Function):
    """The same in float16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, offset: float, scale: float, form: str, kind: type[Terms], *fields: Any) -> Tensor:
        value, grad, used = ops.half(x, kind(*fields), form, offset, scale)
        tensors, ctx.constants = take_apart(fields)
        ctx.save_for_backward(grad, used, x, *tensors)
        ctx.kind, ctx.settings = kind, (form, offset, scale)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad, used, x, *tensors = ctx.saved_tensors
        fields, _ = put_together(tensors, ctx.constants)
        return ops.half_scaled(grad, used, grads[0], x, ctx.kind(*fields), *ctx.settings), *((None,) * (4 + len(fields)))
