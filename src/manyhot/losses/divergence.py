"""How far two predictions are apart, and R-Drop, which trains them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_choice, check_logits, check_where, shape_text
from manyhot.kernels.terms import INF, accumulation_dtype
from manyhot.losses.reduction import reduce
from manyhot.losses.sides import Labels
from manyhot.losses.zlpr import zlpr_loss

KINDS = ("sigmoid", "sigmoid2", "excess")


Loss = Callable[..., Tensor]


def prediction_divergence(
    a: Tensor,
    b: Tensor,
    *,
    kind: str = "sigmoid",
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """A distance between two predictions of the same rows: >= 0, and 0 only where they agree.

    - ``"sigmoid"``: ``sum_i (sigma(a_i) - sigma(b_i)) (a_i - b_i)``, the symmetric Kullback-Leibler divergence of the labels
      taken as independent coins of probability sigma(s);
    - ``"sigmoid2"``: the same with the link sigma(2s) of soft ZLPR;
    - ``"excess"``: by how much soft ZLPR at ``b`` exceeds its minimum when the labels are what ``a`` says, ``sigma(2a)``:
      ``log(1 + sum w e^d) + log(1 + sum w e^-d) - 2 log(1 + sum w)`` with ``w = 1 / (2 cosh a)``, ``d = a - b``. Not symmetric.

    Args:
        a: logits ``[..., L]``.
        b: logits of the same shape.
        kind: which of the three.
        where: bool, broadcastable to the logits; False leaves an entry out, whatever the scores.
        sample_weight: one value per row.
        reduction: ``"mean"`` over rows, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> prediction_divergence(torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, -2.0]]))
        tensor(0.0543)
    """
    check_logits("prediction_divergence", a, "a")
    check_logits("prediction_divergence", b, "b")
    check_choice("prediction_divergence", "kind", kind, KINDS)
    if a.shape != b.shape:
        raise ValueError(
            f"prediction_divergence: `b` must have the shape of `a`, {shape_text(a.shape)}; got {shape_text(b.shape)}."
        )
    dtype = accumulation_dtype(torch.promote_types(a.dtype, b.dtype))
    a, b = a.to(dtype), b.to(dtype)
    counts = torch.ones((), dtype=torch.bool, device=a.device)
    if where is not None:
        check_where("prediction_divergence", where, a.shape)
        counts = where
        a, b = torch.where(where, a, 0.0), torch.where(where, b, 0.0)
    values = _excess(a, b, counts) if kind == "excess" else _jeffreys(a, b, 2.0 if kind == "sigmoid2" else 1.0)
    return reduce("prediction_divergence", values, sample_weight=sample_weight, reduction=reduction)


def _jeffreys(a: Tensor, b: Tensor, slope: float) -> Tensor:
    return ((torch.sigmoid(slope * a) - torch.sigmoid(slope * b)) * (slope * (a - b))).sum(dim=-1)


def _excess(a: Tensor, b: Tensor, counts: Tensor) -> Tensor:
    log_weight = -(a.abs() + torch.log1p(torch.exp(-2 * a.abs())))
    zero, d = a.new_zeros((*a.shape[:-1], 1)), a - b

    def bounded(terms: Tensor) -> Tensor:
        return torch.logsumexp(torch.cat([zero, torch.where(counts, terms, -INF)], dim=-1), dim=-1)

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
) -> Tensor:
    """R-Drop: the mean loss of two passes with different dropout, plus ``alpha`` times their divergence.

    Args:
        logits_a: ``[..., L]``, the first pass.
        logits_b: the second pass of the same rows.
        labels: ``[..., L]``, or ``SparseLabels``.
        alpha: weight of the divergence, >= 0.
        loss: a loss of this package, or ``functools.partial`` of one with its settings.
        kind: see ``prediction_divergence``; ``"excess"`` is taken both ways and halved.
        where: bool, broadcastable to the logits.
        sample_weight: one value per row.
        reduction: ``"mean"`` over rows, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> a, b = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, -2.0]])
        >>> rdrop_loss(a, b, torch.tensor([[1, 0]]), alpha=4.0)
        tensor(0.7378)
    """
    check_at_least("rdrop_loss", "alpha", alpha, 0)
    shared: dict[str, Any] = {"where": where, "sample_weight": sample_weight, "reduction": reduction}
    task = (loss(logits_a, labels, **shared) + loss(logits_b, labels, **shared)) / 2
    apart = prediction_divergence(logits_a, logits_b, kind=kind, **shared)
    if kind == "excess":
        apart = (apart + prediction_divergence(logits_b, logits_a, kind=kind, **shared)) / 2
    return task + alpha * apart
