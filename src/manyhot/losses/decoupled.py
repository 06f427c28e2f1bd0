"""Decoupled softmax: one softmax for each positive, over that positive and all negatives."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_logits
from manyhot.engines.terms import INF
from manyhot.losses.core.labelwise import sum_over_labels, weigh
from manyhot.losses.core.layout import Labels, Rows, arrange
from manyhot.losses.core.lazy import Dim, LazyScores, is_lazy
from manyhot.losses.core.logsumexp import sides_of_rows
from manyhot.losses.core.reduction import reduce, softplus
from manyhot.losses.module import LossModule


def decoupled_softmax_loss(
    logits: Tensor | LazyScores,
    labels: Labels,
    *,
    scale: float = 1.0,
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
    dim: Dim = -1,
    validate: bool = False,
) -> Tensor:
    """Decoupled softmax (Gupta et al. 2024): ``(1 / P) sum_j [log(e^{g s_j} + sum_neg e^{g s}) - g s_j]`` over positives j.

    Each positive has its own softmax against the negatives, so positives do not compete with each other as they do in
    softmax with several labels. With ``neg``, the log-sum of the negatives, it is the mean of ``log(1 + e^{neg - g s_j})``:
    it shares the negative side of the ZLPR family, but has no threshold. Decide by the top k. With one positive it is softmax
    cross-entropy. Soft labels are weights: ``sum_j t_j log(1 + e^{neg - g s_j}) / sum_j t_j``. A row without positives costs 0.

    Args:
        logits: ``[..., L]``, or ``LinearScores``; for cosine similarities give ``scale``, 20 in the paper.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        scale: g, > 0, one over the temperature.
        where: see ``zlpr_loss``.
        sample_weight: see ``zlpr_loss``.
        smoothing: see ``zlpr_loss``.
        reduction: see ``zlpr_loss``.
        dim: see ``zlpr_loss``.
        validate: see ``zlpr_loss``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> import torch
        >>> decoupled_softmax_loss(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[1, 0, 0]]))
        tensor(0.1698)
        >>> decoupled_softmax_loss(torch.tensor([[3.0, 3.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0, 0]]))
        tensor(0.1698)
    """
    who = "decoupled_softmax_loss"
    check_at_least(who, "scale", scale, 0, strict=True)
    if is_lazy(logits):
        if smoothing:
            raise ValueError(
                f"{who}: `smoothing` must be 0 for lazy scores, because it makes every label a positive. Call .dense()."
            )
        lazy = logits if scale == 1 else logits * float(scale)
        values = lazy.decoupled_loss(who, labels, where=where, dim=dim, validate=validate)
        return reduce(who, values, sample_weight=sample_weight, reduction=reduction, validate=validate)
    check_logits(who, logits)
    scores = logits if scale == 1 else logits * float(scale)
    rows = arrange(who, scores, labels, where=where, smoothing=smoothing, dim=dim, validate=validate)
    _, neg = sides_of_rows(rows, None)
    # Without negatives the loss is 0; replacing -inf by 0 keeps the second derivative finite.
    some = neg.rest != -INF
    shift, rest = neg.shift.reshape(-1, 1), torch.where(some, neg.rest, 0.0).reshape(-1, 1)
    lead = Rows((rows.logits.to(rest.dtype) - shift) - rest, rows.terms, rows.shape)
    count = sum_over_labels(rows, _positive)
    total = sum_over_labels(lead, _missed)
    values = torch.where(some & (count > 0), total / torch.where(count > 0, count, 1.0), 0.0)
    return reduce(who, values, sample_weight=sample_weight, reduction=reduction, validate=validate)


def _positive(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # noqa: ARG001
    return pos.expand_as(x)


def _missed(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # noqa: ARG001
    """``t log(1 + e^{-x})``, where x is the score of a label minus the log-sum of the negatives."""
    return weigh(pos, softplus(-x))


class DecoupledSoftmaxLoss(LossModule):
    """``decoupled_softmax_loss`` as a module.

    Example:
        >>> import torch
        >>> DecoupledSoftmaxLoss(scale=20.0)(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 0]]))
        tensor(0.1269)
    """

    def __init__(
        self,
        *,
        scale: float = 1.0,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        validate: bool = False,
    ) -> None:
        super().__init__(
            decoupled_softmax_loss, scale=scale, smoothing=smoothing, reduction=reduction, dim=dim, validate=validate
        )
