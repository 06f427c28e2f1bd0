"""The best common cut for all labels: one sort and prefix sums, without a grid."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.decisions.cuts import SLACK, ascending, best_gap, clearance, just_above, midway
from manyhot.decisions.threshold_values import round_down
from manyhot.decisions.tuning.floor import Trial, floor_of
from manyhot.decisions.tuning.goals import Goal
from manyhot.decisions.tuning.pooled import highest_below, listed_cut, sorted_cut, steps_of
from manyhot.decisions.tuning.rows import ScoredRows, group_of, tally
from manyhot.engines.triton.listing import list_between

INF = math.inf


def global_cut(data: ScoredRows, goal: Goal) -> float:
    """The best cut for all labels."""
    found = listed_cut(data, goal) if goal.groups == "all" else None
    if found is not None:
        return found
    steps = steps_of(data)
    if len(steps) == 0:
        return float(just_above(data.scores.max()))
    return sorted_cut(data, goal, steps) if goal.groups == "all" else best_on(curve_of(data, goal, steps), data)


class Curve(NamedTuple):
    """The objective as a function of the cut: ``start`` without predictions, then ``total`` after each of the falling
    ``scores`` is predicted. If only some groups change the objective, the scores and the trials are those of the labels
    ``columns``. ``below [1]`` is the highest score below them, if it is known."""

    scores: Tensor
    total: Tensor
    start: float
    trials: list[Trial]
    columns: Tensor | None
    below: Tensor | None

    def at(self, cuts: Tensor) -> Tensor:
        """The objective at cuts; below the last score it is constant."""
        passed = torch.searchsorted(-self.scores, -round_down(cuts, self.scores.dtype))
        return torch.cat([self.total.new_zeros(1), self.total])[passed] + self.start


def curve_of(data: ScoredRows, goal: Goal, steps: Tensor) -> Curve:
    """The curve from prefix sums: each score that the cut passes changes one group."""
    everything, columns = data, _with_positives(data) if goal.groups == "labels" else None
    data = data if columns is None else data.of_labels(columns)
    floor = floor_of(data, goal, steps)
    scores, rows, own_labels = _falling_entries(data, floor.score) if floor.entries is None else floor.entries[:3]
    hit = data.labels.contains(rows, own_labels)
    change = value_changes(goal, group_of(goal.groups, rows, own_labels), hit, data.per_group(goal.groups))
    p = everything.per_group(goal.groups)
    total, below = prefix_sums(change) / len(p), None if floor.entries is None else floor.entries.below.reshape(1)
    return Curve(scores, total, value_of_nothing(goal, p), floor.trials, columns, below)


def _with_positives(data: ScoredRows) -> Tensor | None:
    """The labels that have a positive, if at most half of them do: macro-F1 counts 0 for the others, whatever is predicted."""
    found = data.per_group("labels").nonzero().flatten()
    return found if 2 * len(found) <= data.scores.shape[1] else None


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
    scores, value = curve.scores, curve.start + curve.total
    value = value.masked_fill(scores == torch.cat([scores[1:], scores.new_full((1,), -INF)]), -INF)
    if float(value.max()) <= curve.start:
        return float(just_above(data.scores.max()))
    if curve.columns is None:
        below = highest_below(data, scores[-1], 1) if curve.below is None else curve.below
    else:
        scores, value, below = _all_gaps(curve, data, value)
    lower = torch.cat([scores[1:], below])
    value = value.masked_fill(scores == lower, -INF)
    chosen = best_gap(value, clearance(scores, lower))
    return float(midway(*torch.stack([scores[chosen], lower[chosen]]).cpu()))


def _all_gaps(curve: Curve, data: ScoredRows, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The falling scores of all labels between the nearly best cuts of a curve of some labels, which has the ``value``; the
    objective if they are predicted; and ``[1]``, the highest score below them."""
    best = value.max()
    near = (value >= best - SLACK * best.abs()).nonzero().flatten()
    ends = torch.stack([(near[-1] + 1).clamp(max=len(value) - 1), near[0]])
    low, high = curve.scores[ends].tolist()
    found = list_between(data.scores, (low, high))
    if found is None:
        inside = (block[(block >= low) & (block <= high)] for _, block in data.blocks())
        scores, below = torch.cat(list(inside)), highest_below(data, data.scores.new_tensor(low), 1)
    else:
        scores, below = found.values, data.scores.new_full((1,), found.below)
    scores = ascending(scores).flip(0)
    passed = torch.searchsorted(-curve.scores, -scores, right=True)
    return scores, curve.start + curve.total[passed - 1], below
