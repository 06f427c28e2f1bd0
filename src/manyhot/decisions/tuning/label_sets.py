"""Values of label sets, tuned for SubACC: the weight of a set's frequency, and the cost of an unseen set."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.decisions.cuts import best_gap, clear_cut, clearance
from manyhot.decisions.set_values import BLOCK_ELEMENTS, LARGEST, SetValues, member_table, set_totals
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.one_cut import global_cut
from manyhot.decisions.tuning.rows import ScoredRows
from manyhot.labels.sparse import SparseLabels

INF = math.inf
# Weights to try for a set's log count. For calibrated log odds and independent labels, 1 is right.
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
# Cuts to try, relative to the best one without sets, in standard deviations of the scores of positives.
SHIFTS = (-1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
# The largest number of rows times sets; with more, tuning uses every n-th row.
LARGEST_TABLE = 1 << 22


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
    hits = part.hits()
    spread = float(hits[hits.isfinite()].std()) if int(hits.isfinite().sum()) > 1 else 1.0
    best = (-1.0, 0.0, 0.0, cut)
    for shift in sorted(SHIFTS, key=abs):
        shifted = clear_cut(part.scores.flatten(), cut + shift * spread)
        tried = _best_at(part, own, shifted, sets, counts)
        best = max(best, tried, key=lambda each: each[0])
    value, weight, cost, threshold = best
    worth = [weight * math.log(count) for count in counts.tolist()]
    return TunedSets(threshold, SetValues(tuple(map(tuple, sets.lists())), tuple(worth), -cost), value)


def _best_at(
    data: ScoredRows, own: Tensor, cut: float, sets: SparseLabels, counts: Tensor
) -> tuple[float, float, float, float]:
    """The best ``(value, weight, cost, cut)`` at a cut; ``own [R]`` is the set of each row. Ties go to the first weight."""
    members = member_table(sets)
    right = torch.zeros(len(WEIGHTS), len(data.labels), dtype=torch.bool)
    gap = torch.full((len(WEIGHTS), len(data.labels)), INF)
    free_right = torch.zeros(len(data.labels), dtype=torch.bool)
    size = max(1, BLOCK_ELEMENTS // len(sets))
    for start in range(0, len(data.labels), size):
        rows = slice(start, start + size)
        margin = data.scores[rows] - cut
        totals, mine = set_totals(margin, members), own[rows]
        free = margin > 0
        freely = torch.where(free, margin.clamp(max=LARGEST), 0).sum(dim=1)
        free_right[rows] = (free == data.labels[torch.arange(start, start + len(margin))].dense(torch.bool)).all(dim=1)
        there, left = torch.arange(len(mine)), counts[mine] - 1
        for place, weight in enumerate(WEIGHTS):
            value = totals + (weight * counts.log()).to(totals)[:, None]
            # Each row is evaluated without counting its own set.
            less = torch.where(left > 0, weight * (left.clamp(min=1).log() - counts[mine].log()), -INF)
            value[mine, there] += less.to(value)
            best, found = value.max(dim=0)
            right[place, rows] = found == mine
            gap[place, rows] = freely - best
    options = [(*_best_cost(gap[place], right[place], free_right), place) for place in range(len(WEIGHTS))]
    share, cost, place = max(options, key=lambda each: each[0])
    return share, WEIGHTS[place], cost, cut


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


def _best_cost(gap: Tensor, right: Tensor, free_right: Tensor) -> tuple[float, float]:
    """``(share of right rows, cost)`` of the best cost. A row whose gap is larger than the cost gets the labels above the
    threshold, any other row its best listed set."""
    order = np.argsort(gap.numpy(), kind="stable")
    gaps = gap.numpy()[order]
    listed = np.concatenate([[0], np.cumsum(right.numpy()[order])])
    freely = np.concatenate([[0], np.cumsum(free_right.numpy()[order])])
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
