"""The overlap of probabilities ``p = sigma(s)`` and labels of a row, and dice loss, which is a function of it.

Dice loss ``1 - (2 <p, t> + e) / (size + e)`` equals ``apart / (size + e)``. The second form has no subtraction, so that a loss
near 0 keeps its precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines.plain import plain_form
from manyhot.engines.readable import is_readable
from manyhot.engines.registry import Engine, choose
from manyhot.engines.saved import put_together, take_apart
from manyhot.engines.totals import total
from manyhot.losses.core.dispatch import row_scale, wants_fusion
from manyhot.losses.core.fusion import Terms, apply_fused
from manyhot.losses.core.labelwise import sum_over_labels
from manyhot.losses.core.layout import Rows
from manyhot.losses.core.reduction import reduce
from manyhot.losses.core.repeats import in_forward_mode


def dice_of_rows(
    who: str, rows: Rows, *, squared: bool, epsilon: float, sample_weight: Tensor | None, reduction: str, validate: bool
) -> Tensor:
    """The reduced dice loss of the rows, by an engine that computes it or in the plain form."""
    plain = torch.compiler.is_compiling() or in_forward_mode()
    engine = None if plain else choose(who, "auto", rows.logits, rows.terms, sample_weight)
    if engine is not None and engine.SUMS_OVERLAP and wants_fusion(rows.logits, 0.0, reduction):
        scale = row_scale(who, rows, sample_weight, reduction, validate)
        return apply_fused(rows, scale, engine, _Dice(squared, epsilon), 0.0)
    if engine is not None and engine.SUMS_OVERLAP:
        apart, size = _Overlap.apply(rows.logits, engine, squared, rows.terms)  # type: ignore[no-untyped-call]
    else:
        apart, size = overlap_of_rows(rows.logits, rows.terms, squared=squared)
    values = (apart / (size + epsilon)).reshape(rows.shape)
    return reduce(who, values, sample_weight=sample_weight, reduction=reduction, validate=validate)


@plain_form("overlap")
def overlap_of_rows(x: Tensor, terms: Terms, *, squared: bool) -> tuple[Tensor, Tensor]:
    """``(apart, size)``, each ``[R]``: ``sum t (1 - p) + (1 - t) p`` and ``sum p + t``, or ``sum (p - t)^2`` and ``sum p^2 +
    t^2``."""

    def apart(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        off, rest = neg * torch.sigmoid(x), pos * torch.sigmoid(-x)
        return (off - rest) ** 2 if squared else off + rest

    def size(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        p = (pos + neg) * torch.sigmoid(x)
        return p**2 + pos**2 if squared else p + pos

    rows = Rows(x, terms, x.shape[:1])
    return sum_over_labels(rows, apart), sum_over_labels(rows, size)


@plain_form("overlap_gradient")
def _overlap_gradient(x: Tensor, terms: Terms, by_apart: Tensor, by_size: Tensor, *, squared: bool) -> Tensor:
    with torch.enable_grad():
        scores = x.detach().requires_grad_()
        sums = overlap_of_rows(scores, terms, squared=squared)
        (grad,) = torch.autograd.grad(sums, scores, (by_apart.to(sums[0].dtype), by_size.to(sums[0].dtype)))
    return grad


class _Dice:
    """Dice loss in two forms: fused by an engine, and plain, which can be differentiated twice."""

    __slots__ = ("epsilon", "squared")

    def __init__(self, squared: bool, epsilon: float) -> None:
        self.squared, self.epsilon = squared, epsilon

    def fused(
        self, engine: Any, x: Tensor, _: Any, terms: Terms, scale: Tensor | float, **whole: bool
    ) -> tuple[Tensor, Tensor, None]:
        """Values (or with ``whole`` the reduced loss), and the gradient by ``x`` times ``scale``."""
        values, grad = engine.dice(x, terms, squared=self.squared, epsilon=self.epsilon, row_scale=scale, **whole)
        return values, grad, None

    def plain(self, x: Tensor, _: Any, terms: Terms) -> Tensor:
        """Values of the rows in the plain form."""
        apart, size = overlap_of_rows(x, terms, squared=self.squared)
        values: Tensor = apart / (size + self.epsilon)
        return values


@plain_form("dice")
def _plain_dice(
    x: Tensor, terms: Terms, *, squared: bool, epsilon: float, row_scale: Tensor | float = 1.0, whole: bool = False
) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        scores = x.detach().requires_grad_()
        values = _Dice(squared, epsilon).plain(scores, 0.0, terms)
        reduced = total(values, row_scale)
        (grad,) = torch.autograd.grad(reduced, scores)
    return reduced.detach() if whole else values.detach(), grad


class _Overlap(torch.autograd.Function):
    """``(apart, size)`` by an engine; backward reads the scores again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, engine: Engine, squared: bool, terms: Terms) -> tuple[Tensor, Tensor]:
        tensors, ctx.constants = take_apart(terms)
        ctx.save_for_backward(x, *tensors)
        ctx.settings = (engine, squared, type(terms))
        return engine.overlap(x, terms, squared=squared)

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor) -> tuple[Tensor | None, ...]:
        x, *tensors = ctx.saved_tensors
        engine, squared, kind = ctx.settings
        terms = kind(*put_together(tensors, ctx.constants)[0])
        if torch.is_grad_enabled():
            sums = overlap_of_rows(x, terms, squared=squared)
            (grad,) = torch.autograd.grad(sums, x, pulls, create_graph=True)
        elif all(map(is_readable, pulls)):
            grad = engine.overlap_gradient(x, terms, *pulls, squared=squared)
        else:
            with torch.enable_grad():
                grad = torch.autograd.grad(overlap_of_rows(x, terms, squared=squared), x, pulls)[0]
        return grad, None, None, None
