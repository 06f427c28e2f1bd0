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


def entries_at_least(data: ScoredRows, level: float, *, placed: bool = True, most: int | None = None) -> Entries | None:
    """The scores that are not below ``level``; equal ones in the order of rows and labels.

    Args:
        data: scores.
        level: one of the scores.
        placed: whether rows and labels are wanted; without them sorting is faster.
        most: the most entries to list.

    Returns:
        The entries; None if there are more, or if no kernel lists them.
    """
    found = list_at_least(data.scores, level, most=most)
    if found is None:
        return None
    below = torch.full((), found.below, dtype=data.scores.dtype, device=data.scores.device)
    if not placed:
        return Entries(found.values.sort(descending=True).values, found.places[:0], found.places[:0], below)
    places, order = found.places.sort()
    scores, by_score = found.values[order].sort(descending=True, stable=True)
    places, num_labels = places[by_score], data.scores.shape[1]
    return Entries(scores, places // num_labels, places % num_labels, below)


class ListedCounts:
    """The counts of the groups at cuts just below steps, from ``entries``: all scores that are at least the step number
    ``first``."""

    def __init__(self, data: ScoredRows, groups: str, steps: Tensor, first: int, entries: Entries) -> None:
        self.first, self.size, self.entries = first, data.num_groups(groups), entries
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

    def from_step(self, place: int) -> Entries:
        """The entries that are at least a step."""
        return self.entries.leading(int(self.ends[1, place - self.first]))
