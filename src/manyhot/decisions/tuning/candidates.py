"""Candidates for the cuts of labels, and the best of each label."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.decisions.cuts import SLACK, clearance, falling, just_above, margins_of, midway
from manyhot.decisions.tuning import rows as row_blocks
from manyhot.decisions.tuning.rows import ScoredRows
from manyhot.engines.triton.columns import ColumnBest, column_best, segment_choice
from manyhot.labels.sparse import SparseLabels

INF = math.inf


class Candidates(NamedTuple):
    """Possible cuts of all labels: label, cut, true positives, predictions, and ``clearance`` of the gap.

    They are unordered, or each label has a segment from ``offsets`` on, which starts with its cut without predictions; this cut
    may be repeated.
    """

    label: Tensor
    cut: Tensor
    tp: Tensor
    pp: Tensor
    clear: Tensor
    offsets: Tensor | None = None


def best_of_each(found: Candidates, value: Tensor, num_labels: int) -> Tensor:
    """The index of each label's best candidate, as ``best_gap`` chooses; ties go to the highest cut."""
    if found.offsets is not None:
        chosen = segment_choice(value, found.clear, found.cut, found.offsets, SLACK)
        if chosen is not None:
            return chosen
        repeated = (found.pp == 0) & (torch.arange(len(value), device=value.device) > found.offsets[found.label])
        value = value.masked_fill(repeated, -INF)
    best = _highest(found.label, value, num_labels)[found.label]
    kept = (value == best).nonzero().flatten()
    if bool((found.clear[kept] < 1).any()):
        near = (value >= best - SLACK * best.abs()).nonzero().flatten()
        label, clear = found.label[near], found.clear[near]
        near = near[clear == _highest(label, clear, num_labels)[label]]
        label = found.label[near]
        kept = near[value[near] == _highest(label, value[near], num_labels)[label]]
    label, cut = found.label[kept], found.cut[kept]
    return kept[cut == _highest(label, cut, num_labels)[label]]


def _highest(label: Tensor, value: Tensor, num_labels: int) -> Tensor:
    """``[L]``: the highest value of each label."""
    return value.new_full((num_labels,), -INF).scatter_reduce_(0, label, value, "amax")


def candidates(data: ScoredRows, common: float, limit: Tensor, least: Tensor | None = None) -> Candidates:
    """Every cut of every label with at most ``limit [L]`` predictions; labels with similar limits are sorted together.

    The cut without predictions is just above the label's highest score, but not below ``least [L]`` (default: ``common``).
    """
    rows, num_labels = data.scores.shape
    limit = limit.clamp(max=rows).floor().long()
    least = torch.full((num_labels,), common, dtype=torch.float64, device=data.scores.device) if least is None else least
    highest = column_best(data.scores, (limit + 1).clamp(max=rows))
    if highest is not None:
        return _segmented(data, highest, common, limit, least)
    turned, parts = data.labels.transposed(), []
    size = max(1, row_blocks.block_elements(data.scores) // max(rows, 1))
    for start in range(0, num_labels, size):
        scores = data.scores[:, start : start + size].T.contiguous()
        for chosen in _similar_limits(limit[start : start + size]):
            label = chosen + start
            parts += _cuts_of(scores[chosen], turned[label], label, limit[label].unsqueeze(1), common, least[label])
    return Candidates(*(torch.cat(part) for part in zip(*(part[:5] for part in parts), strict=True)))


def _segmented(data: ScoredRows, highest: ColumnBest, common: float, limit: Tensor, least: Tensor) -> Candidates:
    """The candidates among the highest scores of each label, which are listed in falling order."""
    high, _, label, offsets = highest
    low = torch.cat([high[1:], high.new_full((1,), -INF)])
    low[offsets[1:] - 1] = -INF
    start = offsets[label]
    pp = torch.arange(len(high), device=high.device) - start
    seen = data.labels.contains(highest.rows, label).cumsum(0)
    valid = (pp > 0) & (pp <= limit[label]) & (high > low)
    margins = margins_of(high, low)
    fits = (common < high - margins[0]) & (common > low + margins[1])
    top = torch.maximum(just_above(high[offsets[:-1] + 1]), least)
    cut = torch.where(valid, torch.where(fits, common, midway(high, low, margins)), top[label])
    tp, pp = (torch.where(valid, counts, 0).double() for counts in (seen - seen[start], pp))
    return Candidates(label, cut, tp, pp, torch.where(valid, clearance(high, low, margins), 1.0), offsets)


def _similar_limits(limit: Tensor) -> tuple[Tensor, ...]:
    """Indices of ``limit [l]`` in groups of similar limits, one for each power of two."""
    ranked = limit.argsort()
    powers = torch.searchsorted(limit[ranked], 1 << torch.arange(1, 40, device=limit.device)).tolist()
    ends = sorted({*powers, len(limit)} - {0})
    sizes = [stop - begin for begin, stop in zip([0, *ends], ends, strict=False)]
    return ranked.split(sizes)  # type: ignore[no-untyped-call, no-any-return]


def _cuts_of(
    scores: Tensor, positives: SparseLabels, label: Tensor, limit: Tensor, common: float, least: Tensor
) -> list[Candidates]:
    """The cuts of some labels, from their ``scores [l, R]`` and ``positives [l, R]``."""
    rows = scores.shape[1]
    take = min(int(limit.max()) + 1, rows)
    values, order = falling(scores, take)
    tp = _at(positives, order).cumsum(dim=1, dtype=torch.int32)
    pp = torch.arange(1, take + 1, dtype=torch.int32, device=values.device).expand_as(tp)
    below = torch.cat([values[:, 1:], values.new_full((len(label), 1), -INF)], dim=1)
    valid = (values > below) & (pp <= limit)
    if take < rows:
        valid[:, -1] = False
    place = valid.nonzero(as_tuple=True)
    high, low = values[place], below[place]
    margins = margins_of(high, low)
    fits = (common < high - margins[0]) & (common > low + margins[1])
    cut = torch.where(fits, common, midway(high, low, margins))
    found = Candidates(label[place[0]], cut, tp[place].double(), pp[place].double(), clearance(high, low, margins))
    # A cut above all scores predicts the label in no row.
    top, zero = torch.maximum(just_above(values[:, 0]), least), torch.zeros_like(least)
    return [found, Candidates(label, top, zero, zero, torch.ones_like(zero))]


def _at(positives: SparseLabels, order: Tensor) -> Tensor:
    """bool ``[l, k]``: which of the rows ``order [l, k]`` are positives of each label. On a GPU entries are looked up: a
    dense table would be written and read for only a few entries per label."""
    if not order.is_cuda:
        return positives.dense().gather(1, order)
    return positives.contains(torch.arange(len(order), device=order.device).unsqueeze(1), order)
