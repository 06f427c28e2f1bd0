"""Divergences between two predictions, and R-Drop, which trains with them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from manyhot._checks import (
    check_at_least,
    check_choice,
    check_engine,
    check_logits,
    check_reduction,
    check_where,
    shape_text,
)
from manyhot.engines.registry import NAMES
from manyhot.engines.terms import INF, accumulation_dtype
from manyhot.losses.core.layout import Labels, arrange
from manyhot.losses.core.pairs import LINK_FACTORS, divergence_rows, jeffreys, left_out_as_zero, pair_loss
from manyhot.losses.core.reduction import reduce
from manyhot.losses.zlpr import zlpr_loss

DIVERGENCES = (*LINK_FACTORS, "excess")

Loss = Callable[..., Tensor]


def prediction_divergence(
    a: Tensor,
    b: Tensor,
    *,
    kind: str = "sigmoid",
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    reduction: str = "mean",
    engine: str = "auto",
) -> Tensor:
    """A distance between two predictions of the same rows: >= 0, and 0 only if they agree.

    - ``"sigmoid"``: ``sum_i (sigma(a_i) - sigma(b_i)) (a_i - b_i)``, the symmetric Kullback-Leibler divergence of independent
      Bernoulli labels with probability sigma(s);
    - ``"sigmoid2"``: the same with the link sigma(2s) of soft ZLPR;
    - ``"excess"``: by how much soft ZLPR at ``b`` exceeds its minimum if the labels are the predictions ``sigma(2a)`` of ``a``:
      ``log(1 + sum w e^d) + log(1 + sum w e^-d) - 2 log(1 + sum w)`` with ``w = 1 / (2 cosh a)``, ``d = a - b``. Not symmetric.

    Args:
        a: logits ``[..., L]``.
        b: logits of the same shape.
        kind: one of the three divergences.
        where: bool, broadcastable to the logits; False leaves an entry out, whatever the scores.
        sample_weight: one value per row.
        reduction: ``"mean"`` over rows, ``"sum"`` or ``"none"``.
        engine: see ``zlpr_loss``; ``"native"`` and ``"triton"`` compute ``"sigmoid"``, ``"sigmoid2"`` and both gradients with
            one read of the logits.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> import torch
        >>> prediction_divergence(torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, -2.0]]))
        tensor(0.0543)
    """
    check_logits("prediction_divergence", a, "a")
    check_logits("prediction_divergence", b, "b")
    check_choice("prediction_divergence", "kind", kind, DIVERGENCES)
    _check_same_shape("prediction_divergence", a, b, "a", "b")
    check_reduction("prediction_divergence", reduction)
    check_engine("prediction_divergence", engine, NAMES)
    if where is not None:
        check_where("prediction_divergence", where, a.shape)
    how: dict[str, Any] = {"sample_weight": sample_weight, "reduction": reduction}
    if kind in LINK_FACTORS and a.shape[-1]:
        rows = divergence_rows(a, b, where)
        fused = pair_loss(
            "prediction_divergence", a, b, rows, losses=False, alpha=1.0, link=LINK_FACTORS[kind], engine=engine, **how
        )
        if fused is not None:
            return fused
    dtype = accumulation_dtype(torch.promote_types(a.dtype, b.dtype))
    a, b = left_out_as_zero(where, a.to(dtype), b.to(dtype))
    values = jeffreys(a, b, LINK_FACTORS[kind]) if kind in LINK_FACTORS else _excess(a, b, where)
    return reduce("prediction_divergence", values, **how)


def _check_same_shape(who: str, a: Tensor, b: Tensor, first: str, second: str) -> None:
    if a.shape != b.shape:
        raise ValueError(
            f"{who}: `{second}` must have the shape of `{first}`, {shape_text(a.shape)}; got {shape_text(b.shape)}."
        )


def _excess(a: Tensor, b: Tensor, where: Tensor | None) -> Tensor:
    log_weight = -(a.abs() + torch.log1p(torch.exp(-2 * a.abs())))
    zero, d = a.new_zeros((*a.shape[:-1], 1)), a - b

    def bounded(terms: Tensor) -> Tensor:
        counted = terms if where is None else torch.where(where, terms, -INF)
        return torch.logsumexp(torch.cat([zero, counted], dim=-1), dim=-1)

    level = bounded(log_weight)
    return (bounded(log_weight + d) - level) + (bounded(log_weight - d) - level)


def rdrop_loss(
    logits_a: Tensor,
    logits_b: Tensor,
    labels: Labels,
    *,
    alpha: float = 1.0,
    loss: Loss = zlpr_loss,
    kind: str = "sigmoid",
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    reduction: str = "mean",
    engine: str = "auto",
) -> Tensor:
    """R-Drop: the mean loss of two passes with different dropout, plus ``alpha`` times the divergence in both directions.

    ``(l(a) + l(b)) / 2 + alpha (D(a, b) + D(b, a))``. The paper (Liang et al. 2021) adds the two losses and takes half of the
    symmetric divergence, so its weight is 4 times this ``alpha``.

    Args:
        logits_a: ``[..., L]``, the first pass.
        logits_b: the second pass of the same rows.
        labels: ``[..., L]``, or ``SparseLabels``.
        alpha: weight of the divergence, >= 0.
        loss: a loss of this package, or ``functools.partial`` of one with its settings.
        kind: see ``prediction_divergence``; ``"excess"`` is not symmetric, so both directions are added.
        where: bool, broadcastable to the logits.
        sample_weight: one value per row.
        reduction: ``"mean"`` over rows, ``"sum"`` or ``"none"``.
        engine: see ``zlpr_loss``; unless it is ``"auto"``, it is passed on to the loss. For ``zlpr_loss``, also with weights or
            smoothing set by ``functools.partial``, and the kinds ``"sigmoid"`` and ``"sigmoid2"``, ``"native"`` and
            ``"triton"`` compute the loss and both gradients with one read of each pass.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> import torch
        >>> a, b = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, -2.0]])
        >>> rdrop_loss(a, b, torch.tensor([[1, 0]]), alpha=4.0)
        tensor(0.7378)
    """
    check_at_least("rdrop_loss", "alpha", alpha, 0)
    check_engine("rdrop_loss", engine, NAMES)
    if isinstance(logits_a, Tensor) and isinstance(logits_b, Tensor):
        _check_same_shape("rdrop_loss", logits_a, logits_b, "logits_a", "logits_b")
    how: dict[str, Any] = {"sample_weight": sample_weight, "reduction": reduction}
    settings = _terms_of_zlpr(loss)
    if settings is not None and kind in LINK_FACTORS and reduction in ("mean", "sum") and isinstance(logits_a, Tensor):
        rows = arrange("zlpr_loss", logits_a, labels, where=where, **settings)
        fused = pair_loss(
            "rdrop_loss", logits_a, logits_b, rows, losses=True, alpha=alpha, link=LINK_FACTORS[kind], engine=engine, **how
        )
        if fused is not None:
            return fused
    how |= {"where": where} if engine == "auto" else {"where": where, "engine": engine}
    task = (loss(logits_a, labels, **how) + loss(logits_b, labels, **how)) / 2
    apart = prediction_divergence(logits_a, logits_b, kind=kind, **how)
    if kind == "excess":
        apart = apart + prediction_divergence(logits_b, logits_a, kind=kind, **how)
    return task + alpha * apart


def _terms_of_zlpr(loss: Loss) -> dict[str, Any] | None:
    """The weights and smoothing of the terms, if ``loss`` is ``zlpr_loss`` with no other settings; otherwise None."""
    if loss is zlpr_loss:
        return {}
    if not isinstance(loss, functools.partial) or loss.func is not zlpr_loss or loss.args:
        return None
    return loss.keywords if loss.keywords.keys() <= {"pos_weight", "neg_weight", "smoothing"} else None


class RDropLoss(nn.Module):
    """``rdrop_loss`` as a module: two passes in, one loss out.

    Example:
        >>> import torch
        >>> a, b = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, -2.0]])
        >>> RDropLoss(alpha=4.0)(a, b, torch.tensor([[1, 0]]))
        tensor(0.7378)
    """

    def __init__(self, *, alpha: float = 1.0, loss: Loss = zlpr_loss, kind: str = "sigmoid", reduction: str = "mean") -> None:
        super().__init__()
        self.alpha, self.loss, self.kind, self.reduction = alpha, loss, kind, reduction

    def forward(
        self,
        logits_a: Tensor,
        logits_b: Tensor,
        labels: Labels,
        *,
        where: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """The loss; both logits ``[..., L]``, ``labels`` likewise or ``SparseLabels``."""
        return rdrop_loss(
            logits_a,
            logits_b,
            labels,
            alpha=self.alpha,
            loss=self.loss,
            kind=self.kind,
            where=where,
            sample_weight=sample_weight,
            reduction=self.reduction,
        )
