"""Squared hinge loss: every label by itself, with a margin instead of a probability."""

from __future__ import annotations

from torch import Tensor

from manyhot._checks import check_at_least
from manyhot.engines.terms import Weight
from manyhot.losses.core.labelwise import Term, over_labels, weigh
from manyhot.losses.core.layout import Labels, arrange
from manyhot.losses.core.logsumexp import Dim
from manyhot.losses.core.reduction import reduce
from manyhot.losses.module import LossModule


def squared_hinge_term(margin: float) -> Term:
    """``p t max(0, m - s)^2 + n (1 - t) max(0, m + s)^2``."""

    def term(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        return weigh(pos, (margin - x).clamp(min=0).square()) + weigh(neg, (margin + x).clamp(min=0).square())

    return term


def squared_hinge_loss(
    logits: Tensor,
    labels: Labels,
    *,
    margin: float = 1.0,
    where: Tensor | None = None,
    pos_weight: Weight = None,
    neg_weight: Weight = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    label_reduction: str = "mean",
    reduction: str = "mean",
    dim: Dim = -1,
    validate: bool = False,
) -> Tensor:
    """Squared hinge: ``sum_i p_i t_i max(0, m - s_i)^2 + n_i (1 - t_i) max(0, m + s_i)^2``, or its mean over labels.

    The loss of one-vs-rest linear SVMs (LIBLINEAR's L2-loss), the usual baseline for many labels. Unlike in ``bce_loss``, an
    entry that is right by the margin has no cost and no gradient. Decide by ``s > 0``. Scores only rank: the optimal score for
    a label of probability p is ``m (2 p - 1)``, which never exceeds the margin.

    Args:
        logits: ``[..., L]``.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        margin: m, > 0.
        where: see ``bce_loss``.
        pos_weight: see ``bce_loss``.
        neg_weight: see ``bce_loss``.
        sample_weight: see ``bce_loss``.
        smoothing: see ``bce_loss``.
        label_reduction: see ``bce_loss``.
        reduction: see ``bce_loss``.
        dim: see ``bce_loss``.
        validate: see ``bce_loss``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> import torch
        >>> squared_hinge_loss(torch.tensor([[2.0, -0.5]]), torch.tensor([[1, 0]]))
        tensor(0.1250)
    """
    who = "squared_hinge_loss"
    check_at_least(who, "margin", margin, 0, strict=True)
    rows = arrange(
        who,
        logits,
        labels,
        where=where,
        pos_weight=pos_weight,
        neg_weight=neg_weight,
        smoothing=smoothing,
        dim=dim,
        validate=validate,
    )
    values = over_labels(who, rows, squared_hinge_term(float(margin)), label_reduction)
    return reduce(who, values, sample_weight=sample_weight, reduction=reduction, validate=validate)


class SquaredHingeLoss(LossModule):
    """``squared_hinge_loss`` as a module.

    Example:
        >>> import torch
        >>> SquaredHingeLoss(margin=2.0)(torch.tensor([[2.0, -0.5]]), torch.tensor([[1, 0]]))
        tensor(1.1250)
    """

    def __init__(
        self,
        *,
        margin: float = 1.0,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        label_reduction: str = "mean",
        reduction: str = "mean",
        dim: Dim = -1,
        validate: bool = False,
    ) -> None:
        super().__init__(
            squared_hinge_loss,
            margin=margin,
            pos_weight=pos_weight,
            neg_weight=neg_weight,
            smoothing=smoothing,
            label_reduction=label_reduction,
            reduction=reduction,
            dim=dim,
            validate=validate,
        )
