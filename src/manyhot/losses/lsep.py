"""LSEP: the pairwise loss over sampled pairs, as it was published."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_logits
from manyhot.engines.readable import all_readable
from manyhot.engines.terms import INF, DenseTerms, SparseTerms, accumulation_dtype
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.dispatch import side_loss
from manyhot.losses.core.labelwise import sum_over_labels
from manyhot.losses.core.layout import Labels, Rows, arrange
from manyhot.losses.core.logsumexp import Dim, log_sums
from manyhot.losses.core.reduction import reduce, softplus
from manyhot.losses.module import LossModule


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

    Rows with at most ``max_pairs`` pairs use them all. With ``max_pairs=None`` all rows do, which is ``pairwise_loss``. Pairs
    are drawn with replacement, a positive in proportion to t and a negative in proportion to 1 - t.

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
        >>> import torch
        >>> lsep_loss(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[1, 0, 0]]))
        tensor(0.1698)
    """
    check_logits("lsep_loss", logits)
    if max_pairs is not None:
        check_at_least("lsep_loss", "max_pairs", max_pairs, 1)
        if smoothing:
            raise ValueError("lsep_loss: `smoothing` needs all pairs; pass max_pairs=None, or use pairwise_loss.")
    about: dict[str, Any] = {"where": where, "dim": dim, "validate": validate}
    if max_pairs is not None and (dim != -1 or _most_pairs(labels, logits.shape[-1]) > max_pairs):
        rows = arrange("lsep_loss", logits, labels, where=where, dim=dim)
        many = _count_pairs(rows).reshape(-1) > max_pairs
        sampled = _of_rows(rows, many, max_pairs, generator)
        if sampled is not None:
            pos, neg = log_sums("lsep_loss", logits, labels, **about)
            values = torch.where(many.reshape(rows.shape), sampled.reshape(rows.shape), softplus(pos.times(neg).value))
            return reduce("lsep_loss", values, sample_weight=sample_weight, reduction=reduction, validate=validate)
    about |= {"pos_weight": None, "neg_weight": None, "sample_weight": sample_weight, "smoothing": smoothing}
    return side_loss("lsep_loss", "joint", logits, labels, 0.0, reduction=reduction, engine="auto", **about)


def _of_rows(rows: Rows, many: Tensor, max_pairs: int, generator: torch.Generator | None) -> Tensor | None:
    """The loss over drawn pairs ``[R]`` of the rows that have too ``many``; None if there is no such row.

    Other devices than CPUs draw for all rows, because looking at the counts would wait for the device.
    """
    if not rows.logits.is_cpu or torch.compiler.is_compiling() or not all_readable((rows.logits, *rows.terms)):
        return _sampled_lsep(rows, max_pairs, generator)
    picked = many.nonzero().squeeze(1)
    if not len(picked):
        return None
    values = _sampled_lsep(_take(rows, picked), max_pairs, generator)
    return values.new_zeros(many.shape).index_put((picked,), values)


def _take(rows: Rows, picked: Tensor) -> Rows:
    """Some rows."""
    x, terms = rows.logits[picked], rows.terms
    where = None if terms.where is None else terms.where.expand_as(rows.logits)[picked]
    if isinstance(terms, DenseTerms):
        return Rows(x, terms._replace(labels=terms.labels[picked], where=where), picked.shape)
    lists = SparseLabels(terms.indices, terms.offsets, x.shape[1], values=terms.values, validate=False)[picked]
    terms = terms._replace(indices=lists.indices, offsets=lists.offsets, values=lists.values, where=where)
    return Rows(x, terms, picked.shape)


def _most_pairs(labels: Labels, num_labels: int) -> int:
    """The most pairs that a row can have: a hard label is on one side, a soft label on both."""
    if isinstance(labels, SparseLabels):
        hard = labels.values is None
    else:
        hard = isinstance(labels, Tensor) and not labels.is_floating_point()
    return (num_labels // 2) * (num_labels - num_labels // 2) if hard else num_labels * num_labels


def _count_pairs(rows: Rows) -> Tensor:
    """Positives times negatives of each row."""

    def positives(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # noqa: ARG001
        return (pos > 0).to(x.dtype).expand_as(x)

    def negatives(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # noqa: ARG001
        return (neg > 0).to(x.dtype).expand_as(x)

    return (sum_over_labels(rows, positives) * sum_over_labels(rows, negatives)).detach()


def _sampled_lsep(rows: Rows, max_pairs: int, generator: torch.Generator | None) -> Tensor:
    """``log(1 + sum over drawn pairs e^{s_v - s_u})`` of each row, ``[R]``."""
    x = rows.logits.to(accumulation_dtype(rows.logits.dtype))
    if x.numel() == 0:
        return x.sum(dim=-1)
    if isinstance(rows.terms, SparseTerms):
        upper, lower, counts = _draw_sparse(rows.terms, x, max_pairs, generator)
    else:
        upper, lower, counts = _draw_dense(rows.terms, x, max_pairs, generator)
    differences = torch.where(counts, x.gather(1, lower) - x.gather(1, upper), -INF)
    zero = differences.new_zeros(differences.shape[0], 1)
    return torch.logsumexp(torch.cat([zero, differences], dim=1), dim=1)


def _draw_dense(
    terms: DenseTerms, x: Tensor, max_pairs: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Label numbers of drawn positives and negatives ``[R, K]``, and which draws count: all in rows that have both."""
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


class LSEPLoss(LossModule):
    """``lsep_loss`` as a module.

    Example:
        >>> import torch
        >>> LSEPLoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0181)
    """

    def __init__(
        self,
        *,
        max_pairs: int | None = 1000,
        generator: torch.Generator | None = None,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        validate: bool = False,
    ) -> None:
        super().__init__(
            lsep_loss,
            max_pairs=max_pairs,
            generator=generator,
            smoothing=smoothing,
            reduction=reduction,
            dim=dim,
            validate=validate,
        )
