"""Exact best cuts through scores, for objectives that count: one sort, prefix sums, no grid. ``tune_rule`` is the door."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.labels.sparse import SparseLabels

INF = math.inf
BLOCK_ELEMENTS = 1 << 24
FLOOR_PASSES = 8

Value = Callable[[Tensor, Tensor, Tensor], Tensor]


class Objective(NamedTuple):
    """The mean over groups of ``value(tp, pp, p)``: true positives, predicted, positives of a group.

    ``value`` does not fall with ``tp`` and does not rise with ``pp``; so a best cut lies just below a positive score, or
    above all scores.
    """

    groups: str
    value: Value
    per_label: bool = False
    error: bool = False


def _f1(empty: float) -> Value:
    def value(tp: Tensor, pp: Tensor, p: Tensor) -> Tensor:
        return torch.where(pp + p > 0, 2 * tp / (pp + p).clamp(min=1), empty)

    return value


def _jaccard(tp: Tensor, pp: Tensor, p: Tensor) -> Tensor:
    return torch.where(pp + p > 0, tp / (pp + p - tp).clamp(min=1), 1.0)


def _subset(tp: Tensor, pp: Tensor, p: Tensor) -> Tensor:
    return ((tp == p) & (pp == p)).double()


def _agreement(tp: Tensor, pp: Tensor, p: Tensor) -> Tensor:
    return 2 * tp - pp - p


OBJECTIVES = {
    "micro-F1": Objective("all", _f1(0.0), per_label=True),
    "macro-F1": Objective("labels", _f1(0.0), per_label=True),
    "MLC-F1": Objective("rows", _f1(1.0)),
    "SubACC": Objective("rows", _subset),
    "jaccard": Objective("rows", _jaccard),
    "hamming-error": Objective("all", _agreement, per_label=True, error=True),
}


class Problem(NamedTuple):
    """Scores ``[R, L]`` with ``-inf`` for what is never predicted, hard labels, and how many entries of each row count."""

    scores: Tensor
    labels: SparseLabels
    entries: Tensor

    def rows(self, index: Tensor) -> Problem:
        """Some rows alone."""
        return Problem(self.scores[index], self.labels[index], self.entries[index])

    def hits(self) -> Tensor:
        """``[P]``: the scores of the positives."""
        return self.scores[self.labels.rows, self.labels.indices]

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """``(first row, scores)``, some rows at a time."""
        size = max(1, BLOCK_ELEMENTS // max(self.scores.shape[1], 1))
        for start in range(0, self.scores.shape[0], size):
            yield start, self.scores[start : start + size]

    def num_groups(self, groups: str) -> int:
        """How many there are."""
        return {"all": 1, "rows": self.scores.shape[0], "labels": self.scores.shape[1]}[groups]

    def per_group(self, groups: str, kept: Tensor | None = None) -> Tensor:
        """float64 ``[G]``: how many positives (of those ``kept``) each group has."""
        place = group_of(groups, self.labels.rows, self.labels.indices)
        return torch.bincount(place if kept is None else place[kept], minlength=self.num_groups(groups)).double()


def group_of(groups: str, rows: Tensor, columns: Tensor) -> Tensor:
    """The group of each entry."""
    return {"all": torch.zeros_like(rows), "rows": rows, "labels": columns}[groups]


def sum_over(groups: str, chosen: Tensor) -> Tensor:
    """float64: how many of ``chosen [r, L]`` are True, by group."""
    axis = {"all": None, "rows": 1, "labels": 0}[groups]
    if chosen.device.type == "cpu":
        # NumPy counts Booleans tens of times faster than torch does on a CPU.
        counts = np.count_nonzero(chosen.numpy()) if axis is None else chosen.numpy().sum(axis=axis, dtype=np.int32)
        return torch.as_tensor(counts, dtype=torch.float64).reshape(-1)
    return chosen.sum(dim=axis).double().reshape(-1)


def global_cut(data: Problem, goal: Objective) -> float:
    """The best cut for all labels."""
    steps = steps_of(data)
    if len(steps) == 0:
        return _finite(float(data.scores.max()))
    return pooled_cut(data, goal, steps) if goal.groups == "all" else _best_on(curve_of(data, goal, steps), data)


def steps_of(data: Problem) -> Tensor:
    """The distinct scores of positives, rising."""
    hits = data.hits()
    return hits[hits > -INF].unique()  # type: ignore[no-untyped-call, no-any-return]


def pooled_cut(data: Problem, goal: Objective, steps: Tensor) -> float:
    """One group: everything predicted at a cut is known from where the cut falls in all sorted scores."""
    everything = _ascending(data.scores.flatten())
    hits = _ascending(data.hits())
    place = torch.searchsorted(everything, steps)
    pp = (len(everything) - place).double()
    tp = (len(hits) - torch.searchsorted(hits, steps)).double()
    value = goal.value(tp, pp, torch.full_like(tp, len(hits)))
    best = len(value) - 1 - int(value.flip(0).argmax())
    if float(value[best]) <= float(goal.value(tp.new_zeros(1), tp.new_zeros(1), tp.new_full((1,), len(hits)))):
        return _finite(float(everything[-1]))
    below = int(place[best]) - 1
    return float(_midway(steps[best], everything[below] if below >= 0 else steps.new_tensor(-INF)))


class _Curve(NamedTuple):
    """The objective against the cut: ``total`` once all of the falling ``scores`` so far are taken in, from ``start``."""

    scores: Tensor
    total: Tensor
    start: float
    trials: list[tuple[Tensor, Tensor]]

    def at(self, cuts: Tensor) -> Tensor:
        """What a cut reaches; below the last score it stays at what that reaches."""
        passed = torch.searchsorted(-self.scores, -_round_down(cuts, self.scores.dtype))
        return torch.cat([self.total.new_zeros(1), self.total])[passed] + self.start


def curve_of(data: Problem, goal: Objective, steps: Tensor) -> _Curve:
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
    return _Curve(scores, total, float(goal.value(nothing, nothing, p).mean()), trials)


def _best_on(curve: _Curve, data: Problem) -> float:
    total = curve.total.clone()
    total[:-1].masked_fill_(curve.scores[1:] == curve.scores[:-1], -INF)
    best = int(total.argmax())
    if float(total[best]) <= 0:
        return _finite(float(curve.scores[0]))
    least = curve.scores[best]
    if best + 1 < len(total):
        return float(_midway(least, curve.scores[best + 1]))
    below = [torch.where(block < least, block, -INF).max() for _, block in data.blocks()]
    return float(_midway(least, torch.stack(below).max()))


def _floor(data: Problem, goal: Objective, steps: Tensor) -> tuple[float, list[tuple[Tensor, Tensor]]]:
    """A score that a best cut need not go below, and ``(tp, pp)`` of the groups at the cuts that were tried.

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


def _predicted(data: Problem, groups: str, least: Tensor) -> Tensor:
    """float64 ``[G]``: how many scores are at least ``least``."""
    counts = [sum_over(groups, block >= least) for _, block in data.blocks()]
    return torch.cat(counts) if groups == "rows" else torch.stack(counts).sum(dim=0)


class Candidates(NamedTuple):
    """Possible cuts of all labels, in no order: the label, the cut, and what it predicts there."""

    label: Tensor
    cut: Tensor
    tp: Tensor
    pp: Tensor


def label_cuts(data: Problem, objective: str, *, shrink: float, flood: float) -> tuple[float, ...]:
    """The best cut of each label, drawn to what is best for all; see ``tune_rule``."""
    p, steps, goal = data.per_group("labels"), steps_of(data), OBJECTIVES[objective]
    if len(steps) == 0:
        return (_finite(float(data.scores.max())),) * len(p)
    limit = (flood * (p + 1)).clamp(max=len(data.scores))
    if objective == "macro-F1":
        curve = curve_of(data, goal, steps)
        common = _best_on(curve, data)
        found = candidates(data, common, torch.minimum(limit, _f1_limit(curve, p, limit, shrink)))
        own = p[found.label]
        value = own * goal.value(found.tp, found.pp, own)
        best = best_of_each(found, value + shrink * curve.at(found.cut) if shrink else value, len(p))
    else:
        common = pooled_cut(data, goal, steps)
        recall, load = pooled_rates(data, p.new_tensor([common]))
        price = float(2 * recall / (load + 1)) if objective == "micro-F1" else 1.0
        # Past this many predictions a label pays more than all of its positives and pseudo-positives can bring in; the
        # tenth is for a price estimated on a part of the rows.
        bound = (2 * (p + shrink) + shrink * float(load)) / max(0.9 * price, 1e-300)
        found = candidates(data, common, torch.minimum(limit, bound))
        recall, load = pooled_rates(data, found.cut) if shrink else (torch.zeros_like(found.cut),) * 2
        gain, cost = found.tp + shrink * recall, found.pp + shrink * load
        if objective == "hamming-error":
            best = best_of_each(found, 2 * gain - cost, len(p))
        else:
            best = _best_ratio(found, gain, cost, price, len(p), float(p.sum()) + shrink * len(p))
    cuts = torch.full_like(p, common)
    cuts[found.label[best]] = found.cut[best]
    return tuple(cuts.tolist())


def _f1_limit(curve: _Curve, p: Tensor, limit: Tensor, shrink: float) -> Tensor:
    """Predictions past which no cut of a label is best: more than that, and even all positives found give less than a trial.

    A cut is worth ``P F1 + shrink M``, M the mean over labels, at most ``2 P^2 / (P + predictions) + shrink max M``.
    """
    value = OBJECTIVES["macro-F1"].value
    top = curve.start + float(curve.total.max())
    reached = torch.zeros_like(p)
    for tp, pp in curve.trials:
        each = value(tp, pp, p)
        reached = torch.maximum(reached, torch.where(pp <= limit, p * each + shrink * (each.mean() - top), 0.0))
    return torch.where(reached > 0, 2 * p * p / reached.clamp(min=1e-300) - p, INF) + 1e-6 * p


def _best_ratio(found: Candidates, gain: Tensor, cost: Tensor, ratio: float, num_labels: int, constant: float) -> Tensor:
    """Dinkelbach: the cuts that maximise ``2 sum gain / (sum cost + constant)``; each round is a problem a label."""
    best = torch.zeros(0, dtype=torch.int64, device=gain.device)
    for _ in range(100):
        choice = best_of_each(found, 2 * gain - ratio * cost, num_labels)
        reached = float(2 * gain[choice].sum() / max(float(cost[choice].sum()) + constant, 1e-300))
        if reached <= ratio and len(best):
            break
        ratio, best = reached, choice
    return best


def best_of_each(found: Candidates, value: Tensor, num_labels: int) -> Tensor:
    """The index of each label's best candidate; of equals that with the highest cut."""
    best = value.new_full((num_labels,), -INF).scatter_reduce_(0, found.label, value, "amax")
    tied = (value == best[found.label]).nonzero().flatten()
    label, cut = found.label[tied], found.cut[tied]
    highest = cut.new_full((num_labels,), -INF).scatter_reduce_(0, label, cut, "amax")
    return tied[cut == highest[label]]


def candidates(data: Problem, common: float, limit: Tensor, least: Tensor | None = None) -> Candidates:
    """Every cut of every label that predicts it at most ``limit [L]`` times; labels of like limits are sorted together.

    The cut that predicts a label nowhere is its highest score, but not below ``least [L]``, ``common`` where not given.
    """
    rows, num_labels = data.scores.shape
    limit = limit.clamp(max=rows).floor().long()
    least = torch.full((num_labels,), common, dtype=torch.float64, device=data.scores.device) if least is None else least
    turned, parts = data.labels.transposed(), []
    size = max(1, BLOCK_ELEMENTS // max(rows, 1))
    for start in range(0, num_labels, size):
        scores = data.scores[:, start : start + size].T.contiguous()
        ranked = limit[start : start + size].argsort()
        for chosen in ranked.split(max(1, size // 16)):  # type: ignore[no-untyped-call]
            label = chosen + start
            parts += _cuts_of(scores[chosen], turned[label].dense(), label, limit[label].unsqueeze(1), common, least[label])
    return Candidates(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _cuts_of(scores: Tensor, positive: Tensor, label: Tensor, limit: Tensor, common: float, least: Tensor) -> list[Candidates]:
    """The cuts of some labels, ``scores [l, R]``."""
    rows = scores.shape[1]
    take = min(int(limit.max()) + 1, rows)
    values, order = _falling(scores, take)
    tp = positive.gather(1, order).cumsum(dim=1, dtype=torch.int32)
    pp = torch.arange(1, take + 1, dtype=torch.int32, device=values.device).expand_as(tp)
    below = torch.cat([values[:, 1:], values.new_full((len(label), 1), -INF)], dim=1)
    valid = (values > below) & (pp <= limit)
    if take < rows:
        valid[:, -1] = False
    high, low = values[valid], below[valid]
    cut = torch.where((common < high) & (common >= low), common, _midway(high, low))
    found = Candidates(label.unsqueeze(1).expand_as(tp)[valid], cut, tp[valid].double(), pp[valid].double())
    # Above all of its scores a label is predicted nowhere here.
    top, zero = torch.maximum(values[:, 0].double(), least), torch.zeros(len(label), dtype=torch.float64, device=values.device)
    return [found, Candidates(label, top, zero, zero)]


def pooled_rates(data: Problem, cuts: Tensor) -> tuple[Tensor, Tensor]:
    """``(recall, predictions per positive)`` of all labels together at the cuts.

    A prior need not be exact: of very large data every n-th row tells how much is predicted.
    """
    hits = _ascending(data.hits())
    stride = max(1, data.scores.numel() // BLOCK_ELEMENTS)
    part = data.scores[::stride]
    everything = _ascending(part.flatten())
    share = len(data.scores) / len(part)
    level = _round_down(cuts, hits.dtype)
    positives = max(len(hits), 1)
    recall = (len(hits) - torch.searchsorted(hits, level, right=True)).double() / positives
    load = (len(everything) - torch.searchsorted(everything, level, right=True)).double() * share / positives
    return recall, load


def _round_down(cuts: Tensor, dtype: torch.dtype) -> Tensor:
    """In the type of the scores, not above the float64 given: every comparison ``s > cut`` stays as it is."""
    near = cuts.to(dtype)
    return torch.where(near.double() > cuts, near.nextafter(near.new_tensor(-INF)), near)


def _midway(upper: Tensor, lower: Tensor) -> Tensor:
    """float64: a cut that takes ``upper`` in and ``lower`` not; just below ``upper`` where nothing is below it."""
    high, low = upper.double(), lower.double()
    middle = (high + low) / 2
    just_below = upper.nextafter(torch.full_like(upper, -INF)).double()
    middle = torch.where(low == -INF, just_below, middle)
    return torch.where((middle < high) & middle.isfinite(), middle, torch.where(low == -INF, just_below, low))


def _ascending(values: Tensor) -> Tensor:
    # NumPy sorts several times faster than torch does where the order itself is not asked for.
    return torch.from_numpy(np.sort(values.numpy())) if values.device.type == "cpu" else values.sort().values


def _falling(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` highest of each row in falling order, and where they were."""
    found = values.topk(k, dim=1) if 4 * k < values.shape[1] else values.sort(dim=1, descending=True)
    return found.values[:, :k], found.indices[:, :k]


def _finite(cut: float) -> float:
    return 0.0 if math.isinf(cut) and cut < 0 else cut
