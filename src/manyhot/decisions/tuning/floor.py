"""A score below which no best cut lies, so that only higher scores need to be sorted."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.decisions.tuning.goals import Goal
from manyhot.decisions.tuning.listed import Entries, ListedCounts, entries_at_least
from manyhot.decisions.tuning.rows import ScoredRows, number_at_least

INF = math.inf
FLOOR_PASSES, CONFIRMED_PASSES = 8, 5
# Scores on which a floor is tried first.
SAMPLED = 1 << 21
# The longest list to take counts from; with more scores, each evaluation reads all of them.
MOST_LISTED = 1 << 25

Trial = tuple[Tensor, Tensor]


class Floor(NamedTuple):
    """The floor: its number among the steps, its score, ``(tp, pp)`` of the groups at the cuts that were tried, and the scores
    from the floor on if they are listed already."""

    place: int
    score: float
    trials: list[Trial]
    entries: Entries | None


def floor_of(data: ScoredRows, goal: Goal, steps: Tensor) -> Floor:
    """Find the floor; ``steps`` are the distinct scores of positives, increasing."""
    likely = _likely(data, goal, steps)
    search = Search(data, goal, steps, min(likely) if likely else None)
    for place in likely:
        search.evaluate(place)
    # Without a list, each evaluation reads all scores; a floor suggested by some rows and confirmed on all rows needs few more.
    search.bisect(CONFIRMED_PASSES if search.low else FLOOR_PASSES)
    place = min(search.low, search.at)
    score, listed = float(search.levels[place]), search.listed
    if listed is not None and place >= listed.first:
        entries: Entries | None = listed.from_step(place)
    else:
        entries = entries_at_least(data, score, placed=search.placed)
    return Floor(place, score, search.trials, entries)


class Search:
    """Bisection for the floor.

    From the groups' counts at a score follows an upper bound for all lower cuts: all positives found without further
    predictions. Once the bound is at most the value of a known cut, lower scores need not be sorted. On a GPU, counts come from
    a list of the scores from step number ``first`` on; for a lower step, a longer list is made.
    """

    def __init__(self, data: ScoredRows, goal: Goal, steps: Tensor, first: int | None = None) -> None:
        self.data, self.goal, self.steps = data, goal, steps
        # On the host, so that no evaluation waits for a step.
        self.levels = steps.cpu()
        self.placed = goal.groups != "all"
        self.listed = None if first is None else self._list(first)
        self.positives, self.hits = data.per_group(goal.groups), data.hits()
        # Steps up to ``low`` cannot be best, those from ``high`` on can; ``at`` is the best so far, with the value ``known``.
        self.low, self.high, self.at, self.known = 0, len(steps), len(steps) - 1, -INF
        self.trials: list[Trial] = []

    def counts(self, place: int) -> Trial:
        """``(tp, pp)`` of the groups at the cut just below a step."""
        if self.listed is not None and place < self.listed.first:
            self.listed = self._list(place)
        if self.listed is not None:
            return self.listed.at(place)
        step, groups = float(self.levels[place]), self.goal.groups
        return self.data.per_group(groups, self.hits >= step), number_at_least(self.data, groups, step)

    def _list(self, first: int) -> ListedCounts | None:
        """Counts from a list of the scores from a step on; None if no kernel lists them, or if they are too many."""
        entries = entries_at_least(self.data, float(self.levels[first]), placed=self.placed, most=MOST_LISTED)
        return None if entries is None else ListedCounts(self.data, self.goal, self.steps, first, entries)

    def evaluate(self, place: int) -> None:
        """Evaluate the cut just below a step."""
        tp, pp = self.counts(place)
        self.trials.append((tp, pp))
        found = None if self.listed is None else self.listed.value(place)
        if found is None:
            p = self.positives
            counts = torch.stack([tp, p]), torch.stack([pp, torch.maximum(pp, p)])
            found = self.goal.value(*counts, p).sum(dim=1).tolist()
        reached, bound = found
        if reached > self.known:
            self.known, self.at = reached, place
        if bound <= self.known:
            self.low = max(self.low, place)
        else:
            self.high = min(self.high, place)

    def bisect(self, most: int = FLOOR_PASSES) -> None:
        """Evaluate the middle of the open interval until it is empty, or ``most`` steps were evaluated."""
        while self.high - self.low > 1 and len(self.trials) < most:
            self.evaluate((self.low + self.high) // 2)


def _likely(data: ScoredRows, goal: Goal, steps: Tensor) -> list[int]:
    """Estimates from every n-th row: a step near the best and one just below the floor; empty for few scores."""
    stride = data.scores.numel() // SAMPLED
    if stride < 8:
        return []
    part = data.rows(torch.arange(0, len(data.scores), stride, device=data.scores.device))
    search = Search(part, goal, steps, 0)
    search.bisect()
    floor = min(search.low, search.at) - max(1, len(steps) // 32)
    return [search.at, floor] if floor > 0 else []
