"""The pairwise loss: every positive above every negative; with scale and margin the unified circle form."""

from __future__ import annotations

from torch import Tensor

from manyhot._checks import check_at_least, check_number
from manyhot.engines.terms import LogSum, Weight
from manyhot.losses.core.dispatch import side_loss
from manyhot.losses.core.forms import side_form
from manyhot.losses.core.layout import Labels
from manyhot.losses.core.logsumexp import Dim, Scores
from manyhot.losses.core.reduction import softplus
from manyhot.losses.module import LossModule


@side_form("joint")
def joint_form(pos: LogSum, neg: LogSum, margin: Tensor | float) -> Tensor:
    """``softplus(pos + neg + margin)`` of each row; ``margin`` is g m of the circle form."""
    return softplus(pos.times(neg).plus(margin))


def pairwise_loss(
    logits: Scores,
    labels: Labels,
    *,
    scale: float = 1.0,
    margin: float = 0.0,
    where: Tensor | None = None,
    pos_weight: Weight = None,
    neg_weight: Weight = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
    dim: Dim = -1,
    engine: str = "auto",
    validate: bool = False,
) -> Tensor:
    """``log(1 + sum over (negative i, positive j) of e^{g (s_i - s_j + m)})``: every positive above every negative.

    Use it if the number k of labels is known: there is no boundary, so decide by the top k. With one positive it is softmax
    cross-entropy; with ``scale`` g and ``margin`` m it is the unified form of circle loss. The pairs are never enumerated:
    their sum is the product of the sums of the two sides.

    Args:
        logits: ``[..., L]``, or lazy scores.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        scale: g, > 0.
        margin: m, by how much a positive should exceed a negative.
        where: see ``zlpr_loss``.
        pos_weight: see ``zlpr_loss``.
        neg_weight: see ``zlpr_loss``.
        sample_weight: see ``zlpr_loss``.
        smoothing: see ``zlpr_loss``.
        reduction: see ``zlpr_loss``.
        dim: see ``zlpr_loss``.
        engine: see ``zlpr_loss``.
        validate: see ``zlpr_loss``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[3.0, 1.0, 0.0]])
        >>> pairwise_loss(logits, torch.tensor([[1, 0, 0]]))
        tensor(0.1698)
        >>> torch.nn.functional.cross_entropy(logits, torch.tensor([0]))
        tensor(0.1698)
    """
    check_at_least("pairwise_loss", "scale", scale, 0, strict=True)
    check_number("pairwise_loss", "margin", margin)
    return side_loss(
        "pairwise_loss",
        "joint",
        logits if scale == 1 else logits * scale,
        labels,
        scale * margin,
        where=where,
        pos_weight=pos_weight,
        neg_weight=neg_weight,
        sample_weight=sample_weight,
        smoothing=smoothing,
        reduction=reduction,
        dim=dim,
        engine=engine,
        validate=validate,
    )


class PairwiseLoss(LossModule):
    """``pairwise_loss`` as a module.

    Example:
        >>> import torch
        >>> PairwiseLoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0181)
    """

    def __init__(
        self,
        *,
        scale: float = 1.0,
        margin: float = 0.0,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            pairwise_loss,
            scale=scale,
            margin=margin,
            pos_weight=pos_weight,
            neg_weight=neg_weight,
            smoothing=smoothing,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )
