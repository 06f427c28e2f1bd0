"""Dice loss: the overlap of two label sets."""

from __future__ import annotations

from torch import Tensor

from manyhot._checks import check_at_least
from manyhot.losses.core.layout import Labels, arrange
from manyhot.losses.core.logsumexp import Dim
from manyhot.losses.core.overlap import dice_of_rows
from manyhot.losses.module import LossModule


def dice_loss(
    logits: Tensor,
    labels: Labels,
    *,
    squared: bool = False,
    epsilon: float = 1.0,
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
    dim: Dim = -1,
    validate: bool = False,
) -> Tensor:
    """Dice loss of each row, ``1 - (2 <p, t> + e) / (sum p + sum t + e)`` with ``p = sigma(s)``.

    ``squared=True`` is the second form, with ``sum p^2 + sum t^2`` in the denominator. It is a smooth surrogate for one minus
    the F1 of the row. It does not rank labels as the other losses do, and its gradient vanishes if everything is wrong.

    Args:
        logits: ``[..., L]``.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        squared: squares in the denominator.
        epsilon: e, > 0; makes two empty sets agree perfectly.
        where: see ``bce_loss``.
        sample_weight: see ``bce_loss``.
        smoothing: see ``bce_loss``.
        reduction: see ``bce_loss``.
        dim: see ``bce_loss``.
        validate: see ``bce_loss``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> import torch
        >>> dice_loss(torch.tensor([[9.0, -9.0, 0.0]]), torch.tensor([[1, 0, 0]]))
        tensor(0.1429)
    """
    check_at_least("dice_loss", "epsilon", epsilon, 0, strict=True)
    rows = arrange("dice_loss", logits, labels, where=where, smoothing=smoothing, dim=dim, validate=validate)
    return dice_of_rows(
        "dice_loss",
        rows,
        squared=squared,
        epsilon=epsilon,
        sample_weight=sample_weight,
        reduction=reduction,
        validate=validate,
    )


class DiceLoss(LossModule):
    """``dice_loss`` as a module.

    Example:
        >>> import torch
        >>> DiceLoss(squared=True)(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0102)
    """

    def __init__(
        self,
        *,
        squared: bool = False,
        epsilon: float = 1.0,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        validate: bool = False,
    ) -> None:
        super().__init__(
            dice_loss,
            squared=squared,
            epsilon=epsilon,
            smoothing=smoothing,
            reduction=reduction,
            dim=dim,
            validate=validate,
        )
