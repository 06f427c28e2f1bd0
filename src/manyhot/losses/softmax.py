"""Softmax and cross-entropy, for exactly one label per row."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import check_logits, check_unit, check_where
from manyhot.engines.terms import INF, SparseTerms, accumulation_dtype
from manyhot.losses.core.labelwise import weigh
from manyhot.losses.core.layout import Labels, arrange
from manyhot.losses.core.reduction import reduce
from manyhot.losses.module import LossModule


def softmax_loss(
    logits: Tensor,
    labels: Labels,
    *,
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
    validate: bool = False,
) -> Tensor:
    """Softmax and cross-entropy for one label per row: ``-sum_i t_i log softmax(s)_i``.

    ``smoothing`` is that of single-label problems: ``1 - e`` for the class and ``e / (K - 1)`` for each of the others.

    Args:
        logits: ``[..., K]``.
        labels: class numbers ``[...]`` (int64), a distribution ``[..., K]``, or ``SparseLabels``.
        where: bool, broadcastable to ``logits``; False leaves a class out of the softmax.
        sample_weight: one value per row.
        smoothing: e in [0, 1].
        reduction: ``"mean"`` over rows, ``"sum"`` or ``"none"``.
        validate: look at the values of labels too.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> import torch
        >>> softmax_loss(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]))
        tensor(0.1698)
    """
    check_logits("softmax_loss", logits)
    check_unit("softmax_loss", "smoothing", smoothing)
    log_probs = _log_softmax(logits.to(accumulation_dtype(logits.dtype)), where)
    own = _sum_at_classes(log_probs, labels, where, validate)
    others = logits.shape[-1] - 1 if where is None else where.expand(logits.shape).sum(dim=-1) - 1
    spread = smoothing / (others.clamp(min=1) if isinstance(others, Tensor) else max(others, 1))
    values = -own if smoothing == 0 else -(1 - smoothing - spread) * own - spread * log_probs.sum(dim=-1)
    return reduce("softmax_loss", values, sample_weight=sample_weight, reduction=reduction, validate=validate)


def _log_softmax(x: Tensor, where: Tensor | None) -> Tensor:
    """The log-softmax over the classes that count; 0 for the other classes and for rows without any."""
    if where is None:
        return torch.log_softmax(x, dim=-1)
    check_where("softmax_loss", where, x.shape)
    where = where.expand(x.shape)
    kept = torch.where(where | ~where.any(dim=-1, keepdim=True), torch.where(where, x, 0.0), -INF)
    return torch.where(where, torch.log_softmax(kept, dim=-1), 0.0)


def _sum_at_classes(log_probs: Tensor, labels: Labels, where: Tensor | None, validate: bool) -> Tensor:
    """``sum_i t_i log p_i`` of each row, for class numbers, distributions and index lists."""
    shape = log_probs.shape
    if isinstance(labels, Tensor) and labels.shape == shape[:-1] and not labels.is_floating_point():
        if validate and bool(((labels < 0) | (labels >= shape[-1])).any()):
            raise ValueError(f"softmax_loss: class numbers must lie in [0, {shape[-1]}); got {labels.min()} to {labels.max()}.")
        return log_probs.gather(-1, labels.long().unsqueeze(-1)).squeeze(-1)
    terms = arrange("softmax_loss", log_probs, labels, where=where, validate=validate).terms
    if isinstance(terms, SparseTerms):
        listed = log_probs.reshape(len(labels), shape[-1])[terms.rows, terms.indices]
        weighted = weigh(terms.listed_weights(listed.dtype)[0], listed)
        return weighted.new_zeros(len(labels)).index_add(0, terms.rows, weighted).reshape(shape[:-1])
    return weigh(terms.weights(log_probs.dtype)[0].reshape(shape), log_probs).sum(dim=-1)


class SoftmaxLoss(LossModule):
    """``softmax_loss`` as a module.

    Example:
        >>> import torch
        >>> SoftmaxLoss(smoothing=0.1)(torch.tensor([[2.0, -2.0]]), torch.tensor([0]))
        tensor(0.4181)
    """

    def __init__(self, *, smoothing: float = 0.0, reduction: str = "mean", validate: bool = False) -> None:
        super().__init__(softmax_loss, smoothing=smoothing, reduction=reduction, validate=validate)
