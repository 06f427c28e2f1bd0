"""The best common cut for all labels: one sort and prefix sums, without a grid."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.decisions.tuning.cuts import ascending, finite, midway, round_down
from manyhot.decisions.tuning.goals import Goal
from manyhot.decisions.tuning.rows import ScoredRows, group_of, sum_over

INF = math.inf
FLOOR_PASSES = 8


def global_cut(data: ScoredRows, goal: Goal) -> float:
    """The best cut for all labels."""
    steps = steps_of(data)
    if len(steps) == 0:
        return finite(float(data.scores.max()))
    return pooled_cut(data, goal, steps) if goal.groups == "all" else best_on(curve_of(data, goal, steps), data)


def steps_of(data: ScoredRows) -> Tensor:
    """The distinct scores of positives, rising."""
    hits = data.hits()
    return hits[hits > -INF].unique()  # type: ignore[no-untyped-call, no-any-return]


def pooled_cut(data: ScoredRows, goal: Goal, steps: Tensor) -> float:
    """One group: everything predicted at a cut is known from where the cut falls in all sorted scores."""
    everything = ascending(data.scores.flatten())
    hits = ascending(data.hits())
    place = torch.searchsorted(everything, steps)
    pp = (len(everything) - place).double()
    tp = (len(hits) - torch.searchsorted(hits, steps)).double()
    value = goal.value(tp, pp, torch.full_like(tp, len(hits)))
    best = len(value) - 1 - int(value.flip(0).argmax())
    if float(value[best]) <= float(goal.value(tp.new_zeros(1), tp.new_zeros(1), tp.new_full((1,), len(hits)))):
        return finite(float(everything[-1]))
    below = int(place[best]) - 1
    return float(midway(steps[best], everything[below] if below >= 0 else steps.new_tensor(-INF)))


class Curve(NamedTuple):
    """The objective against the cut: ``total`` once all of the falling ``scores`` so far are taken in, from ``start``."""

    scores: Tensor
    total: Tensor
    start: float
    trials: list[tuple[Tensor, Tensor]]

    def at(self, cuts: Tensor) -> Tensor:
        """What a cut reaches; below the last score it stays at what that reaches."""
        passed = torch.searchsorted(-self.scores, -round_down(cuts, self.scores.dtype))
        return torch.cat([self.total.new_zeros(1), self.total])[passed] + self.start


def curve_of(data: ScoredRows, goal: Goal, steps: Tensor) -> Curve:
    """Each score that the cut passes changes one group; the changes are summed in the order of the scores."""
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
    total = curve.total.clone()
    total[:-1].masked_fill_(curve.scores[1:] == curve.scores[:-1], -INF)
    best = int(total.argmax())
    if float(total[best]) <= 0:
        return finite(float(curve.scores[0]))
    least = curve.scores[best]
    if best + 1 < len(total):
        return float(midway(least, curve.scores[best + 1]))
    below = [torch.where(block < least, block, -INF).max() for _, block in data.blocks()]
    return float(midway(least, torch.stack(below).max()))


def _floor(data: ScoredRows, goal: Goal, steps: Tensor) -> tuple[float, list[tuple[Tensor, Tensor]]]:
    """A score below which no best cut lies, and ``(tp, pp)`` of the groups at the cuts that were tried.

    With the groups' counts at a score, no cut that takes it in is better than if all positives were found at no further
    predictions; once that ceiling is no more than what some cut is known to reach, lower scores need not be sorted.
    """
    p, hits = data.per_group(goal.groups), data.hits()
    low, high, known, at = 0, len(steps), -INF, len(steps) - 1
    trials: list[tuple[Tensor, Tensor]] = []
    while high - low > 1 and len(trials) < FLOOR_PASSES:
        middle = (low + high) // 2
        tp, pp = data.per_group(goal.groups, hits >= steps[middle]), _predicted(data, goal.groups, steps[middle])
        trials.append((tp, pp))
        value = float(goal.value(tp, pp, p).sum())
        if value > known:
            known, at = value, middle
        if float(goal.value(p, torch.maximum(pp, p), p).sum()) <= known:
            low = middle
        else:
            high = middle
    return float(steps[min(low, at)]), trials


def _predicted(data: ScoredRows, groups: str, least: Tensor) -> Tensor:
    """float64 ``[G]``: how many scores are at least ``least``."""
    counts = [sum_over(groups, block >= least) for _, block in data.blocks()]
    return torch.cat(counts) if groups == "rows" else torch.stack(counts).sum(dim=0)
