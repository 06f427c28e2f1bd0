"""The primitive of the family, ``two_sided_logsumexp``, and the choice of its engine.

    pos = log sum_i t_i e^{-s_i}            neg = log sum_i (1 - t_i) e^{s_i}

Every loss of the family is one line on top of ``(pos, neg)``. Scores may be a tensor or lazy: an object that describes the
tensor and computes its own sides (``LazyScores``). A new kind of scores is a new class; no loss changes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_engine
from manyhot.engines import ops
from manyhot.engines.readable import is_readable
from manyhot.engines.registry import NAMES, Engine, choose
from manyhot.engines.saved import put_together, take_apart
from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms, Weight, accumulation_dtype, in_one_part
from manyhot.losses.core.layout import Labels, Rows, arrange
from manyhot.losses.core.lazy import Dim as Dim
from manyhot.losses.core.lazy import LazyScores as LazyScores
from manyhot.losses.core.lazy import is_lazy

Scores = Tensor | LazyScores


def two_sided_logsumexp(
    logits: Scores,
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
    """The log-sums of the two sides of a row, over the label axis.

    ``pos = log sum_i p_i t_i e^{-s_i}`` and ``neg = log sum_i n_i (1 - t_i) e^{s_i}``, ``-inf`` for an empty sum, with the
    scores ``s = logits``, the labels ``t`` and the weights ``p = pos_weight``, ``n = neg_weight``. Sums are taken in float32
    (float64 for float64 logits). Gradients flow to ``logits``; labels and weights are constants.

    Args:
        logits: ``[..., L]``, or lazy scores.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels`` with one row for each row of ``logits``. Bool and integer labels are
            hard, positive where they are above 0.
        where: bool, broadcastable to ``logits``; False leaves an entry out of both sums, whatever its score.
        pos_weight: a number or ``[L]``, weighs the terms inside the positive sum.
        neg_weight: the same for the negative sum.
        smoothing: uniform label smoothing, ``t (1 - e) + e / 2``, without a dense label tensor.
        dim: the label axis, or several that are taken together.
        engine: ``"auto"``, ``"torch"``, ``"native"`` (CPU) or ``"triton"`` (CUDA); see ``manyhot.engines``.
        validate: look at the values of labels and weights too (on a GPU this waits for the device).
        who: the name that error messages start with.

    Returns:
        Two tensors ``[...]``: ``pos`` and ``neg``.

    Example:
        >>> import torch
        >>> pos, neg = two_sided_logsumexp(torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, 0, 0]]))
        >>> pos, neg
        (tensor([-2.]), tensor([0.7014]))
    """
    about: dict[str, Any] = {"where": where, "pos_weight": pos_weight, "neg_weight": neg_weight, "smoothing": smoothing}
    if is_lazy(logits):
        return logits.two_sided_logsumexp(labels, dim=dim, engine=engine, validate=validate, who=who, **about)
    pos, neg = log_sums(who, logits, labels, dim=dim, engine=engine, validate=validate, **about)
    return pos.value, neg.value


def log_sums(
    who: str, logits: Scores, labels: Labels, *, engine: str = "auto", dim: Dim = -1, validate: bool = False, **about: Any
) -> tuple[LogSum, LogSum]:
    """``two_sided_logsumexp`` with each side in two parts, shift and rest, for losses that add sides or offsets. Lazy scores
    have only one part."""
    if is_lazy(logits):
        pos, neg = logits.two_sided_logsumexp(labels, dim=dim, engine=engine, validate=validate, who=who, **about)
        return in_one_part(pos), in_one_part(neg)
    rows = arrange(who, logits, labels, dim=dim, validate=validate, **about)
    check_engine(who, engine, NAMES)
    return sides_of_rows(rows, choose(who, engine, rows.logits, rows.terms))


def sides_of_rows(rows: Rows, engine: Engine | None) -> tuple[LogSum, LogSum]:
    """``(pos, neg)``, each ``[...]``, by an engine or in the plain form. Gradients flow through the rests; shifts are
    constants."""
    given = (rows.logits, engine, type(rows.terms), *rows.terms)
    if not torch.compiler.is_compiling():
        sums = _SidesWithForwardMode.apply(*given)  # type: ignore[no-untyped-call]
    elif torch.is_grad_enabled() and rows.logits.requires_grad:
        sums = _Sides.apply(*given)  # type: ignore[no-untyped-call]
    else:
        # If no gradient is needed, Dynamo calls `forward` with one argument too many.
        sums = _Sides.forward(*given)
    pos, neg = LogSum(*sums[:2]), LogSum(*sums[2:])
    return (pos, neg) if len(rows.shape) == 1 else (pos.reshape(rows.shape), neg.reshape(rows.shape))


class _Sides(torch.autograd.Function):
    """``(logits, engine, kind of terms, *fields of the terms) -> (pos, neg)`` in two parts each; saves them and the inputs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, engine: Engine | None, kind: Any, *fields: Any) -> tuple[Tensor, ...]:
        terms = kind(*fields)
        if engine is None:
            pos, neg = terms.sides(logits.to(accumulation_dtype(logits.dtype)))
        else:
            pos, neg = (ops if torch.compiler.is_compiling() else engine).sides(logits, terms)
        return *pos, *neg

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, ctx.engine, ctx.kind, *fields = inputs
        ctx.mark_non_differentiable(output[0], output[2])
        tensors, ctx.constants = take_apart(fields)
        ctx.save_for_backward(logits, *output, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        logits, terms, pos, neg = _saved_sides(ctx)
        pulls = grads[1], grads[3]
        if torch.compiler.is_compiling() and ctx.engine is not None:
            grad = ops.gradient(logits, terms, pos, neg, *pulls)
        elif ctx.engine is None or torch.is_grad_enabled() or not (is_readable(pulls[0]) and is_readable(pulls[1])):
            grad = _plain_gradient(logits, terms, pos, neg, *pulls).to(logits.dtype)
        else:
            grad = ctx.engine.gradient(logits, terms, pos, neg, *pulls)
        return (grad, None, None, *(None for _ in ctx.constants))


class _SidesWithForwardMode(_Sides):
    """The same with forward-mode derivatives, which ``torch.func.jacfwd`` and ``hessian`` need and ``torch.compile`` does not
    support."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _Sides.setup_context(ctx, inputs, output)
        tensors = [field for field in inputs[3:] if isinstance(field, Tensor)]
        ctx.save_for_forward(inputs[0], *output, *tensors)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """The directional derivative of the sides: the gradient of each side times the tangent."""
        logits, terms, pos, neg = _saved_sides(ctx)
        one, zero = torch.ones_like(pos.rest), torch.zeros_like(pos.rest)
        moves = (_plain_gradient(logits, terms, pos, neg, *pulls) * tangent for pulls in ((one, zero), (zero, one)))
        by_pos, by_neg = (move.sum(dim=-1) for move in moves)
        return None, by_pos, None, by_neg


def _saved_sides(ctx: Any) -> tuple[Tensor, DenseTerms | SparseTerms, LogSum, LogSum]:
    """Scores, terms and both sides of the forward call."""
    logits, pos_shift, pos_rest, neg_shift, neg_rest, *tensors = ctx.saved_tensors
    fields, _ = put_together(tensors, ctx.constants)
    return logits, ctx.kind(*fields), LogSum(pos_shift, pos_rest), LogSum(neg_shift, neg_rest)


def _plain_gradient(
    logits: Tensor, terms: DenseTerms | SparseTerms, pos: LogSum, neg: LogSum, grad_pos: Tensor, grad_neg: Tensor
) -> Tensor:
    return terms.gradient(logits.to(accumulation_dtype(logits.dtype)), pos, neg, grad_pos, grad_neg)
