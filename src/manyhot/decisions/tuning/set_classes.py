"""The best label set of each row, for many thresholds and weights of the sets' frequencies at once."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.decisions.set_values import BLOCK_ELEMENTS, member_table, set_totals
from manyhot.decisions.tuning.rows import ScoredRows
from manyhot.labels.sparse import SparseLabels

INF = math.inf
Array = np.ndarray[Any, Any]


class SetClasses(NamedTuple):
    """The sums of scores over label sets. Sets of the same size and count change alike with the threshold and with the weight
    of the count, so only the best sum of each such class matters.

    ``best [K, R]`` is the highest sum of ``s - cut`` in each class, without the row's own set; ``sizes [K]`` and ``counts [K]``
    describe the class. ``own``, ``own_sizes`` and ``left`` (all ``[R]``) are the same for the row's own set; ``left`` is
    the number of other rows that have it.
    """

    best: Array
    sizes: Array
    counts: Array
    own: Array
    own_sizes: Array
    left: Array
    cut: float

    @classmethod
    def of(cls, data: ScoredRows, own: Tensor, sets: SparseLabels, counts: Tensor, cut: float) -> SetClasses:
        """Sums at a threshold; ``own [R]`` is the number of each row's set, ``counts [C]`` how many rows have each set."""
        sizes, number = sets.counts().numpy(), counts.numpy()
        order = np.lexsort((number, sizes))
        new = np.flatnonzero((np.diff(sizes[order]) != 0) | (np.diff(number[order]) != 0)) + 1
        starts = np.concatenate([[0], new])
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        members, mine = member_table(sets[torch.from_numpy(order)]), place[own.numpy()]
        best, sums = np.empty((len(starts), len(mine))), np.empty(len(mine))
        step = max(1, BLOCK_ELEMENTS // len(sets))
        for first in range(0, len(mine), step):
            rows = slice(first, first + step)
            totals = set_totals(data.scores[rows] - cut, members).numpy()
            there = np.arange(totals.shape[1])
            sums[rows] = totals[mine[rows], there]
            totals[mine[rows], there] = -INF
            best[:, rows] = np.maximum.reduceat(totals, starts, axis=0)
        kept = order[starts]
        left = number[own.numpy()] - 1
        return cls(best, sizes[kept], number[kept], sums, sizes[own.numpy()], left, cut)

    def at(self, cut: float, weight: float) -> tuple[Array, Array]:
        """``(value [R], right [R])`` of the best listed set with a threshold and a weight: whether it is the row's own.

        The value of a row's own set counts the other rows that have it; with none it is not listed. If another set is as good,
        the row counts as wrong.
        """
        gain = weight * np.log(self.counts) - (cut - self.cut) * self.sizes
        others = (self.best + gain[:, None]).max(axis=0)
        with np.errstate(divide="ignore"):
            known = np.where(self.left > 0, weight * np.log(np.maximum(self.left, 1)), -INF)
        own = self.own - (cut - self.cut) * self.own_sizes + known
        return np.maximum(others, own), own > others
