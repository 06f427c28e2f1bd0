"""The best common cut if all entries are one group, as for micro-F1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from manyhot.decisions.cuts import ascending, at_least, best_gap, clearance, just_above, midway
from manyhot.decisions.tuning.floor import MOST_LISTED, floor_of
from manyhot.decisions.tuning.goals import Goal
from manyhot.decisions.tuning.rows import ScoredRows
from manyhot.engines.triton.launch.gate import GATE, LaunchError
from manyhot.engines.triton.listing import list_between, lists_here
from manyhot.engines.triton.pooled import launch_cut, launch_level

INF = math.inf
# Gaps on either side of the best one that may be cut instead.
NEIGHBOURS = 1000
# On a GPU, scores to estimate the lowest possible cut from, and the standard errors that this estimate allows for.
SAMPLED, ERRORS = 1 << 20, 3.0


def pooled_cut(data: ScoredRows, goal: Goal, steps: Tensor | None = None) -> float:
    """The best cut for one group: the number of predictions is the position of the cut in the sorted scores. Only scores that a
    best cut may predict are sorted. ``steps`` are the distinct scores of positives, increasing; at least one."""
    found = listed_cut(data, goal)
    return sorted_cut(data, goal, steps_of(data) if steps is None else steps) if found is None else found


def steps_of(data: ScoredRows) -> Tensor:
    """The distinct scores of positives, increasing."""
    hits = data.hits()
    return hits[hits > -INF].unique()  # type: ignore[no-untyped-call, no-any-return]


def sorted_cut(data: ScoredRows, goal: Goal, steps: Tensor) -> float:
    """The cut on every device, with any number of reads of the scores."""
    floor = floor_of(data, goal, steps)
    if floor.entries is not None:
        everything = floor.entries.scores.flip(0)
    else:
        everything = ascending(torch.cat([at_least(block, floor.score) for _, block in data.blocks()]))
    hits, steps = data.hits(), steps[floor.place :]
    total, hits = len(hits), ascending(at_least(hits, floor.score))
    place = torch.searchsorted(everything, steps)
    tp = (len(hits) - torch.searchsorted(hits, steps)).double()
    value = goal.value(tp, (len(everything) - place).double(), torch.full_like(tp, total))
    best = len(value) - 1 - value.flip(0).argmax()
    reached, at = torch.stack([value[best], place[best].double()]).tolist()
    if reached <= value_without(goal, total):
        return float(just_above(everything[-1]))
    below = highest_below(data, everything[0], 1) if at < 1 else everything[int(at) - 1 : int(at)]
    if bool(clearance(everything[int(at)], below) >= 1):
        return float(midway(everything[int(at)], below))
    start, stop = int(at) - NEIGHBOURS, int(at) + NEIGHBOURS + 1
    lower = highest_below(data, everything[0], 1 - start) if start < 1 else everything[start - 1 : start]
    window = torch.cat([lower, everything[max(start, 0) : stop]])
    tp = len(hits) - torch.searchsorted(hits, window)
    return _widest(goal, window.cpu(), tp.cpu(), len(everything) - min(stop, len(everything)), total)


def listed_cut(data: ScoredRows, goal: Goal) -> float | None:
    """The same cut on a GPU from one read of the scores. A sample tells which scores a best cut may predict. These are listed
    and sorted, and their number proves that no lower cut is better. The host waits for the device twice.

    None if no kernel lists the scores, if a lower cut may be better, or if gaps that are not listed are needed."""
    total, scores = len(data.labels.indices), data.scores
    if not total or not lists_here(scores):
        return None
    try:
        hits = data.hits().sort().values
        stride = scores.numel() // SAMPLED | 1
        sample = scores.view(-1)[::stride].sort().values
        share, errors = scores.numel() / len(sample), ERRORS if stride > 1 else 0.0
        levels = launch_level(sample, hits, share, errors, NEIGHBOURS, error=goal.error)
        found = list_between(scores, levels, most=MOST_LISTED)
        if found is None or not len(found.values):
            return None
        numbers = launch_cut(found.values.sort().values, hits, levels, NEIGHBOURS, error=goal.error).cpu()
    except LaunchError as failure:
        GATE.close(failure)
        return None
    return _listed_choice(goal, numbers, found.below, (len(found.values), scores.numel(), total))


def _listed_choice(goal: Goal, numbers: Tensor, below: float, sizes: tuple[int, int, int]) -> float | None:
    """The cut, from the value of the best one, its place, the highest score, and the scores near it with their positives;
    ``sizes`` are the numbers of listed scores, of all scores and of positives."""
    (count, size, total), (reached, place) = sizes, numbers[:2].tolist()
    nothing, p = value_without(goal, total), torch.full((), total, dtype=torch.float64)
    if reached == -INF or (count < size and float(goal.value(p, p.clamp(min=count), p)) > max(reached, nothing)):
        return None
    if reached <= nothing:
        return float(just_above(numbers[2].float()))
    window, tp = numbers[3:].reshape(2, -1)
    at, window = int(place), window.float()
    start, stop = max(at - NEIGHBOURS, 0), min(at + NEIGHBOURS + 1, count)
    kept = slice(start - at + NEIGHBOURS, stop - at + NEIGHBOURS + 1)
    window, tp = window[kept].clone(), tp[kept]
    if not start:
        window[0] = below
    upper, lower = window[at - start + 1], window[at - start]
    if float(clearance(upper, lower)) >= 1:
        return float(midway(upper, lower))
    if at < NEIGHBOURS and count < size:
        return None
    return _widest(goal, window, tp, count - stop, total)


def _widest(goal: Goal, window: Tensor, tp: Tensor, higher: int, total: int) -> float:
    """The cut in the widest of the nearly best gaps between the scores of ``window``, which increase.

    Args:
        goal: the objective.
        window: scores on the CPU; no gap is cut below the first.
        tp: the positives that are at least as high as each of them.
        higher: how many scores are above the window.
        total: the number of positives.
    """
    upper, lower, tp = window[1:].flip(0), window[:-1].flip(0), tp[1:].flip(0).double()
    pp = higher + torch.arange(1, len(upper) + 1).double()
    value = goal.value(tp, pp, torch.full_like(tp, total)).masked_fill((upper == lower) | (upper == -INF), -INF)
    chosen = best_gap(value, clearance(upper, lower))
    return float(midway(upper[chosen], lower[chosen]))


def value_without(goal: Goal, total: int) -> float:
    """The value of one group with ``total`` positives if no label is predicted."""
    nothing = torch.zeros(1, dtype=torch.float64)
    return float(goal.value(nothing, nothing, torch.full_like(nothing, total)))


def highest_below(data: ScoredRows, least: Tensor, number: int) -> Tensor:
    """The highest scores below ``least``, increasing: ``number`` of them, or all after ``-inf``."""
    if number == 1:
        return torch.stack([torch.where(block < least, block, -INF).max() for _, block in data.blocks()]).max().reshape(1)
    # A sample tells where about twice as many begin; if there are fewer, all scores are sorted.
    every = data.scores.flatten()
    sample = every[:: max(1, len(every) >> 16)]
    place = 2 * number * len(sample) // len(every) + 16
    lower = ascending(sample[sample < least])
    found = lower[:0]
    for level in ([float(lower[-place])] if place <= len(lower) else []) + [-INF]:
        if len(found) < number:
            found = torch.cat([at_least(block, level) for _, block in data.blocks()])
            found = found[(found < least) & (found > -INF)]
    found = ascending(found)[-number:]
    return found if len(found) == number else torch.cat([found.new_full((1,), -INF), found])
