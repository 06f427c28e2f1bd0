"""Metrics at k: precision, recall, nDCG and propensity-scored precision of the first k labels of the ranking.

A positive counts 1 if it ranks among the first k, otherwise 0. Labels that are tied at place k share the remaining places
equally. So the value is the mean over all ways of breaking ties, the same on every device and for every order of the labels.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_broadcast, shape_text
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.blocks import Labels, Scores, arrange, checked_blocks
from manyhot.metrics.ranking import Ranks, order_in_rows, over_ranks, rank_positives
from manyhot.scores.top import TopScores

# The smallest number of training rows for which propensities are defined.
LEAST_ROWS = 3
# The constants of propensities are about 0.5 and 1; much larger ones overflow.
MOST_A, MOST_B = 10.0, 1e6


def precision_of(ranks: Ranks, k: int) -> Tensor:
    """P@k of each row, ``[r]``."""
    return ranks.row_sums(ranks.places(k)) / k


def recall_of(ranks: Ranks, k: int) -> Tensor:
    """R@k of each row, ``[r]``."""
    return ranks.row_sums(ranks.places(k)) / ranks.positives.clamp(min=1)


def ndcg_of(ranks: Ranks, k: int) -> Tensor:
    """nDCG@k of each row, ``[r]``."""
    # Created on the device: a copy from the host would sync.
    places = torch.arange(1, k + 2, dtype=torch.float64, device=ranks.rank.device)
    upto = torch.where(places > 1, 1.0 / places.log2(), 0.0).cumsum(0)
    above, rank = ranks.higher, ranks.rank
    gained = (upto[rank.clamp(max=k)] - upto[above.clamp(max=k)]) / (rank - above)
    return ranks.row_sums(gained) / upto[ranks.positives.clamp(min=1, max=k)]


def propensity_hits_of(ranks: Ranks, propensities: Tensor, k: int) -> Tensor:
    """The propensity-scored hits at k of each row, ``[r]``."""
    return ranks.row_sums(ranks.places(k) / propensities.double()[ranks.columns])


def propensity_best_of(positives: SparseLabels, propensities: Tensor, k: int) -> Tensor:
    """The largest possible propensity-scored hits at k of each row, ``[r]``."""
    worth = 1.0 / propensities.double()[positives.indices]
    order = order_in_rows(positives.rows, worth)
    rows = positives.rows[order]
    place = torch.arange(order.shape[0], device=order.device) - positives.offsets[rows]
    total = torch.zeros(len(positives), dtype=torch.float64, device=worth.device)
    return total.index_add_(0, rows, torch.where(place < k, worth[order], 0.0))


def check_k(who: str, scores: Scores | None, k: int) -> None:
    """Check that ``k`` is a whole number >= 1, and that lists of best scores have at least k entries."""
    check_at_least(who, "k", k, 1)
    if not isinstance(k, int):
        raise TypeError(f"{who}: `k` must be a whole number; got {k!r}.")
    if isinstance(scores, TopScores) and scores.k < min(k, scores.num_labels):
        raise ValueError(f"{who}: `scores` must list at least k = {k} labels per row; got {scores!r}.")


def check_propensities(who: str, propensities: Tensor, num_labels: int) -> None:
    """Check that there is one propensity per label, as ``label_propensities`` returns."""
    if not isinstance(propensities, Tensor) or not propensities.is_floating_point():
        raise TypeError(f"{who}: `propensities` must be a floating-point tensor [L]. Make them with label_propensities.")
    check_broadcast(who, "propensities", propensities, (num_labels,), "one number per label")
    if propensities.shape != (num_labels,):
        raise ValueError(f"{who}: `propensities` must be [{num_labels}]; got {shape_text(propensities.shape)}.")


def precision_at_k(scores: Scores, labels: Labels, *, k: int, where: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """P@k: the share of positives among the first k labels, ``hits / k``, even if a row has fewer than k positives.

    Args:
        scores: ``[..., L]``, lazy scores of a linear head, or ``TopScores`` with at least k labels per row.
        labels: ``[..., L]``, 0 or 1 of any number type, or ``SparseLabels`` with one row for each row of ``scores``.
        k: the number of labels at the top of the ranking that count.
        where: bool, broadcastable to ``[..., L]``; False leaves an entry out of the ranking.
        reduction: ``"mean"`` over rows (NaN for no rows), ``"sum"`` or ``"none"``.

    Returns:
        A float64 scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> precision_at_k(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[1, 1, 0]]), k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    check_k("precision_at_k", scores, k)
    return over_ranks("precision_at_k", partial(precision_of, k=k), scores, labels, where, reduction)


def recall_at_k(scores: Scores, labels: Labels, *, k: int, where: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """R@k: the share of a row's positives that rank among the first k labels; 0 for a row without positives.

    Arguments and result as in ``precision_at_k``.

    Example:
        >>> recall_at_k(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[1, 1, 0]]), k=1)
        tensor(0.5000, dtype=torch.float64)
    """
    check_k("recall_at_k", scores, k)
    return over_ranks("recall_at_k", partial(recall_of, k=k), scores, labels, where, reduction)


def ndcg_at_k(scores: Scores, labels: Labels, *, k: int, where: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """nDCG@k: hits weighted by ``1 / log2(place + 1)``, divided by the largest possible sum; 0 without positives.

    Equal to scikit-learn's ``ndcg_score`` on hard labels, which shares gains among ties as well. Arguments and result as
    in ``precision_at_k``.

    Example:
        >>> ndcg_at_k(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[1, 1, 0]]), k=3)
        tensor(0.9197, dtype=torch.float64)
    """
    check_k("ndcg_at_k", scores, k)
    return over_ranks("ndcg_at_k", partial(ndcg_of, k=k), scores, labels, where, reduction)


def label_propensities(label_counts: Tensor, num_examples: int, *, a: float = 0.55, b: float = 1.5) -> Tensor:
    """Propensities: the probability that a true label is annotated, by its frequency in training (Jain et al., 2016).

    ``p_l = 1 / (1 + C e^{-a log(N_l + b)})`` with ``C = (log N - 1)(b + 1)^a``. The usual constants are a = 0.55, b = 1.5;
    Wikipedia sets use 0.5 and 0.4, Amazon sets 0.6 and 2.6.

    Args:
        label_counts: ``[L]``, N_l, the number of training rows with each label.
        num_examples: N, the number of training rows.
        a: how fast the propensity rises with the count.
        b: added to every count.

    Returns:
        float64 ``[L]``, in (0, 1].

    Example:
        >>> label_propensities(torch.tensor([1, 100, 10000]), 20000)
        tensor([0.1010, 0.4627, 0.9149], dtype=torch.float64)
    """
    check_at_least("label_propensities", "num_examples", num_examples, LEAST_ROWS)
    check_at_least("label_propensities", "a", a, 0, most=MOST_A)
    check_at_least("label_propensities", "b", b, 0, strict=True, most=MOST_B)
    scale = (math.log(num_examples) - 1.0) * math.pow(b + 1.0, a)
    return (1.0 + scale * (label_counts.double() + b).pow(-a)).reciprocal()


def propensity_precision_at_k(
    scores: Scores,
    labels: Labels,
    propensities: Tensor,
    *,
    k: int,
    where: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    """PSP@k: precision at k in which a hit counts ``1 / p_l``, so that rare labels are worth more.

    The sum over rows of ``hits / p`` is divided by its largest possible value, as in published tables, or with
    ``normalize=False`` by ``k`` times the number of rows. The value is 0 if no row has a positive.

    Args:
        scores: ``[..., L]``, lazy scores of a linear head, or ``TopScores``.
        labels: ``[..., L]``, 0 or 1, or ``SparseLabels``.
        propensities: ``[L]``, from ``label_propensities``.
        k: the number of labels at the top of the ranking that count.
        where: bool, broadcastable to ``[..., L]``; False leaves an entry out of the ranking.
        normalize: whether to divide by the largest possible value.

    Returns:
        A float64 scalar.

    Example:
        >>> propensities = torch.tensor([1.0, 0.25, 1.0])
        >>> propensity_precision_at_k(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[1, 1, 0]]), propensities, k=2)
        tensor(0.2000, dtype=torch.float64)
    """
    who = "propensity_precision_at_k"
    check_k(who, scores, k)
    table = arrange(who, scores, labels, where=where)
    check_propensities(who, propensities, table.num_labels)
    hits = best = torch.zeros((), dtype=torch.float64, device=propensities.device)
    for block in checked_blocks(who, table):
        hits = hits + propensity_hits_of(rank_positives(block), propensities, k).sum()
        best = best + propensity_best_of(block.positives, propensities, k).sum()
    if not normalize:
        return hits / (k * table.num_rows)
    return hits / torch.where(best == 0, 1.0, best)
