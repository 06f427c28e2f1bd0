"""Losses of the family from scores to a reduced value, through the engine that serves the call best.

An engine can compute a loss and its gradient in one pass over the scores. That is faster if the gradient is needed and the
reduction is known beforehand (mean or sum): forward then keeps the finished gradient, and backward only scales it. It is also
faster for few scores without a gradient: one pass instead of many small ones. In all other cases the engine computes the sides,
and backward reads the scores again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_broadcast, check_choice, check_device, check_engine, check_reduction, check_sample_weight
from manyhot.engines.registry import NAMES, Engine, choose
from manyhot.engines.terms import Weight, accumulation_dtype
from manyhot.losses.core import plain_forms as plain_forms  # registers the plain forms that an engine falls back to
from manyhot.losses.core.forms import FORMS
from manyhot.losses.core.fusion import Terms, apply_fused, apply_half
from manyhot.losses.core.labelwise import LABEL_REDUCTIONS, Term, count_labels, over_labels, sum_over_labels
from manyhot.losses.core.layout import Rows, arrange
from manyhot.losses.core.lazy import is_lazy
from manyhot.losses.core.logsumexp import Dim, Scores, log_sums, sides_of_rows
from manyhot.losses.core.reduction import reduce
from manyhot.losses.core.repeats import Kind, faster_with_gradient, in_forward_mode, kind_of, learn, repeat


def side_loss(
    who: str,
    form: str,
    logits: Scores,
    labels: Any,
    offset: Tensor | float,
    *,
    where: Tensor | None,
    pos_weight: Weight,
    neg_weight: Weight,
    sample_weight: Tensor | None,
    smoothing: float,
    reduction: str,
    dim: Dim,
    engine: str,
    validate: bool,
) -> Tensor:
    """``FORMS[form](pos, neg, offset)`` of each row, reduced."""
    kind = None
    usual = where is None and pos_weight is None and neg_weight is None and sample_weight is None and engine == "auto"
    if usual and type(smoothing) is float and smoothing == 0 and type(dim) is int and dim == -1 and not validate:
        kind = kind_of(who, form, logits, labels, offset, reduction)
        again = None if kind is None else repeat(kind, logits)
        if again is not None:
            return again
    check_reduction(who, reduction)
    check_engine(who, engine, NAMES)
    about: dict[str, Any] = {"where": where, "pos_weight": pos_weight, "neg_weight": neg_weight, "smoothing": smoothing}
    about |= {"dim": dim, "validate": validate}
    if not isinstance(logits, Tensor):
        return _loss_of_lazy_scores(who, form, logits, labels, offset, sample_weight, reduction, about | {"engine": engine})
    rows = arrange(who, logits, labels, **about)
    chosen = choose(who, engine, rows.logits, rows.terms, offset, sample_weight)
    # The exact type is compared first: isinstance of Tensor is slow for other objects.
    if type(offset) is not float and isinstance(offset, Tensor):
        offset = fit_offset(who, offset, rows.shape, accumulation_dtype(logits.dtype), logits.device)
    return _loss_of_rows(who, form, rows, chosen, offset, sample_weight, reduction, kind, validate=validate)


def _loss_of_lazy_scores(
    who: str,
    form: str,
    scores: Any,
    labels: Any,
    offset: Tensor | float,
    sample_weight: Tensor | None,
    reduction: str,
    about: dict[str, Any],
) -> Tensor:
    """The loss of lazy scores, by their own ``side_loss`` if that applies."""
    if is_lazy(scores):
        value = scores.side_loss(who, form, labels, offset, sample_weight=sample_weight, reduction=reduction, **about)
        if value is not None:
            return value
    pos, neg = log_sums(who, scores, labels, **about)
    if isinstance(offset, Tensor):
        offset = fit_offset(who, offset, pos.rest.shape, pos.rest.dtype, pos.rest.device)
    values = FORMS[form](pos, neg, offset)
    return reduce(who, values, sample_weight=sample_weight, reduction=reduction, validate=about["validate"])


def _loss_of_rows(
    who: str,
    form: str,
    rows: Rows,
    chosen: Engine | None,
    offset: Tensor | float,
    sample_weight: Tensor | None,
    reduction: str,
    kind: Kind | None,
    *,
    validate: bool,
) -> Tensor:
    """The loss of rows by the chosen engine; later calls of this ``kind`` take the cached path."""
    if chosen is not None and wants_half(chosen, rows.logits, offset, sample_weight, reduction):
        scale, loss = row_scale(who, rows, None, reduction, validate), _SideLoss(form)
        value = apply_half(rows, scale, chosen, loss, offset)
        if kind is not None:
            learn(kind, rows.logits, chosen.half_repeats, chosen, loss, scale, rows.terms)
        return value
    if chosen is None or not wants_fusion(rows.logits, offset, reduction):
        pos, neg = sides_of_rows(rows, chosen)
        return reduce(who, FORMS[form](pos, neg, offset), sample_weight=sample_weight, reduction=reduction, validate=validate)
    if type(offset) is not float and isinstance(offset, Tensor):
        offset = offset.expand(rows.shape).reshape(-1)
    scale, loss = row_scale(who, rows, sample_weight, reduction, validate), _SideLoss(form)
    value = apply_fused(rows, scale, chosen, loss, offset)
    if kind is not None:
        learn(kind, rows.logits, chosen.repeats, chosen, loss, scale, rows.terms)
    return value


def fit_offset(who: str, offset: Tensor, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A threshold in the type of the sums, checked: broadcastable to the rows."""
    check_broadcast(who, "threshold", offset, shape, "a number or one value per row")
    check_device(who, "threshold", offset, device)
    return offset.to(device, dtype)


def wants_fusion(logits: Tensor, other: Tensor | float, reduction: str) -> bool:
    """Whether to compute the gradient in forward: the reduction is known, its type can represent it before loss scaling, and it
    is needed, or the pass that computes it is faster anyway."""
    if reduction == "none" or logits.dtype == torch.float16 or in_forward_mode():
        return False
    if not torch.is_grad_enabled():
        return faster_with_gradient(logits)
    return logits.requires_grad or (type(other) is not float and isinstance(other, Tensor) and other.requires_grad)


def wants_half(engine: Engine, logits: Tensor, offset: Tensor | float, sample_weight: Tensor | None, reduction: str) -> bool:
    """Whether forward begins a float16 gradient and backward finishes it; apart from loss scaling, its scale is one number."""
    if logits.dtype != torch.float16 or not engine.FINISHES_HALF or reduction == "none":
        return False
    if sample_weight is not None or isinstance(offset, Tensor) or in_forward_mode():
        return False
    return logits.requires_grad if torch.is_grad_enabled() else faster_with_gradient(logits)


def row_scale(who: str, rows: Rows, sample_weight: Tensor | None, reduction: str, validate: bool) -> Tensor | float:
    """The weight of each row's value in the reduced loss."""
    if sample_weight is None:
        return 1.0 if reduction == "sum" else 1.0 / max(rows.shape.numel(), 1)
    check_sample_weight(who, sample_weight, rows.shape, validate=validate)
    check_device(who, "sample_weight", sample_weight, rows.logits.device)
    weight = sample_weight.detach().to(rows.logits.device, torch.float32).expand(rows.shape).reshape(-1)
    if reduction == "sum":
        return weight
    whole = weight.sum()
    return weight / torch.where(whole == 0, 1.0, whole)


class _SideLoss:
    """A loss of the family, in two forms: fused by an engine, and plain, which can be differentiated twice."""

    __slots__ = ("form",)

    def __init__(self, form: str) -> None:
        self.form = form

    def fused(
        self, engine: Any, x: Tensor, offset: Tensor | float, terms: Terms, scale: Tensor | float, **whole: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values (or with ``whole`` the reduced loss), gradient by ``x`` times ``scale``, derivative by the offset."""
        offset = offset.detach() if type(offset) is not float and isinstance(offset, Tensor) else offset
        out: tuple[Tensor, Tensor, Tensor | None] = engine.fused(x, terms, self.form, offset, scale, **whole)
        return out

    def plain(self, x: Tensor, offset: Tensor | float, terms: Terms) -> Tensor:
        """Values of the rows in the plain form."""
        pos, neg = sides_of_rows(Rows(x, terms, x.shape[:1]), None)
        return FORMS[self.form](pos, neg, offset)


def labelwise_loss(
    who: str,
    rows: Rows,
    kind: str,
    term: Term,
    powers: dict[str, float],
    *,
    label_reduction: str,
    sample_weight: Tensor | None,
    reduction: str,
    engine: str,
    validate: bool,
) -> Tensor:
    """``sum_i term_i`` of each row, or the mean over the labels that count, reduced. ``kind`` is the engines' name for the
    term."""
    check_reduction(who, reduction)
    check_engine(who, engine, NAMES)
    chosen = choose(who, engine, rows.logits, rows.terms, sample_weight)
    if chosen is None or not wants_fusion(rows.logits, 0.0, reduction):
        values = over_labels(who, rows, term, label_reduction)
        return reduce(who, values, sample_weight=sample_weight, reduction=reduction, validate=validate)
    check_choice(who, "label_reduction", label_reduction, LABEL_REDUCTIONS)
    scale = row_scale(who, rows, sample_weight, reduction, validate)
    if label_reduction == "mean":
        count = count_labels(rows)
        scale = scale / (count.reshape(-1).clamp(min=1) if isinstance(count, Tensor) else count)
    return apply_fused(rows, scale, chosen, _LabelwiseLoss(kind, term, powers), 0.0)


class _LabelwiseLoss:
    """A labelwise loss: a cost per label, summed over the labels of a row."""

    __slots__ = ("kind", "powers", "term")

    def __init__(self, kind: str, term: Term, powers: dict[str, float]) -> None:
        self.kind, self.term, self.powers = kind, term, powers

    def fused(
        self, engine: Any, x: Tensor, _: Any, terms: Terms, scale: Tensor | float, **whole: bool
    ) -> tuple[Tensor, Tensor, None]:
        """Values (or with ``whole`` the reduced loss), and the gradient by ``x`` times ``scale``."""
        values, grad = engine.labelwise(x, terms, self.kind, row_scale=scale, **self.powers, **whole)
        return values, grad, None

    def plain(self, x: Tensor, _: Any, terms: Terms) -> Tensor:
        """Values of the rows in the plain form."""
        return sum_over_labels(Rows(x, terms, x.shape[:1]), self.term)
