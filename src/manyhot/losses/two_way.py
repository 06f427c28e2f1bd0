"""Two-way loss: the pairwise loss along the labels of each row and along the rows of each label."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from manyhot._checks import check_at_least, check_logits, check_sample_weight, shape_text
from manyhot.engines.terms import INF, Weight
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.forms import joined
from manyhot.losses.core.logsumexp import Labels, Scores, two_sided_logsumexp
from manyhot.losses.core.reduction import reduce, softplus
from manyhot.losses.module import LossModule


def two_way_loss(
    logits: Scores,
    labels: Labels,
    *,
    pos_temperature: float = 4.0,
    neg_temperature: float = 1.0,
    batch_weight: float = 1.0,
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
    validate: bool = False,
) -> Tensor:
    """Two-way loss (Kobayashi 2023): order the labels of each row, and the rows of each label.

    Each row costs ``log(1 + e^{Tn neg(s / Tn) + Tp pos(s / Tp)})``; the same is taken along the batch for each label, times
    ``batch_weight``. Means run over the rows, and the labels, that have a positive. It has no boundary of its own: tune
    the decision.

    Args:
        logits: ``[B, L]`` (with ``batch_weight=0`` also ``[..., L]`` or lazy scores).
        labels: like ``logits``, in [0, 1], or ``SparseLabels``.
        pos_temperature: Tp, > 0.
        neg_temperature: Tn, > 0.
        batch_weight: weight of the part along the batch; 0 leaves it out.
        where: see ``zlpr_loss``.
        sample_weight: one value per row; weighs its terms along the batch too.
        smoothing: see ``zlpr_loss``.
        reduction: ``"mean"`` or ``"sum"``; ``"none"`` only with ``batch_weight=0``, as the batch part has no rows.
        validate: see ``zlpr_loss``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[2.0, -1.0], [-2.0, 1.0]])
        >>> two_way_loss(logits, torch.tensor([[1, 0], [0, 1]]))
        tensor(0.1211)
    """
    if isinstance(logits, Tensor):
        check_logits("two_way_loss", logits)
    check_at_least("two_way_loss", "pos_temperature", pos_temperature, 0, strict=True)
    check_at_least("two_way_loss", "neg_temperature", neg_temperature, 0, strict=True)
    check_at_least("two_way_loss", "batch_weight", batch_weight, 0)
    temperatures = (pos_temperature, neg_temperature)
    joint = _tempered_pairs(logits, labels, temperatures, where=where, smoothing=smoothing, validate=validate)
    has_positive = (joint > -INF).to(joint.dtype)
    weight = has_positive
    if sample_weight is not None:
        check_sample_weight("two_way_loss", sample_weight, joint.shape, validate=validate)
        weight = has_positive * sample_weight.detach()
    rows = reduce("two_way_loss", softplus(joint), sample_weight=weight, reduction=reduction, validate=validate)
    if batch_weight == 0:
        return rows
    if reduction == "none":
        raise ValueError("two_way_loss: the part along the batch has no value per row; pass batch_weight=0 for 'none'.")
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise ValueError(
            f"two_way_loss: the part along the batch needs a tensor [B, L]; got {shape_text(logits.shape)} of type"
            f" {type(logits).__name__}. Pass batch_weight=0 to leave it out."
        )
    columns = _tempered_pairs(
        logits.mT,
        labels.transposed() if isinstance(labels, SparseLabels) else labels.mT,
        temperatures,
        where=None if where is None else where.expand(logits.shape).mT,
        smoothing=smoothing,
        weight=sample_weight,
    )
    return rows + batch_weight * reduce(
        "two_way_loss", softplus(columns), sample_weight=(columns > -INF).to(columns.dtype), reduction=reduction
    )


def _tempered_pairs(
    logits: Scores, labels: Labels, temperatures: tuple[float, float], *, weight: Weight = None, **settings: Any
) -> Tensor:
    """``Tn neg(s / Tn) + Tp pos(s / Tp)`` of each row."""
    pos_temperature, neg_temperature = temperatures
    settings |= {"pos_weight": weight, "neg_weight": weight, "who": "two_way_loss"}
    pos, _ = two_sided_logsumexp(logits * (1 / pos_temperature), labels, **settings)
    _, neg = two_sided_logsumexp(logits * (1 / neg_temperature), labels, **settings)
    return joined(pos * pos_temperature, neg * neg_temperature)


class TwoWayLoss(LossModule):
    """``two_way_loss`` as a module.

    Example:
        >>> import torch
        >>> TwoWayLoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0181)
    """

    def __init__(
        self,
        *,
        pos_temperature: float = 4.0,
        neg_temperature: float = 1.0,
        batch_weight: float = 1.0,
        smoothing: float = 0.0,
        reduction: str = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(
            two_way_loss,
            pos_temperature=pos_temperature,
            neg_temperature=neg_temperature,
            batch_weight=batch_weight,
            smoothing=smoothing,
            reduction=reduction,
            validate=validate,
        )
