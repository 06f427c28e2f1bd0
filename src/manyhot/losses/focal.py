"""Focal and asymmetric loss: binary cross-entropy in which easy entries count less."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_unit
from manyhot.losses.core.dispatch import labelwise_loss
from manyhot.losses.core.forms import label_term
from manyhot.losses.core.labelwise import Term, weigh
from manyhot.losses.core.layout import Labels, arrange
from manyhot.losses.core.logsumexp import Dim
from manyhot.losses.core.reduction import softplus
from manyhot.losses.module import LossModule


@label_term("focal", "asymmetric")
def focal_term(*, gamma_pos: float, gamma_neg: float, margin: float = 0.0) -> Term:
    """``-p t (1 - q)^{g+} log q - n (1 - t) m^{g-} log(1 - m)`` with ``q = sigma(s)`` and ``m = max(q - margin, 0)``."""

    def term(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        # Beyond this limit the factors stay constant. Clamping avoids a gradient of 0 times infinity at infinite scores.
        limit = 80.0 if x.dtype == torch.float32 else 700.0
        near = x.clamp(-limit, limit)
        if margin:
            shifted = (torch.sigmoid(near) - margin).clamp(min=0)
            log_kept, focus = torch.log1p(-shifted), shifted**gamma_neg
        else:
            log_kept, focus = -softplus(x), torch.exp(-gamma_neg * softplus(-near))
        return weigh(pos, torch.exp(-gamma_pos * softplus(near)) * softplus(-x)) + weigh(neg, -focus * log_kept)

    return term


def focal_loss(
    logits: Tensor,
    labels: Labels,
    *,
    gamma: float = 2.0,
    alpha: float | None = 0.25,
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    label_reduction: str = "mean",
    reduction: str = "mean",
    dim: Dim = -1,
    engine: str = "auto",
    validate: bool = False,
) -> Tensor:
    """Focal loss: cross-entropy in which entries that are already right count less.

    ``a t (1 - p)^g log(1 + e^{-s}) + (1 - a)(1 - t) p^g log(1 + e^{s})`` with ``p = sigma(s)``, ``a = alpha``, ``g = gamma``.
    With ``gamma=0, alpha=None`` it is ``bce_loss``.

    Args:
        logits: ``[..., L]``.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        gamma: how fast easy entries fade, >= 0.
        alpha: weight of the positives, the negatives have 1 - alpha; None for no weights.
        where: see ``bce_loss``.
        sample_weight: see ``bce_loss``.
        smoothing: see ``bce_loss``.
        label_reduction: see ``bce_loss``.
        reduction: see ``bce_loss``.
        dim: see ``bce_loss``.
        engine: see ``zlpr_loss``.
        validate: see ``bce_loss``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> import torch
        >>> focal_loss(torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 0]]))
        tensor(0.0087)
    """
    check_at_least("focal_loss", "gamma", gamma, 0)
    if alpha is not None:
        check_unit("focal_loss", "alpha", alpha)
    pos_weight, neg_weight = (None, None) if alpha is None else (alpha, 1 - alpha)
    rows = arrange(
        "focal_loss",
        logits,
        labels,
        where=where,
        pos_weight=pos_weight,
        neg_weight=neg_weight,
        smoothing=smoothing,
        dim=dim,
        validate=validate,
    )
    powers = {"gamma_pos": float(gamma), "gamma_neg": float(gamma)}
    return labelwise_loss(
        "focal_loss",
        rows,
        "focal",
        focal_term(**powers),
        powers,
        label_reduction=label_reduction,
        sample_weight=sample_weight,
        reduction=reduction,
        engine=engine,
        validate=validate,
    )


def asymmetric_loss(
    logits: Tensor,
    labels: Labels,
    *,
    gamma_pos: float = 1.0,
    gamma_neg: float = 4.0,
    margin: float = 0.05,
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    label_reduction: str = "mean",
    reduction: str = "mean",
    dim: Dim = -1,
    engine: str = "auto",
    validate: bool = False,
) -> Tensor:
    """Asymmetric loss (Ben-Baruch et al. 2021): focal loss with a power for each side and a cutoff for easy negatives.

    ``-t (1 - p)^{g+} log p - (1 - t) m^{g-} log(1 - m)`` with ``p = sigma(s)`` and ``m = max(p - margin, 0)``. The focusing
    factors get gradients too. With ``gamma_pos=gamma_neg=margin=0`` it is ``bce_loss``.

    Args:
        logits: ``[..., L]``.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        gamma_pos: focusing power of the positives, >= 0.
        gamma_neg: focusing power of the negatives, >= 0.
        margin: negatives with a probability below it cost nothing.
        where: see ``bce_loss``.
        sample_weight: see ``bce_loss``.
        smoothing: see ``bce_loss``.
        label_reduction: see ``bce_loss``.
        reduction: see ``bce_loss``.
        dim: see ``bce_loss``.
        engine: see ``zlpr_loss``.
        validate: see ``bce_loss``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> import torch
        >>> asymmetric_loss(torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 0]]))
        tensor(0.0078)
    """
    check_at_least("asymmetric_loss", "gamma_pos", gamma_pos, 0)
    check_at_least("asymmetric_loss", "gamma_neg", gamma_neg, 0)
    check_unit("asymmetric_loss", "margin", margin, open_end=True)
    rows = arrange("asymmetric_loss", logits, labels, where=where, smoothing=smoothing, dim=dim, validate=validate)
    powers = {"gamma_pos": float(gamma_pos), "gamma_neg": float(gamma_neg), "margin": float(margin)}
    return labelwise_loss(
        "asymmetric_loss",
        rows,
        "asymmetric",
        focal_term(**powers),
        powers,
        label_reduction=label_reduction,
        sample_weight=sample_weight,
        reduction=reduction,
        engine=engine,
        validate=validate,
    )


class FocalLoss(LossModule):
    """``focal_loss`` as a module.

    Example:
        >>> import torch
        >>> FocalLoss(alpha=None)(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0018)
    """

    def __init__(
        self,
        *,
        gamma: float = 2.0,
        alpha: float | None = 0.25,
        smoothing: float = 0.0,
        label_reduction: str = "mean",
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            focal_loss,
            gamma=gamma,
            alpha=alpha,
            smoothing=smoothing,
            label_reduction=label_reduction,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )


class AsymmetricLoss(LossModule):
    """``asymmetric_loss`` as a module.

    Example:
        >>> import torch
        >>> AsymmetricLoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0076)
    """

    def __init__(
        self,
        *,
        gamma_pos: float = 1.0,
        gamma_neg: float = 4.0,
        margin: float = 0.05,
        smoothing: float = 0.0,
        label_reduction: str = "mean",
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            asymmetric_loss,
            gamma_pos=gamma_pos,
            gamma_neg=gamma_neg,
            margin=margin,
            smoothing=smoothing,
            label_reduction=label_reduction,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )
