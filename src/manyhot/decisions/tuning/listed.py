"""Scores that are at least a level, listed in one read of the scores, and counts from them (CUDA)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.decisions.tuning.rows import ScoredRows, group_of, tally
from manyhot.engines.triton.listing import list_at_least


class Entries(NamedTuple):
    """Falling scores, their rows and labels, and the highest score below them."""

    scores: Tensor
    rows: Tensor
    columns: Tensor
    below: Tensor

    def leading(self, count: int) -> Entries:
        """The first ``count`` of them."""
        below = self.scores[count] if count < len(self.scores) else self.below
        return Entries(self.scores[:count], self.rows[:count], self.columns[:count], below)


def entries_at_least(data: ScoredRows, level: float) -> Entries | None:
    """The scores that are not below ``level``; equal ones in the order of rows and labels. None if no kernel lists them."""
    found = list_at_least(data.scores, level)
    if found is None:
        return None
    places, order = found.places.sort()
    scores, by_score = found.values[order].sort(descending=True, stable=True)
    places, num_labels = places[by_score], data.scores.shape[1]
    below = torch.full((), found.below, dtype=scores.dtype, device=scores.device)
    return Entries(scores, places // num_labels, places % num_labels, below)


class ListedCounts:
    """The counts of the groups at cuts just below steps, from ``entries``: all scores that are at least the step number
    ``first``."""

    def __init__(self, data: ScoredRows, groups: str, steps: Tensor, first: int, entries: Entries) -> None:
        self.first, self.size = first, data.num_groups(groups)
        hits, order = data.hits().sort(descending=True)
        self.pooled = groups == "all"
        if not self.pooled:
            self.own = group_of(groups, entries.rows, entries.columns)
            self.hits = group_of(groups, data.labels.rows, data.labels.indices)[order]
        wanted = -steps[first:]
        ends = [torch.searchsorted(-falling, wanted, right=True) for falling in (hits, entries.scores)]
        self.ends = torch.stack(ends).cpu()

    def at(self, place: int) -> tuple[Tensor, Tensor]:
        """``(tp, pp)``, float64 ``[G]``, at the cut just below a step; on the CPU if there is one group."""
        tp, pp = self.ends[:, place - self.first]
        if self.pooled:
            return tp.double().reshape(1), pp.double().reshape(1)
        return tally(self.hits[: int(tp)], self.size), tally(self.own[: int(pp)], self.size)

    def number(self, place: int) -> int:
        """The number of scores that are at least a step."""
        return int(self.ends[1, place - self.first])
