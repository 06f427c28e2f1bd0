"""ZLPR and its form with a threshold: every positive above, every negative below one boundary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from manyhot.engines.terms import Weight
from manyhot.losses.core.dispatch import side_loss
from manyhot.losses.core.forms import side_form
from manyhot.losses.core.logsumexp import Dim, Labels, Scores
from manyhot.losses.core.reduction import softplus
from manyhot.losses.module import LossModule


@side_form("split")
def split_form(pos: Tensor, neg: Tensor, threshold: Tensor | float) -> Tensor:
    """ZLPR of each row from its two sides; ``threshold`` is 0 for ``zlpr_loss`` and s0 for ``tlpr_loss``."""
    return softplus(pos + threshold) + softplus(neg - threshold)


def zlpr_loss(
    logits: Scores,
    labels: Labels,
    *,
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
    """Zero-bounded log-sum-exp and pairwise rank-based loss.

    ``log(1 + sum_pos e^{-s}) + log(1 + sum_neg e^{s})`` for hard labels, and ``log(1 + sum_i t_i e^{-s_i}) +
    log(1 + sum_i (1 - t_i) e^{s_i})`` for soft ones; the first is the second at 0 and 1. The gradient of each side is a
    softmax over its terms and one zero, so either side pulls with less than 1 in total whatever the number of labels:
    that is why it needs no balancing. Decide by ``s > 0``. Unlike ``bce_loss`` the labels of a row compete; unlike
    ``pairwise_loss`` there is a boundary, so the number of labels need not be known.

    Args:
        logits: ``[..., L]``, or lazy scores.
        labels: ``[..., L]`` in [0, 1] of any number type, or ``SparseLabels``.
        where: bool, broadcastable to ``logits``; False leaves an entry out, with gradient 0 whatever its score.
        pos_weight: a number or ``[L]``, weighs the terms inside the positive sum. One weight w for all, with ``neg_weight``
            1 / w, is a shift of the decision by log w in favour of predicting a label.
        neg_weight: the same for the negative sum.
        sample_weight: one value per row; the mean is ``sum w loss / sum w``.
        smoothing: uniform label smoothing ``t (1 - e) + e / 2``.
        reduction: ``"mean"`` over rows, ``"sum"``, or ``"none"`` for ``[...]``.
        dim: the label axis, or several that are taken together (a span grid, say).
        engine: who computes it: ``"auto"``, ``"torch"``, ``"native"`` (CPU) or ``"triton"`` (CUDA); see ``manyhot.engines``.
        validate: look at the values of labels and weights too (on a GPU this waits for the device).

    Returns:
        A float32 scalar, or ``[...]`` with ``reduction="none"`` (float64 for float64 logits).

    Example:
        >>> import torch
        >>> logits = torch.tensor([[4.0, -3.0, 2.0], [-5.0, -4.0, -6.0]])
        >>> zlpr_loss(logits, torch.tensor([[1, 0, 1], [0, 0, 0]]), reduction="none")
        tensor([0.1915, 0.0272])
    """
    return side_loss(
        "zlpr_loss",
        "split",
        logits,
        labels,
        0.0,
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


def tlpr_loss(
    logits: Scores,
    labels: Labels,
    threshold: Tensor | float,
    *,
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
    """ZLPR with a threshold in the place of zero: ``log(1 + e^{s0} sum_pos e^{-s}) + log(1 + e^{-s0} sum_neg e^{s})``.

    Decide by ``s > s0``. The threshold ``s0`` may be learned, by the model as a whole or for each row; the loss gives it
    a gradient. Shifting all scores and the threshold alike changes nothing. With threshold 0 it is ``zlpr_loss``, whose
    other arguments it shares.

    Args:
        logits: ``[..., L]``, or lazy scores.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        threshold: a number, or a tensor broadcastable to the rows ``[...]``.
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
        >>> logits = torch.tensor([[4.0, 1.0, 3.0]])
        >>> tlpr_loss(logits, torch.tensor([[1, 0, 1]]), torch.tensor([2.0]))
        tensor(0.7209)
    """
    return side_loss(
        "tlpr_loss",
        "split",
        logits,
        labels,
        threshold,
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


class ZLPRLoss(LossModule):
    """``zlpr_loss`` as a module.

    Example:
        >>> import torch
        >>> ZLPRLoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.2539)
    """

    def __init__(
        self,
        *,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            zlpr_loss,
            pos_weight=pos_weight,
            neg_weight=neg_weight,
            smoothing=smoothing,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )


class TLPRLoss(LossModule):
    """``tlpr_loss`` as a module that holds its threshold, learned beside the model or fixed.

    ``threshold`` is what to decide by: ``logits > loss.threshold``. With ``learn=True`` it is a parameter: give the loss's
    parameters to the optimiser too.

    Example:
        >>> import torch
        >>> loss = TLPRLoss(learn=True)
        >>> loss(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]])).backward()
        >>> loss.threshold
        Parameter containing:
        tensor(0., requires_grad=True)
    """

    threshold: Tensor

    def __init__(
        self,
        *,
        learn: bool = True,
        initial: float = 0.0,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            tlpr_loss,
            pos_weight=pos_weight,
            neg_weight=neg_weight,
            smoothing=smoothing,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )
        if learn:
            self.threshold = nn.Parameter(torch.tensor(float(initial)))
        else:
            self.register_buffer("threshold", torch.tensor(float(initial)))

    def current_settings(self) -> dict[str, Any]:
        """All settings, the threshold included."""
        return super().current_settings() | {"threshold": self.threshold}
