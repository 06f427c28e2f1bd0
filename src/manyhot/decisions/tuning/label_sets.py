"""Values of label sets, tuned for SubACC: the weight of a set's frequency, and the cost of an unseen set."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.decisions.cuts import WINDOW, best_gap, clear_cut, clearance
from manyhot.decisions.set_values import LARGEST, SetValues
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.one_cut import global_cut
from manyhot.decisions.tuning.rows import ScoredRows
from manyhot.decisions.tuning.set_classes import SetClasses
from manyhot.labels.sparse import SparseLabels

INF = math.inf
# Weights to try for a set's log count. For calibrated log odds and independent labels, 1 is right.
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
# Cuts to try, relative to the best one without sets, in standard deviations of the scores of positives (``_spread``).
SHIFTS = (-1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
# For a normal distribution, half the range of the middle two thirds is the standard deviation.
WIDEST = 1.5
# The largest number of rows times sets; with more, tuning uses every n-th row.
LARGEST_TABLE = 1 << 26


class TunedSets(NamedTuple):
    """A threshold, the values of the sets, and the share of exactly right rows with them."""

    threshold: float
    sets: SetValues
    value: float


def set_values(data: ScoredRows, others: SparseLabels | None) -> TunedSets:
    """Find the threshold and the values of label sets with the best SubACC; see ``tune_rule``.

    Args:
        data: scores and labels. Each row is evaluated without counting its own set.
        others: the labels of further rows, whose sets are counted too.
    """
    data = ScoredRows(data.scores.cpu(), data.labels.to("cpu"), data.entries.cpu())
    known = data.labels if others is None else SparseLabels.collate([data.labels, others.to("cpu")])
    sets, counts, own = _distinct(known)
    stride = max(1, -(-len(data.labels) * len(sets) // LARGEST_TABLE))
    picked = torch.arange(0, len(data.labels), stride)
    part, own = data.rows(picked), own[picked]
    cut = global_cut(part, OBJECTIVES["SubACC"])
    spread = _spread(part.hits())
    classes, best = SetClasses.of(part, own, sets, counts, cut), (-1.0, 0.0, 0.0, cut)
    cuts = [cut + shift * spread for shift in sorted(SHIFTS, key=abs)]
    # Lower scores are neither above a cut nor near one.
    high = _Entries.of(part, min(cuts) - 2 * WINDOW * max(1.0, *map(abs, cuts)))
    for each in cuts:
        best = max(best, _best_at(part, classes, high, each), key=lambda found: found[0])
    best = _best_at(part, classes, high, clear_cut(high.scores, best[-1]))
    value, weight, cost, threshold = best
    worth = [weight * math.log(count) for count in counts.tolist()]
    return TunedSets(threshold, SetValues(tuple(map(tuple, sets.lists())), tuple(worth), -cost), value)


def _spread(hits: Tensor) -> float:
    """The standard deviation of the scores of positives, at most ``WIDEST`` times half the range of their middle two thirds.

    Label trees give some positives a very low score, which would make it many times larger.
    """
    known = hits[hits.isfinite()].double().numpy()
    if len(known) < 2:
        return 1.0
    low, high = np.quantile(known, (0.16, 0.84))
    middle = WIDEST * float(high - low) / 2
    return min(float(known.std(ddof=1)), middle) if middle else 1.0


class _Entries(NamedTuple):
    """The scores ``[E]`` that are at least some value, with their rows."""

    scores: Tensor
    rows: Tensor

    @classmethod
    def of(cls, data: ScoredRows, least: float) -> _Entries:
        """The entries of ``data``."""
        found = [((block >= least).nonzero(), start) for start, block in data.blocks()]
        rows = torch.cat([place[:, 0] + start for place, start in found])
        columns = torch.cat([place[:, 1] for place, _ in found])
        return cls(data.scores[rows, columns], rows)


def _best_at(data: ScoredRows, classes: SetClasses, high: _Entries, cut: float) -> tuple[float, float, float, float]:
    """The best ``(value, weight, cost, cut)`` at a cut. Ties go to the first weight."""
    freely, free_right = _free(data, high, cut)
    best = (-1.0, 0.0, 0.0, cut)
    for weight in WEIGHTS:
        value, right = classes.at(cut, weight)
        share, cost = _best_cost(freely - value, right, free_right)
        best = max(best, (share, weight, cost, cut), key=lambda found: found[0])
    return best


def _free(data: ScoredRows, high: _Entries, cut: float) -> tuple[np.ndarray, np.ndarray]:
    """``(sum of the margins above the cut, whether these labels are the right ones)`` of each row."""
    margin = high.scores - cut
    above, size = margin > 0, len(data.labels)
    rows, sizes = high.rows[above], margin[above].clamp(max=LARGEST).double()
    sums, predicted = torch.bincount(rows, weights=sizes, minlength=size), torch.bincount(rows, minlength=size)
    found = data.per_group("rows", data.hits() - cut > 0)
    return sums.numpy(), ((found == predicted) & (found == data.labels.counts())).numpy()


def _distinct(labels: SparseLabels) -> tuple[SparseLabels, Tensor, Tensor]:
    """``(sets, counts [C], set of each row [N])``: the distinct label sets, the most frequent first, then by their first row.

    Sets are identified by a key, the sum of one random 64-bit number for each of their labels.
    """
    draw = torch.Generator().manual_seed(labels.num_labels)
    numbers = torch.randint(-(2**62), 2**62, (labels.num_labels,), generator=draw, dtype=torch.int64)
    keys = torch.zeros(len(labels), dtype=torch.int64).index_add_(0, labels.rows, numbers[labels.indices])
    _, first, place, counts = np.unique(keys.numpy(), return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -counts))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    sets = labels[torch.from_numpy(first[order])]
    return sets, torch.from_numpy(counts[order]).double(), torch.from_numpy(back[place])


def _best_cost(gap: np.ndarray, right: np.ndarray, free_right: np.ndarray) -> tuple[float, float]:
    """``(share of right rows, cost)`` of the best cost. A row whose gap is larger than the cost gets the labels above the
    threshold, any other row its best listed set."""
    order = np.argsort(gap, kind="stable")
    gaps = gap[order]
    listed = np.concatenate([[0], np.cumsum(right[order])])
    freely = np.concatenate([[0], np.cumsum(free_right[order])])
    # The first k rows in the order of their gaps get a listed set, the others the labels above the threshold.
    total = listed + freely[-1] - freely
    ends = np.ones(len(total), dtype=bool)
    ends[1:-1] = gaps[1:] > gaps[:-1]
    # A negative cost would prefer unseen sets to known ones.
    ends[: np.searchsorted(gaps, 0.0, side="right")] = False
    k = _widest(np.where(ends, total, -math.inf), gaps)
    low = max(float(gaps[k - 1]), 0.0) if k else 0.0
    if k == len(gaps):
        cost = INF
    else:
        high = float(gaps[k])
        cost = (low + high) / 2 if math.isfinite(high) else low + 1.0
    return float(total[k]) / max(len(gaps), 1), cost


def _widest(total: np.ndarray, gaps: np.ndarray) -> int:
    """The best number of rows that get a listed set, as ``best_gap`` chooses."""
    ends = torch.from_numpy(gaps)
    low = torch.cat([ends.new_zeros(1), ends]).clamp(min=0.0)
    return best_gap(torch.from_numpy(total), clearance(torch.cat([ends, ends.new_tensor([INF])]), low))
