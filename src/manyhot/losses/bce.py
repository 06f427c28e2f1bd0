"""Binary cross-entropy: every label by itself."""

from __future__ import annotations

from torch import Tensor

from manyhot.engines.terms import Weight
from manyhot.losses.core.dispatch import labelwise_loss
from manyhot.losses.core.forms import label_term
from manyhot.losses.core.labelwise import Term, weigh
from manyhot.losses.core.layout import Labels, arrange
from manyhot.losses.core.logsumexp import Dim
from manyhot.losses.core.reduction import softplus
from manyhot.losses.module import LossModule


@label_term("bce")
def bce_term(**_: float) -> Term:
    """``p t log(1 + e^{-s}) + n (1 - t) log(1 + e^{s})``."""

    def term(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        return weigh(pos, softplus(-x)) + weigh(neg, softplus(x))

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
        >>> import torch
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


class BCELoss(LossModule):
    """``bce_loss`` as a module.

    Example:
        >>> import torch
        >>> BCELoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.1269)
    """

    def __init__(
        self,
        *,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        label_reduction: str = "mean",
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            bce_loss,
            pos_weight=pos_weight,
            neg_weight=neg_weight,
            smoothing=smoothing,
            label_reduction=label_reduction,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )
