"""Metrics of the ranking of the labels in a row.

All of them, and the metrics at k, are computed from three counts for each positive: the labels that score higher, the labels
that score at least as high, and the positives that score at least as high. A row is sorted only if it has many positives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot._checks import check_reduction
from manyhot.engines.triton.ranks import count_higher
from manyhot.metrics.blocks import Block, Labels, Scores, arrange, block_elements, checked_blocks
from manyhot.metrics.ties import differs, tie_bounds
from manyhot.scores.top import TopScores

# Rows are sorted if they have more positives than this on average: comparing a row with one score costs about 1/100 of
# sorting it.
SORT_FROM = 96


class Ranks(NamedTuple):
    """The ranks of the positives of some rows, ordered by row and falling score.

    Attributes:
        rows: int64 ``[P]``.
        columns: int64 ``[P]``, label numbers.
        above: int64 ``[P]``, the number of labels of the row that score higher; None if not computed.
        rank: int64 ``[P]``, the number that score at least as high, including the label itself: the worst rank among ties.
        found: int64 ``[P]``, the number of positives that score at least as high.
        positives: int64 ``[r]``, positives of each row, listed or not.
        known: int64 ``[r]``, labels of each row.
    """

    rows: Tensor
    columns: Tensor
    above: Tensor | None
    rank: Tensor
    found: Tensor
    positives: Tensor
    known: Tensor

    def row_sums(self, values: Tensor) -> Tensor:
        """float64 ``[r]``: the sum of one value for each positive over its row."""
        total = torch.zeros(self.positives.shape[0], dtype=torch.float64, device=values.device)
        return total.index_add_(0, self.rows, values.double())

    def places(self, k: int) -> Tensor:
        """float64 ``[P]``: the share of a positive that is among the first ``k``; ties share their places equally."""
        tied = self.rank - self.higher
        return (k - self.higher).clamp(min=0).minimum(tied).double() / tied

    @property
    def higher(self) -> Tensor:
        """``above``; an error if it was not computed."""
        if self.above is None:
            raise ValueError("Ranks: metrics at k need `above`; call rank_positives with above=True.")
        return self.above


def rank_positives(block: Block, *, above: bool = True) -> Ranks:
    """The ranks of a block's positives: by comparison if they are few, by sorting if they are many.

    Args:
        block: rows with scores.
        above: also count the labels that score higher, for metrics at k and one-error; costs a second comparison.
    """
    if isinstance(block.scores, TopScores):
        return _ranks_in_lists(block, block.scores)
    if not isinstance(block.scores, Tensor):
        raise TypeError("rank_positives: the block has no scores.")
    few = block.positives.indices.shape[0] <= SORT_FROM * block.num_rows
    return _ranks_by_comparison(block, block.scores, above) if few else _ranks_by_sorting(block, block.scores)


def order_in_rows(rows: Tensor, values: Tensor) -> Tensor:
    """int64 ``[P]``: the order by row and falling value."""
    order = values.argsort(descending=True)
    return order[rows[order].argsort(stable=True)]


def _ranks_by_comparison(block: Block, scores: Tensor, with_above: bool) -> Ranks:
    rows, columns = block.positives.rows, block.positives.indices
    own = scores[rows, columns]
    above: Tensor | None
    order = order_in_rows(rows, own)
    rows, columns, own = rows[order], columns[order], own[order]
    counted = count_higher(scores, block.positives.offsets, own)
    if counted is not None:
        rank, above = counted
    else:
        rank = _compare(scores, rows, own, torch.ge)
        above = _compare(scores, rows, own, torch.gt) if with_above else None
    last = tie_bounds(differs(rows) | differs(own))[1]
    # An excluded entry has the score -inf and would tie with a positive of score -inf.
    rank = rank.minimum(block.known[rows])
    return Ranks(rows, columns, above, rank, last - block.positives.offsets[rows] + 1, block.positives.counts(), block.known)


def _compare(scores: Tensor, rows: Tensor, own: Tensor, beats: Callable[..., Tensor]) -> Tensor:
    """int64 ``[P]``: the number of scores in the row above (``torch.gt``) or at least (``torch.ge``) each positive's own."""
    share = 2 if scores.device.type == "cpu" else 1
    size = max(1, block_elements(scores.device) // share // max(scores.shape[1], 1))
    # Results are floats, because sums of floats are fast, and exact up to 2^24.
    exact = torch.float64 if scores.shape[1] > 1 << 24 else scores.dtype
    counts = torch.zeros_like(rows)
    for start in range(0, rows.shape[0], size):
        part = slice(start, start + size)
        others = scores.index_select(0, rows[part])
        flags = beats(others, own[part].unsqueeze(1), out=torch.empty_like(others))
        counts[part] = flags.sum(dim=1, dtype=exact).long()
    return counts


def _ranks_by_sorting(block: Block, scores: Tensor) -> Ranks:
    ordered, labels = scores.sort(dim=1, descending=True)
    flags = block.positives.dense().gather(1, labels)
    first, last = tie_bounds(differs(ordered))
    rows, places = flags.nonzero(as_tuple=True)
    end = last[rows, places]
    return Ranks(
        rows,
        labels[rows, places],
        first[rows, places],
        (end + 1).minimum(block.known[rows]),
        flags.cumsum(dim=1)[rows, end],
        block.positives.counts(),
        block.known,
    )


def _ranks_in_lists(block: Block, top: TopScores) -> Ranks:
    """The ranks of the listed positives; the others rank below all listed labels."""
    own = torch.arange(len(top), device=top.device).unsqueeze(1).expand_as(top.indices)
    listed = top.indices >= 0
    hits = block.positives.contains(own, top.indices.clamp(min=0)) & listed
    first, last = tie_bounds(differs(top.values))
    last = last.minimum(listed.sum(dim=1, keepdim=True) - 1)
    rows, places = hits.nonzero(as_tuple=True)
    end = last[rows, places]
    found = hits.cumsum(dim=1)[rows, end]
    return Ranks(rows, top.indices[rows, places], first[rows, places], end + 1, found, block.positives.counts(), block.known)


def average_precision_of(ranks: Ranks) -> Tensor:
    """AvgPrec of each row, ``[r]``."""
    mean = ranks.row_sums(ranks.found.double() / ranks.rank) / ranks.positives.clamp(min=1)
    return torch.where(ranks.positives == 0, 1.0, mean)


def ranking_error_of(ranks: Ranks) -> Tensor:
    """RankLoss of each row, ``[r]``."""
    pairs = ranks.positives * (ranks.known - ranks.positives)
    return ranks.row_sums(ranks.rank - ranks.found) / pairs.clamp(min=1)


def coverage_error_of(ranks: Ranks) -> Tensor:
    """Coverage error of each row, ``[r]``."""
    last = torch.nn.functional.pad(ranks.rank, (1, 0))[ranks.positives.cumsum(0)]
    return torch.where(ranks.positives == 0, 0, last).double()


def one_error_of(ranks: Ranks) -> Tensor:
    """One-error of each row, ``[r]``."""
    return 1.0 - ranks.row_sums(ranks.places(1))


def over_ranks(
    who: str,
    values: Callable[[Ranks], Tensor],
    scores: Scores,
    labels: Labels,
    where: Tensor | None,
    reduction: str,
    *,
    above: bool = True,
) -> Tensor:
    """One value per row, from the ranks of its positives."""
    check_reduction(who, reduction)
    table = arrange(who, scores, labels, where=where)
    parts = [values(rank_positives(block, above=above)) for block in checked_blocks(who, table)]
    return reduce_rows(torch.cat(parts).reshape(table.shape[:-1]), reduction)


def reduce_rows(values: Tensor, reduction: str) -> Tensor:
    """Row values reduced; the mean over no rows is NaN."""
    if reduction == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()


def ranking_average_precision_score(
    scores: Scores, labels: Labels, *, where: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """AvgPrec, the label ranking average precision: the mean precision of the ranking at the rank of each positive.

    ``mean over positives i of |{positives j: s_j >= s_i}| / |{labels j: s_j >= s_i}|``; ties get the worst rank. A row
    without positives or without negatives gives 1. Equal to scikit-learn's ``label_ranking_average_precision_score``.

    Args:
        scores: ``[..., L]``, or lazy scores of a linear head.
        labels: ``[..., L]``, 0 or 1 of any number type, or ``SparseLabels`` with one row for each row of ``scores``.
        where: bool, broadcastable to ``scores``; False excludes an entry, whatever its score and label.
        reduction: ``"mean"`` over rows (NaN for no rows), ``"sum"`` or ``"none"``.

    Returns:
        A float64 scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> ranking_average_precision_score(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[1, 1, 0]]))
        tensor(0.8333, dtype=torch.float64)
    """
    return _over_all("ranking_average_precision_score", average_precision_of, scores, labels, where, reduction)


def ranking_error(scores: Scores, labels: Labels, *, where: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """RankLoss: the share of pairs of a positive and a negative that are not strictly in order; a tie counts as wrong.

    ``|{(i pos, j neg): s_i <= s_j}| / (|pos| |neg|)``. A row without positives or without negatives gives 0. Equal to
    scikit-learn's ``label_ranking_loss``. Arguments and result as in ``ranking_average_precision_score``.

    Example:
        >>> ranking_error(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[1, 1, 0]]))
        tensor(0.5000, dtype=torch.float64)
    """
    return _over_all("ranking_error", ranking_error_of, scores, labels, where, reduction)


def coverage_error(scores: Scores, labels: Labels, *, where: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """The rank of the lowest positive, with ties at the worst rank: ``|{j: s_j >= min_{i pos} s_i}|``.

    A row with no positives gives 0. Equal to scikit-learn's ``coverage_error``. Arguments and result as in
    ``ranking_average_precision_score``.

    Example:
        >>> coverage_error(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[1, 1, 0]]))
        tensor(3., dtype=torch.float64)
    """
    return _over_all("coverage_error", coverage_error_of, scores, labels, where, reduction)


def one_error(scores: Scores, labels: Labels, *, where: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """The share of rows whose best label is wrong: ``1 - P@1``.

    Labels that share the best score count equally. A row without positives gives 1. Takes ``TopScores`` too; otherwise
    arguments and result as in ``ranking_average_precision_score``.

    Example:
        >>> one_error(torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.1, 0.0]]), torch.tensor([[1, 1, 0], [1, 0, 0]]))
        tensor(0.2500, dtype=torch.float64)
    """
    return over_ranks("one_error", one_error_of, scores, labels, where, reduction)


def _over_all(
    who: str, values: Callable[[Ranks], Tensor], scores: Scores, labels: Labels, where: Tensor | None, reduction: str
) -> Tensor:
    """``over_ranks`` for metrics that need the scores of all labels."""
    if isinstance(scores, TopScores):
        raise TypeError(f"{who}: `scores` must be given for all labels; got {scores!r}. The best labels alone are not enough.")
    return over_ranks(who, values, scores, labels, where, reduction, above=False)
