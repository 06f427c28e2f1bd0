"""Two predictions of the same rows: their losses, their divergence and both gradients, with one read of each prediction.

As in ``dispatch``, that is faster if the gradient is needed and the reduction is known beforehand; in all other cases the parts
are computed one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from manyhot.engines import ops
from manyhot.engines.plain import plain_form
from manyhot.engines.readable import is_readable
from manyhot.engines.registry import Engine, choose
from manyhot.engines.saved import put_together, take_apart
from manyhot.engines.terms import DenseTerms, accumulation_dtype
from manyhot.engines.totals import total
from manyhot.losses.core.dispatch import row_scale, wants_fusion
from manyhot.losses.core.forms import FORMS
from manyhot.losses.core.fusion import Terms, scaled, wanted_gradients
from manyhot.losses.core.layout import Rows
from manyhot.losses.core.logsumexp import sides_of_rows

# The factor on the scores in the link of each kind of divergence.
LINK_FACTORS = {"sigmoid": 1.0, "sigmoid2": 2.0}


def jeffreys(a: Tensor, b: Tensor, link: float) -> Tensor:
    """``sum_i (sigma(k a_i) - sigma(k b_i)) k (a_i - b_i)`` of each row, ``[...]``, with ``k = link``.

    The value is the same for ``-b, -a`` as for ``a, b``. The pair with the smaller probabilities is used, because their
    difference is more precise.
    """
    likely = a + b > 0
    a, b = torch.where(likely, -b, a), torch.where(likely, -a, b)
    return ((torch.sigmoid(link * a) - torch.sigmoid(link * b)) * (link * (a - b))).sum(dim=-1)


def left_out_as_zero(where: Tensor | None, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both scores, set to 0 where they do not count."""
    return (a, b) if where is None else (torch.where(where, a, 0.0), torch.where(where, b, 0.0))


def pair_loss(
    who: str,
    a: Any,
    b: Any,
    rows: Rows,
    *,
    losses: bool,
    alpha: float,
    link: float,
    sample_weight: Tensor | None,
    reduction: str,
    engine: str,
) -> Tensor | None:
    """``(zlpr(a) + zlpr(b)) / 2 + alpha jeffreys(a, b)``, reduced, in one pass; None if no engine can do that.

    ``rows`` are those of ``a`` with the terms of the losses. Without ``losses`` only the divergence is computed, and of the
    terms only ``where`` is used.
    """
    if not isinstance(b, Tensor) or (a.shape, a.dtype, a.device) != (b.shape, b.dtype, b.device):
        return None
    chosen = choose(who, engine, rows.logits, rows.terms, b, sample_weight)
    if chosen is None or not wants_fusion(a, b, reduction):
        return None
    scale = row_scale(who, rows, sample_weight, reduction, False)
    other = b if b.ndim == 2 else b.reshape(rows.logits.shape)
    pair = _Pair(alpha, link, losses)
    if torch.compiler.is_compiling():
        out: Tensor = _Compiled.apply(rows.logits, other, scale, pair, type(rows.terms), *rows.terms)  # type: ignore[no-untyped-call]
    else:
        out = _Eager.apply(rows.logits, other, scale, chosen, pair, rows.terms)  # type: ignore[no-untyped-call]
    return out


class _Pair:
    """A loss of two predictions in two forms: fused by an engine, and plain, which can be differentiated twice."""

    __slots__ = ("alpha", "link", "losses")

    def __init__(self, alpha: float, link: float, losses: bool) -> None:
        self.alpha, self.link, self.losses = alpha, link, losses

    def fused(
        self, engine: Any, a: Tensor, b: Tensor, terms: Terms, scale: Tensor | float, **whole: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Values (or with ``whole`` the reduced loss), and the gradients by ``a`` and ``b`` times ``scale``."""
        given, where = (terms, None) if self.losses else (None, terms.where)
        settings = {"alpha": self.alpha, "link": self.link, "row_scale": scale, **whole}
        out: tuple[Tensor, Tensor, Tensor] = engine.rdrop(a, b, given, where, **settings)
        return out

    def plain(self, a: Tensor, b: Tensor, terms: Terms) -> Tensor:
        """Values of the rows in the plain form."""
        dtype = accumulation_dtype(a.dtype)
        values = self.alpha * jeffreys(*left_out_as_zero(terms.where, a.to(dtype), b.to(dtype)), self.link)
        if self.losses:
            for x in (a, b):
                values = values + FORMS["split"](*sides_of_rows(Rows(x, terms, x.shape[:1]), None), 0.0) / 2
        return values


@plain_form("rdrop")
def plain_rdrop(
    a: Tensor,
    b: Tensor,
    terms: Terms | None,
    where: Tensor | None = None,
    *,
    alpha: float = 1.0,
    link: float = 1.0,
    row_scale: Tensor | float = 1.0,
    whole: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """``(values, grad_a, grad_b)``; see ``manyhot.engines.native.engine.rdrop``."""
    pair = _Pair(alpha, link, terms is not None)
    with torch.enable_grad():
        one, two = (x.detach().requires_grad_() for x in (a, b))
        values = pair.plain(one, two, DenseTerms(a, where) if terms is None else terms)
        reduced = total(values, row_scale)
        grad_a, grad_b = torch.autograd.grad(reduced, (one, two))
    return (reduced if whole else values).detach(), grad_a, grad_b


class _Eager(torch.autograd.Function):
    """Forward keeps the finished gradients; the first backward scales them in place and returns them."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, scale: Any, engine: Engine, pair: _Pair, terms: Terms) -> Tensor:
        value, *grads = pair.fused(engine, a, b, terms, scale, whole=True)
        tensors, ctx.constants = take_apart((scale, *terms))
        ctx.save_for_backward(a, b, *tensors)
        ctx.settings, ctx.finished = (engine, pair, type(terms)), [grads]
        return value

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        a, b, *tensors = ctx.saved_tensors
        (scale, *fields), _ = put_together(tensors, ctx.constants)
        engine, pair, kind = ctx.settings
        wanted = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():
            reduced = total(pair.plain(a, b, kind(*fields)), scale)
            return *wanted_gradients(ctx, reduced, (a, b), grad_out), None, None, None, None
        if not ctx.finished:
            ctx.finished.append(pair.fused(engine, a, b, kind(*fields), scale)[1:])
        if is_readable(grad_out):
            grads = _scale_both(engine, ctx.finished.pop(), grad_out)
        else:
            grads = [scaled(grad, grad_out) for grad in ctx.finished[0]]
        return *(grad if want else None for grad, want in zip(grads, wanted, strict=True)), *(None,) * 4


def _scale_both(engine: Engine, grads: Sequence[Tensor], factor: Tensor) -> Sequence[Tensor]:
    """Both gradients times a factor, in place; in one call if they are the two halves of one tensor."""
    both = grads[0]._base
    if both is not None and both is grads[1]._base and both.numel() == 2 * grads[0].numel():
        engine.scale_(both, factor)
        return grads
    return [engine.scale_(grad, factor) for grad in grads]


class _Compiled(torch.autograd.Function):
    """The same for compiled graphs: operators instead of engines."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, scale: Any, pair: _Pair, kind: type[Terms], *fields: Any) -> Tensor:
        value, grad_a, grad_b = pair.fused(ops, a, b, kind(*fields), scale)
        ctx.save_for_backward(grad_a, grad_b)
        ctx.rest = 3 + len(fields)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *pulls: Tensor) -> tuple[Tensor | None, ...]:
        return *(ops.scaled(grad, pulls[0]) for grad in ctx.saved_tensors), *((None,) * ctx.rest)


def divergence_rows(a: Tensor, b: Tensor, where: Tensor | None) -> Rows:
    """The rows of ``a`` for a divergence without losses. ``b`` is passed as the labels, which are not read."""
    num_labels = a.shape[-1]
    counts = None if where is None else where.expand(a.shape).reshape(-1, num_labels)
    matrix = [x if x.ndim == 2 else x.reshape(-1, num_labels) for x in (a, b)]
    return Rows(matrix[0], DenseTerms(matrix[1].detach(), counts), a.shape[:-1])
