"""Losses that order labels: pairwise, its sampled form LSEP, softmax, and two-way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_logits, check_sample_weight, check_unit, check_where, shape_text
from manyhot.engines.terms import INF, DenseTerms, SparseTerms, Weight, accumulation_dtype
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.dispatch import side_loss
from manyhot.losses.core.forms import joined
from manyhot.losses.core.labelwise import sum_over_labels, weigh
from manyhot.losses.core.logsumexp import Dim, Labels, Rows, Scores, arrange, two_sided_logsumexp
from manyhot.losses.core.reduction import reduce, softplus


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

    For a fixed number k of labels: there is no boundary, decide by the top k. With one positive it is softmax and
    cross-entropy; with ``scale`` g and ``margin`` m it is the unified form of circle loss. The pairs are never
    enumerated: their sum is the product of the two sides.

    Args:
        logits: ``[..., L]``, or lazy scores.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        scale: g, > 0.
        margin: m, by which a positive should lead.
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
        >>> logits = torch.tensor([[3.0, 1.0, 0.0]])
        >>> pairwise_loss(logits, torch.tensor([[1, 0, 0]]))
        tensor(0.1698)
        >>> torch.nn.functional.cross_entropy(logits, torch.tensor([0]))
        tensor(0.1698)
    """
    check_at_least("pairwise_loss", "scale", scale, 0, strict=True)
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


def lsep_loss(
    logits: Tensor,
    labels: Labels,
    *,
    max_pairs: int | None = 1000,
    generator: torch.Generator | None = None,
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
    dim: Dim = -1,
    validate: bool = False,
) -> Tensor:
    """Log-sum-exp pairwise loss (Li et al. 2017) as published: over at most ``max_pairs`` sampled pairs of a row.

    Rows with no more pairs than that use them all; ``max_pairs=None`` always does and is ``pairwise_loss``. Pairs are
    drawn with replacement, a positive in proportion to t and a negative in proportion to 1 - t.

    Args:
        logits: ``[..., L]``.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        max_pairs: how many pairs a row may use, or None for all.
        generator: the source of randomness, on the device of ``logits``; None is torch's own.
        where: see ``zlpr_loss``.
        sample_weight: see ``zlpr_loss``.
        smoothing: see ``zlpr_loss``; needs ``max_pairs=None``.
        reduction: see ``zlpr_loss``.
        dim: see ``zlpr_loss``.
        validate: see ``zlpr_loss``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> lsep_loss(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[1, 0, 0]]))
        tensor(0.1698)
    """
    check_logits("lsep_loss", logits)
    pos, neg = two_sided_logsumexp(
        logits, labels, where=where, smoothing=smoothing, dim=dim, validate=validate, who="lsep_loss"
    )
    values = softplus(joined(pos, neg))
    if max_pairs is not None:
        check_at_least("lsep_loss", "max_pairs", max_pairs, 1)
        if smoothing:
            raise ValueError("lsep_loss: `smoothing` needs all pairs; pass max_pairs=None, or use pairwise_loss.")
        rows = arrange("lsep_loss", logits, labels, where=where, dim=dim)
        values = torch.where(_count_pairs(rows) <= max_pairs, values, _sampled_lsep(rows, max_pairs, generator))
    return reduce("lsep_loss", values, sample_weight=sample_weight, reduction=reduction, validate=validate)


def _count_pairs(rows: Rows) -> Tensor:
    """Positives times negatives of each row."""

    def positives(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # noqa: ARG001
        return (pos > 0).to(x.dtype).expand_as(x)

    def negatives(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # noqa: ARG001
        return (neg > 0).to(x.dtype).expand_as(x)

    return (sum_over_labels(rows, positives) * sum_over_labels(rows, negatives)).detach()


def _sampled_lsep(rows: Rows, max_pairs: int, generator: torch.Generator | None) -> Tensor:
    """``log(1 + sum over drawn pairs e^{s_v - s_u})`` of each row."""
    x = rows.logits.to(accumulation_dtype(rows.logits.dtype))
    if x.numel() == 0:
        return x.sum(dim=-1).reshape(rows.shape)
    if isinstance(rows.terms, SparseTerms):
        upper, lower, counts = _draw_sparse(rows.terms, x, max_pairs, generator)
    else:
        upper, lower, counts = _draw_dense(rows.terms, x, max_pairs, generator)
    differences = torch.where(counts, x.gather(1, lower) - x.gather(1, upper), -INF)
    zero = differences.new_zeros(differences.shape[0], 1)
    return torch.logsumexp(torch.cat([zero, differences], dim=1), dim=1).reshape(rows.shape)


def _draw_dense(
    terms: DenseTerms, x: Tensor, max_pairs: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Label numbers of drawn positives and negatives ``[R, K]``, and which draws count: all, in rows that have both."""
    pos, neg = terms.weights(x.dtype)
    both = ((pos.sum(dim=-1) > 0) & (neg.sum(dim=-1) > 0)).unsqueeze(-1)
    upper, lower = (
        torch.multinomial(torch.where(both, weight, 1.0), max_pairs, replacement=True, generator=generator)
        for weight in (pos, neg)
    )
    return upper, lower, both.expand(-1, max_pairs)


def _draw_sparse(
    terms: SparseTerms, x: Tensor, max_pairs: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Label numbers of drawn positives and negatives ``[R, K]``, and which draws count (a hit on a positive does not)."""
    num_rows, num_labels = x.shape
    labels = SparseLabels(terms.indices, terms.offsets, num_labels, validate=False)
    counts = labels.counts()
    draws = x.new_empty((2, num_rows, max_pairs)).uniform_(generator=generator)
    rows = torch.arange(num_rows, device=x.device).unsqueeze(1).expand(-1, max_pairs)
    lower = (draws[1] * num_labels).long().clamp(max=num_labels - 1)
    valid = ~labels.contains(rows, lower)
    if terms.indices.numel() == 0:
        return torch.zeros_like(lower), lower, torch.zeros_like(valid)
    place = (draws[0] * counts.unsqueeze(1)).long() + labels.offsets[:-1].unsqueeze(1)
    place = place.clamp(max=terms.indices.numel() - 1)
    upper = terms.indices[place]
    pos_weight, _ = terms.listed_weights(x.dtype)
    valid = valid & (counts > 0).unsqueeze(1) & (pos_weight[place] > 0)
    if terms.where is not None:
        valid = valid & terms.where.gather(1, lower)
    return upper, lower, valid


def softmax_loss(
    logits: Tensor,
    labels: Labels,
    *,
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
    validate: bool = False,
) -> Tensor:
    """Softmax and cross-entropy for one label a row: ``-sum_i t_i log softmax(s)_i``.

    ``smoothing`` is the single-label one: ``1 - e`` for the class and ``e / (K - 1)`` for each of the others.

    Args:
        logits: ``[..., K]``.
        labels: class numbers ``[...]`` (int64), a distribution ``[..., K]``, or ``SparseLabels``.
        where: bool, broadcastable to ``logits``; False takes a class out of the softmax.
        sample_weight: one value per row.
        smoothing: e in [0, 1].
        reduction: ``"mean"`` over rows, ``"sum"`` or ``"none"``.
        validate: look at the values of labels too.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> softmax_loss(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]))
        tensor(0.1698)
    """
    check_logits("softmax_loss", logits)
    check_unit("softmax_loss", "smoothing", smoothing)
    log_probs = _log_softmax(logits.to(accumulation_dtype(logits.dtype)), where)
    own = _sum_at_classes(log_probs, labels, where, validate)
    others = logits.shape[-1] - 1 if where is None else where.expand(logits.shape).sum(dim=-1) - 1
    spread = smoothing / (others.clamp(min=1) if isinstance(others, Tensor) else max(others, 1))
    values = -own if smoothing == 0 else -(1 - smoothing - spread) * own - spread * log_probs.sum(dim=-1)
    return reduce("softmax_loss", values, sample_weight=sample_weight, reduction=reduction, validate=validate)


def _log_softmax(x: Tensor, where: Tensor | None) -> Tensor:
    """Over the classes that count; 0 for the others, and for rows in which none does."""
    if where is None:
        return torch.log_softmax(x, dim=-1)
    check_where("softmax_loss", where, x.shape)
    where = where.expand(x.shape)
    kept = torch.where(where | ~where.any(dim=-1, keepdim=True), torch.where(where, x, 0.0), -INF)
    return torch.where(where, torch.log_softmax(kept, dim=-1), 0.0)


def _sum_at_classes(log_probs: Tensor, labels: Labels, where: Tensor | None, validate: bool) -> Tensor:
    """``sum_i t_i log p_i`` of each row, for class numbers, distributions and index lists."""
    shape = log_probs.shape
    if isinstance(labels, Tensor) and labels.shape == shape[:-1] and not labels.is_floating_point():
        if validate and bool(((labels < 0) | (labels >= shape[-1])).any()):
            raise ValueError(f"softmax_loss: class numbers must lie in [0, {shape[-1]}); got {labels.min()} to {labels.max()}.")
        return log_probs.gather(-1, labels.long().unsqueeze(-1)).squeeze(-1)
    terms = arrange("softmax_loss", log_probs, labels, where=where, validate=validate).terms
    if isinstance(terms, SparseTerms):
        listed = log_probs.reshape(len(labels), shape[-1])[terms.rows, terms.indices]
        weighted = weigh(terms.listed_weights(listed.dtype)[0], listed)
        return weighted.new_zeros(len(labels)).index_add(0, terms.rows, weighted).reshape(shape[:-1])
    return weigh(terms.weights(log_probs.dtype)[0].reshape(shape), log_probs).sum(dim=-1)


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
