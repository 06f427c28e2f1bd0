"""The best common cut for all labels: one sort and prefix sums, without a grid."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.decisions.cuts import ascending, at_least, best_gap, clearance, just_above, midway
from manyhot.decisions.threshold_values import round_down
from manyhot.decisions.tuning.floor import Trial, floor_of
from manyhot.decisions.tuning.goals import Goal
from manyhot.decisions.tuning.listed import Entries
from manyhot.decisions.tuning.rows import ScoredRows, group_of, tally

INF = math.inf
# Gaps on either side of the best one that may be cut instead.
NEIGHBOURS = 1000


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
    """The best cut for one group: the number of predictions is the position of the cut in the sorted scores. Only scores that a
    best cut may predict are sorted."""
    floor = floor_of(data, goal, steps)
    if floor.entries is not None:
        everything = floor.entries.scores.flip(0)
    else:
        everything = ascending(torch.cat([at_least(block, floor.score) for _, block in data.blocks()]))
    hits, steps = data.hits(), steps[floor.place :]
    total, hits = len(hits), ascending(at_least(hits, floor.score))
    place = torch.searchsorted(everything, steps)
    pp = (len(everything) - place).double()
    tp = (len(hits) - torch.searchsorted(hits, steps)).double()
    value = goal.value(tp, pp, torch.full_like(tp, total))
    best = len(value) - 1 - value.flip(0).argmax()
    reached, at = torch.stack([value[best], place[best].double()]).tolist()
    nothing = torch.zeros(1, dtype=torch.float64)
    if reached <= float(goal.value(nothing, nothing, torch.full_like(nothing, total))):
        return float(just_above(everything[-1]))
    # Gaps next to the best one, the highest first, in case that one is too narrow. They are few: the rest is on the CPU.
    start, stop = max(0, int(at) - NEIGHBOURS), min(len(everything), int(at) + NEIGHBOURS + 1)
    below = everything[start - 1] if start else _highest_below(data, everything[0], floor.entries)
    upper = torch.cat([below.reshape(1), everything[start:stop]]).cpu().flip(0)
    upper, lower = upper[:-1], upper[1:]
    pp = len(everything) - torch.arange(stop - 1, start - 1, -1).double()
    tp = (len(hits) - torch.searchsorted(hits, upper.to(hits.device))).double().cpu()
    value = goal.value(tp, pp, torch.full_like(tp, total)).masked_fill(upper == lower, -INF)
    chosen = best_gap(value, clearance(upper, lower))
    return float(midway(upper[chosen], lower[chosen]))


def _highest_below(data: ScoredRows, least: Tensor, entries: Entries | None) -> Tensor:
    """The highest score below ``least``, which is the last of ``entries``; ``-inf`` if there is none."""
    if entries is not None:
        return entries.below
    return torch.stack([torch.where(block < least, block, -INF).max() for _, block in data.blocks()]).max()


class Curve(NamedTuple):
    """The objective as a function of the cut: ``start`` without predictions, then ``total`` after each of the falling
    ``scores`` is predicted."""

    scores: Tensor
    total: Tensor
    start: float
    trials: list[Trial]
    entries: Entries | None

    def at(self, cuts: Tensor) -> Tensor:
        """The objective at cuts; below the last score it is constant."""
        passed = torch.searchsorted(-self.scores, -round_down(cuts, self.scores.dtype))
        return torch.cat([self.total.new_zeros(1), self.total])[passed] + self.start


def curve_of(data: ScoredRows, goal: Goal, steps: Tensor) -> Curve:
    """The curve from prefix sums: each score that the cut passes changes one group."""
    floor = floor_of(data, goal, steps)
    scores, rows, columns = _falling_entries(data, floor.score) if floor.entries is None else floor.entries[:3]
    hit = data.labels.contains(rows, columns)
    p = data.per_group(goal.groups)
    total = prefix_sums(value_changes(goal, group_of(goal.groups, rows, columns), hit, p)) / len(p)
    return Curve(scores, total, value_of_nothing(goal, p), floor.trials, floor.entries)


def value_of_nothing(goal: Goal, p: Tensor) -> float:
    """The objective if no label is predicted; ``p [G]`` are the positives of each group."""
    nothing = torch.zeros_like(p)
    return float(goal.value(nothing, nothing, p).mean())


def value_changes(goal: Goal, group: Tensor, hit: Tensor, p: Tensor) -> Tensor:
    """float64 ``[N]``: how much each entry changes the value of its group, if the entries are predicted one after the other.

    Args:
        goal: the objective.
        group: ``[N]``, the group of each entry.
        hit: bool ``[N]``, whether it is a positive.
        p: float64 ``[G]``, the positives of each group.
    """
    by_group = group.argsort(stable=True)
    sizes = tally(group, len(p)).long()
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes, output_size=len(group))
    hit = hit.long()[by_group]
    seen = torch.cat([hit.new_zeros(1), hit.cumsum(0)])
    tp, pp = (seen[1:] - seen[first]).double(), (torch.arange(len(hit), device=hit.device) - first + 1).double()
    own = p.repeat_interleave(sizes, output_size=len(group))
    change = torch.empty_like(tp)
    change[by_group] = goal.value(tp, pp, own) - goal.value(tp - hit, pp - 1, own)
    return change


def prefix_sums(values: Tensor) -> Tensor:
    """Prefix sums, on the CPU: those of floats on a GPU differ from run to run."""
    if not values.is_cuda:
        return values.cumsum(0)
    # Copies from and to page-locked memory take a fraction of the time.
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values)
    np.cumsum(host.numpy(), out=host.numpy())
    return host.to(values.device, non_blocking=True)


def _falling_entries(data: ScoredRows, least: float) -> tuple[Tensor, Tensor, Tensor]:
    """The scores that are not below ``least``, in falling order, with their rows and labels."""
    found = [((block >= least).nonzero(), start) for start, block in data.blocks()]
    rows = torch.cat([place[:, 0] + start for place, start in found])
    columns = torch.cat([place[:, 1] for place, _ in found])
    scores, order = data.scores[rows, columns].sort(descending=True)
    return scores, rows[order], columns[order]


def best_on(curve: Curve, data: ScoredRows) -> float:
    """The highest of the best cuts of a curve."""
    lower = torch.cat([curve.scores[1:], _highest_below(data, curve.scores[-1], curve.entries).reshape(1)])
    value = (curve.start + curve.total).masked_fill(curve.scores == lower, -INF)
    if float(value.max()) <= curve.start:
        return float(just_above(curve.scores[0]))
    chosen = best_gap(value, clearance(curve.scores, lower))
    return float(midway(curve.scores[chosen], lower[chosen]))
