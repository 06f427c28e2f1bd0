"""The best common cut for all labels: one sort and prefix sums, without a grid."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.decisions.cuts import ascending, at_least, best_gap, clearance, just_above, midway
from manyhot.decisions.threshold_values import round_down
from manyhot.decisions.tuning.goals import Goal
from manyhot.decisions.tuning.rows import ScoredRows, group_of, sum_over

INF = math.inf
# The largest number of cuts that the search for a floor evaluates: without, and with an estimate from a sample.
FLOOR_PASSES, CONFIRMED_PASSES = 8, 5
# Number of gaps on either side of the best one that are considered if the best one is too narrow.
NEIGHBOURS = 1000
# Number of scores in the sample from which the floor is estimated first.
SAMPLED = 1 << 21


def global_cut(data: ScoredRows, goal: Goal) -> float:
    """The best cut for all labels."""
    steps = steps_of(data)
    if len(steps) == 0:
        return float(just_above(data.scores.max()))
    return pooled_cut(data, goal, steps) if goal.groups == "all" else best_on(curve_of(data, goal, steps), data)


def steps_of(data: ScoredRows) -> Tensor:
    """The distinct scores of positives, increasing."""
    hits = data.hits()
    return hits[hits > -INF].unique()  # type: ignore[no-untyped-call, no-any-return]


def pooled_cut(data: ScoredRows, goal: Goal, steps: Tensor) -> float:
    """The best cut if all entries are one group: the number of predictions follows from the position of the cut in the sorted
    scores. Only scores that the best cut may predict are sorted."""
    floor, _ = _floor(data, goal, steps)
    everything = ascending(torch.cat([at_least(block, floor) for _, block in data.blocks()]))
    hits, steps = data.hits(), steps[steps >= floor]
    total, hits = len(hits), ascending(hits[hits >= floor])
    place = torch.searchsorted(everything, steps)
    pp = (len(everything) - place).double()
    tp = (len(hits) - torch.searchsorted(hits, steps)).double()
    value = goal.value(tp, pp, torch.full_like(tp, total))
    best = len(value) - 1 - int(value.flip(0).argmax())
    if float(value[best]) <= float(goal.value(tp.new_zeros(1), tp.new_zeros(1), tp.new_full((1,), total))):
        return float(just_above(everything[-1]))
    # Gaps next to the best one, the highest first, in case that one is too narrow.
    start, stop = max(0, int(place[best]) - NEIGHBOURS), min(len(everything), int(place[best]) + NEIGHBOURS + 1)
    upper = everything[start:stop].flip(0)
    below = everything[start - 1] if start else _highest_below(data, everything[0])
    lower = torch.cat([upper[1:], below.reshape(1)])
    pp = len(everything) - torch.arange(stop - 1, start - 1, -1, device=upper.device).double()
    tp = (len(hits) - torch.searchsorted(hits, upper)).double()
    value = goal.value(tp, pp, torch.full_like(tp, total)).masked_fill(upper == lower, -INF)
    chosen = best_gap(value, clearance(upper, lower))
    return float(midway(upper[chosen], lower[chosen]))


def _highest_below(data: ScoredRows, least: Tensor) -> Tensor:
    """The highest score below ``least``; ``-inf`` if there is none."""
    return torch.stack([torch.where(block < least, block, -INF).max() for _, block in data.blocks()]).max()


class Curve(NamedTuple):
    """The objective as a function of the cut: ``start`` without predictions, then ``total`` after each of the falling
    ``scores`` is predicted."""

    scores: Tensor
    total: Tensor
    start: float
    trials: list[tuple[Tensor, Tensor]]

    def at(self, cuts: Tensor) -> Tensor:
        """The objective at cuts; below the last score it is constant."""
        passed = torch.searchsorted(-self.scores, -round_down(cuts, self.scores.dtype))
        return torch.cat([self.total.new_zeros(1), self.total])[passed] + self.start


def curve_of(data: ScoredRows, goal: Goal, steps: Tensor) -> Curve:
    """The curve from prefix sums: each score that the cut passes changes one group."""
    floor, trials = _floor(data, goal, steps)
    found = [((block >= floor).nonzero(), start) for start, block in data.blocks()]
    rows = torch.cat([place[:, 0] + start for place, start in found])
    columns = torch.cat([place[:, 1] for place, _ in found])
    scores, order = data.scores[rows, columns].sort(descending=True)
    rows, columns = rows[order], columns[order]
    positive = data.labels.contains(rows, columns).long()
    group = group_of(goal.groups, rows, columns)
    by_group = group.argsort(stable=True)
    p = data.per_group(goal.groups)
    sizes = torch.bincount(group, minlength=len(p))
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    hit = positive[by_group]
    seen = torch.cat([hit.new_zeros(1), hit.cumsum(0)])
    tp, pp = (seen[1:] - seen[first]).double(), (torch.arange(len(hit), device=hit.device) - first + 1).double()
    own = p.repeat_interleave(sizes)
    change = torch.empty_like(tp)
    change[by_group] = goal.value(tp, pp, own) - goal.value(tp - hit, pp - 1, own)
    nothing = torch.zeros_like(p)
    # Prefix sums of floats on a GPU differ from run to run.
    total = change.cpu().cumsum(0).to(change.device) / len(p)
    return Curve(scores, total, float(goal.value(nothing, nothing, p).mean()), trials)


def best_on(curve: Curve, data: ScoredRows) -> float:
    """The highest of the best cuts of a curve."""
    lower = torch.cat([curve.scores[1:], _highest_below(data, curve.scores[-1]).reshape(1)])
    value = (curve.start + curve.total).masked_fill(curve.scores == lower, -INF)
    if float(value.max()) <= curve.start:
        return float(just_above(curve.scores[0]))
    chosen = best_gap(value, clearance(curve.scores, lower))
    return float(midway(curve.scores[chosen], lower[chosen]))


class _Search:
    """Bisection for a score below which no best cut lies.

    The counts at a score give an upper bound for all lower cuts: the value if they found all positives without further
    predictions. Once the bound is at most the value of a known cut, lower scores need not be sorted.
    """

    def __init__(self, data: ScoredRows, goal: Goal, steps: Tensor) -> None:
        self.data, self.goal, self.steps = data, goal, steps
        self.positives, self.hits = data.per_group(goal.groups), data.hits()
        # Steps up to ``low`` cannot be best, those from ``high`` on can; ``at`` is the best so far, with the value ``known``.
        self.low, self.high, self.at, self.known = 0, len(steps), len(steps) - 1, -INF
        self.trials: list[tuple[Tensor, Tensor]] = []

    def evaluate(self, place: int) -> None:
        """Evaluate the cut just below a step."""
        groups, value, p = self.goal.groups, self.goal.value, self.positives
        tp, pp = self.data.per_group(groups, self.hits >= self.steps[place]), _predicted(self.data, groups, self.steps[place])
        self.trials.append((tp, pp))
        reached = float(value(tp, pp, p).sum())
        if reached > self.known:
            self.known, self.at = reached, place
        if float(value(p, torch.maximum(pp, p), p).sum()) <= self.known:
            self.low = max(self.low, place)
        else:
            self.high = min(self.high, place)

    def bisect(self, most: int = FLOOR_PASSES) -> None:
        """Evaluate the middle of the open interval until it is empty, or ``most`` steps were evaluated."""
        while self.high - self.low > 1 and len(self.trials) < most:
            self.evaluate((self.low + self.high) // 2)


def _floor(data: ScoredRows, goal: Goal, steps: Tensor) -> tuple[float, list[tuple[Tensor, Tensor]]]:
    """A score below which no best cut lies, and ``(tp, pp)`` of the groups at the cuts that were tried."""
    search = _Search(data, goal, steps)
    for place in _likely(data, goal, steps):
        search.evaluate(place)
    # Each evaluation reads all scores. If a floor estimated from a sample is confirmed on all rows, few more are needed.
    search.bisect(CONFIRMED_PASSES if search.low else FLOOR_PASSES)
    return float(steps[min(search.low, search.at)]), search.trials


def _likely(data: ScoredRows, goal: Goal, steps: Tensor) -> list[int]:
    """Steps to evaluate first, estimated from every n-th row: one near the best and one just below the floor. Empty if there
    are few scores."""
    stride = data.scores.numel() // SAMPLED
    if stride < 8:
        return []
    search = _Search(data.rows(torch.arange(0, len(data.scores), stride, device=data.scores.device)), goal, steps)
    search.bisect()
    floor = min(search.low, search.at) - max(1, len(steps) // 32)
    return [search.at, floor] if floor > 0 else []


def _predicted(data: ScoredRows, groups: str, least: Tensor) -> Tensor:
    """float64 ``[G]``: the number of scores that are at least ``least``."""
    counts = [sum_over(groups, block >= least) for _, block in data.blocks()]
    return torch.cat(counts) if groups == "rows" else torch.stack(counts).sum(dim=0)
