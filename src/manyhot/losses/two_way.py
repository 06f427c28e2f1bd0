"""Two-way loss: the pairwise loss along the labels of each row and along the rows of each label."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from manyhot._checks import check_at_least, check_logits, check_sample_weight, shape_text
from manyhot.engines.terms import INF
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.labelwise import sum_over_labels
from manyhot.losses.core.layout import Labels, arrange
from manyhot.losses.core.logsumexp import Scores, log_sums
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

    Each row costs ``log(1 + e^{Tn neg(s / Tn) + Tp pos(s / Tp)})``. The same loss is taken for each label along the batch and
    added with ``batch_weight``. The means run over the rows and labels that have a positive; a row or label with only positives
    costs 0 but counts. The loss has no boundary of its own: tune the decision.

    Args:
        logits: ``[B, L]`` (with ``batch_weight=0`` also ``[..., L]`` or lazy scores).
        labels: like ``logits``, in [0, 1], or ``SparseLabels``.
        pos_temperature: Tp, > 0.
        neg_temperature: Tn, > 0.
        batch_weight: weight of the part along the batch; 0 leaves it out.
        where: see ``zlpr_loss``.
        sample_weight: one value per row; weighs its terms along the batch too.
        smoothing: see ``zlpr_loss``.
        reduction: ``"mean"`` or ``"sum"``; ``"none"`` only with ``batch_weight=0``, because the batch part has no rows.
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
    rows = _one_way(
        logits,
        labels,
        temperatures,
        sample_weight=sample_weight,
        reduction=reduction,
        where=where,
        smoothing=smoothing,
        validate=validate,
    )
    if batch_weight == 0:
        return rows
    if reduction == "none":
        raise ValueError("two_way_loss: the part along the batch has no value per row; pass batch_weight=0 for 'none'.")
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise ValueError(
            f"two_way_loss: the part along the batch needs a tensor [B, L]; got {shape_text(logits.shape)} of type"
            f" {type(logits).__name__}. Pass batch_weight=0 to leave it out."
        )
    columns = _one_way(
        logits.mT,
        labels.transposed() if isinstance(labels, SparseLabels) else labels.mT,
        temperatures,
        reduction=reduction,
        where=None if where is None else where.expand(logits.shape).mT,
        smoothing=smoothing,
        pos_weight=sample_weight,
        neg_weight=sample_weight,
    )
    return rows + batch_weight * columns


def _one_way(
    logits: Scores,
    labels: Labels,
    temperatures: tuple[float, float],
    *,
    reduction: str,
    sample_weight: Tensor | None = None,
    validate: bool = False,
    **terms: Any,
) -> Tensor:
    """``log(1 + e^{Tn neg(s / Tn) + Tp pos(s / Tp)})`` along the last axis, reduced over the rows with a positive."""
    pos_temperature, neg_temperature = temperatures
    pos, _ = log_sums("two_way_loss", logits * (1 / pos_temperature), labels, validate=validate, **terms)
    _, neg = log_sums("two_way_loss", logits * (1 / neg_temperature), labels, validate=validate, **terms)
    values = softplus(pos.power(pos_temperature).times(neg.power(neg_temperature)).value)
    weight = _has_positive(logits, labels, pos.rest, terms).to(values.dtype)
    if sample_weight is not None:
        check_sample_weight("two_way_loss", sample_weight, weight.shape, validate=validate)
        weight = weight * sample_weight
    return reduce("two_way_loss", values, sample_weight=weight, reduction=reduction, validate=validate)


def _has_positive(logits: Scores, labels: Labels, pos: Tensor, terms: dict[str, Any]) -> Tensor:
    """bool ``[...]``: whether a row has a positive that counts, even if its infinite score leaves the positive side empty."""
    if not isinstance(logits, Tensor):
        return pos != -INF

    def positives(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # noqa: ARG001
        return (pos > 0).to(x.dtype).expand_as(x)

    return sum_over_labels(arrange("two_way_loss", logits, labels, **terms), positives) > 0


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
