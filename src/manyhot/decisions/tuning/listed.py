"""Scores that are at least a level, listed in one read of the scores, and counts from them (CUDA)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.decisions.tuning.goals import Goal
from manyhot.decisions.tuning.rows import ScoredRows, group_of, tally
from manyhot.engines.triton.listing import list_between


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
    found = list_between(data.scores, (level, math.inf), most=most)
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

    def __init__(self, data: ScoredRows, goal: Goal, steps: Tensor, first: int, entries: Entries) -> None:
        self.first, self.size, self.entries = first, data.num_groups(goal.groups), entries
        hits, order = data.hits().sort(descending=True)
        wanted = -steps[first:]
        ends = torch.stack([torch.searchsorted(-falling, wanted, right=True) for falling in (hits, entries.scores)])
        self.ends = ends.cpu()
        self.values: Tensor | None = None
        if goal.groups == "all":
            self.values = _values(goal, ends.double(), len(hits)).cpu()
        else:
            self.own = group_of(goal.groups, entries.rows, entries.columns)
            self.hits = group_of(goal.groups, data.labels.rows, data.labels.indices)[order]

    def at(self, place: int) -> tuple[Tensor, Tensor]:
        """``(tp, pp)``, float64 ``[G]``, at the cut just below a step; on the CPU if there is one group."""
        tp, pp = self.ends[:, place - self.first]
        if self.values is not None:
            return tp.double().reshape(1), pp.double().reshape(1)
        return tally(self.hits[: int(tp)], self.size), tally(self.own[: int(pp)], self.size)

    def value(self, place: int) -> list[float] | None:
        """The value at a step and its bound at all lower ones; None if there are several groups."""
        found: list[float] | None = None if self.values is None else self.values[:, place - self.first].tolist()
        return found

    def from_step(self, place: int) -> Entries:
        """The entries that are at least a step."""
        return self.entries.leading(int(self.ends[1, place - self.first]))


def _values(goal: Goal, counts: Tensor, total: int) -> Tensor:
    """``[2, S]``: the values at all steps, and the bounds: all positives found without further predictions."""
    tp, pp = counts
    p = torch.full_like(tp, total)
    return torch.stack([goal.value(tp, pp, p), goal.value(p, torch.maximum(pp, p), p)])
