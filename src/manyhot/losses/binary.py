"""Losses that judge every label by itself: binary cross-entropy, focal and asymmetric loss."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_unit
from manyhot.engines.terms import Weight
from manyhot.losses.core.dispatch import labelwise_loss
from manyhot.losses.core.labelwise import Term, weigh
from manyhot.losses.core.logsumexp import Dim, Labels, arrange
from manyhot.losses.core.reduction import softplus


def bce_term() -> Term:
    """``p t log(1 + e^{-s}) + n (1 - t) log(1 + e^{s})``."""

    def term(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        return weigh(pos, softplus(-x)) + weigh(neg, softplus(x))

    return term


def focal_term(*, gamma_pos: float, gamma_neg: float, margin: float = 0.0) -> Term:
    """``-p t (1 - q)^{g+} log q - n (1 - t) m^{g-} log(1 - m)`` with ``q = sigma(s)`` and ``m = max(q - margin, 0)``."""

    def term(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        log_p, log_q = -softplus(-x), -softplus(x)
        if margin:
            shifted = (torch.sigmoid(x) - margin).clamp(min=0)
            log_kept, focus = torch.log1p(-shifted), shifted**gamma_neg
        else:
            log_kept, focus = log_q, torch.exp(gamma_neg * log_p)
        return weigh(pos, -torch.exp(gamma_pos * log_q) * log_p) + weigh(neg, -focus * log_kept)

    return term


def bce_loss(
    logits: Tensor,
    labels: Labels,
    *,
    where: Tensor | None = None,
    pos_weight: Weight = None,
    neg_weight: Weight = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    label_reduction: str = "mean",
    reduction: str = "mean",
    dim: Dim = -1,
    engine: str = "auto",
    validate: bool = False,
) -> Tensor:
    """Binary cross-entropy: ``sum_i p_i t_i log(1 + e^{-s_i}) + n_i (1 - t_i) log(1 + e^{s_i})``, or its mean over labels.

    With ``label_reduction="mean"`` and no ``where`` it is ``torch.nn.functional.binary_cross_entropy_with_logits``; with
    ``"sum"`` it bounds ``zlpr_loss`` from above. Entries left out by ``where`` do not count in the mean.

    Args:
        logits: ``[..., L]``.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        where: bool, broadcastable to ``logits``; False leaves an entry out.
        pos_weight: a number or ``[L]``, weighs the positive terms.
        neg_weight: the same for the negative terms.
        sample_weight: one value per row.
        smoothing: uniform label smoothing ``t (1 - e) + e / 2``.
        label_reduction: ``"mean"`` or ``"sum"`` over the labels of a row.
        reduction: ``"mean"`` over rows, ``"sum"`` or ``"none"``.
        dim: the label axis, or several.
        engine: see ``zlpr_loss``.
        validate: look at the values of labels and weights too.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> bce_loss(torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 0]]))
        tensor(0.2201)
    """
    rows = arrange(
        "bce_loss",
        logits,
        labels,
        where=where,
        pos_weight=pos_weight,
        neg_weight=neg_weight,
        smoothing=smoothing,
        dim=dim,
        validate=validate,
    )
    return labelwise_loss(
        "bce_loss",
        rows,
        "bce",
        bce_term(),
        {},
        label_reduction=label_reduction,
        sample_weight=sample_weight,
        reduction=reduction,
        engine=engine,
        validate=validate,
    )


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
    """Focal loss: cross-entropy in which what is already right counts less.

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
    powers = {"gamma_pos": gamma, "gamma_neg": gamma}
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
    """Asymmetric loss (Ben-Baruch et al. 2021): focal with a power for each side, easy negatives cut off.

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
        >>> asymmetric_loss(torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 0]]))
        tensor(0.0078)
    """
    check_at_least("asymmetric_loss", "gamma_pos", gamma_pos, 0)
    check_at_least("asymmetric_loss", "gamma_neg", gamma_neg, 0)
    check_unit("asymmetric_loss", "margin", margin, open_end=True)
    rows = arrange("asymmetric_loss", logits, labels, where=where, smoothing=smoothing, dim=dim, validate=validate)
    powers = {"gamma_pos": gamma_pos, "gamma_neg": gamma_neg, "margin": margin}
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
