"""Labels above the threshold and the best labels of each row, for dense and lazy scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from manyhot.decisions.set_values import SetValues
from manyhot.engines.linear.plain import CHUNK_ELEMENTS
from manyhot.engines.terms import accumulation_dtype
from manyhot.scores.best import FEW, best_in_groups
from manyhot.scores.linear import LinearScores
from manyhot.scores.shards import LabelShard, gather_equal, gather_ragged

INF = float("inf")
# Entries of a block of dense scores on a GPU with a limit on the number of labels, if rows are sorted whole.
SORTED_BLOCK = 1 << 26


class Case(NamedTuple):
    """A checked call: flattened rows, their threshold, and the limits on the number of labels."""

    scores: Tensor | LinearScores
    shape: torch.Size
    threshold: Tensor
    per_label: bool
    where: Tensor | None
    lower: int
    upper: int | None
    sets: SetValues | None = None
    # The threshold as a Python number, rounded to the type of the scores, if all rows and labels share one. torch compares with
    # a number several times faster than with a tensor of another type.
    number: float | None = None

    @property
    def rows(self) -> int:
        """R."""
        return self.shape[:-1].numel()

    @property
    def labels(self) -> int:
        """L."""
        return self.shape[-1]


def row_blocks(case: Case, scores: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """``(start, stop, chosen [stop - start, L])`` of dense scores."""
    limited, elements = case.upper is not None or case.lower > 0, CHUNK_ELEMENTS
    if case.sets is None and not limited:
        elements = scores.numel()
    elif case.sets is None and scores.is_cuda:
        elements = SORTED_BLOCK if case.labels < FEW * (case.upper or case.lower) else scores.numel()
    size = max(1, elements // max(case.labels, 1))
    for start in range(0, case.rows, size):
        part, rows = scores[start : start + size], slice(start, start + size)
        where = None if case.where is None else case.where[rows]
        cut = case.threshold[rows] if case.threshold.shape[0] > 1 else case.threshold
        chosen = _limited(case, part, cut, where) if limited else _above(case, part, cut, where)
        if case.sets is not None:
            margin = (part - cut).nan_to_num(nan=-INF, posinf=INF, neginf=-INF)
            margin = margin if where is None else margin.masked_fill(~where, -INF)
            chosen = case.sets.chosen(margin, chosen, lower=case.lower, upper=case.upper)
        yield start, start + len(part), chosen


def dense_predictions(case: Case, scores: Tensor) -> Tensor:
    """bool ``[R, L]``: the predictions of dense scores; a single block is returned without a copy."""
    chosen = torch.empty((0, case.labels), dtype=torch.bool, device=scores.device)
    for start, stop, part in row_blocks(case, scores):
        if stop - start == case.rows:
            return part
        if not start:
            chosen = torch.empty((case.rows, case.labels), dtype=torch.bool, device=scores.device)
        chosen[start:stop] = part
    return chosen


def _above(case: Case, scores: Tensor, cut: Tensor, where: Tensor | None) -> Tensor:
    above = scores > (cut if case.number is None else case.number)
    return above if where is None else above & where


def _limited(case: Case, scores: Tensor, cut: Tensor, where: Tensor | None) -> Tensor:
    """bool ``[r, L]``: the predictions if the rule has a minimum or maximum number of labels per row."""
    most = min(case.lower if case.upper is None else case.upper, case.labels)
    shift = -cut.reshape(-1) if case.per_label else None
    grouped, best = cut.dtype == torch.float32 and most > 0, None
    if grouped:
        flags = None if case.upper is None else torch.empty(scores.shape, dtype=torch.bool, device=scores.device)
        best = best_in_groups(scores, shift, where, most, nan_first=False, flags=flags)
    if best is not None:
        values, places = best
        rank = torch.arange(most, device=scores.device)
        taken = rank < case.lower
        if case.upper != case.lower:
            limits = cut.expand(len(scores), -1).gather(1, places) if case.per_label else cut
            taken = taken | (scores.gather(1, places) > limits)
        taken = taken & (values > -INF)
        # A place is listed once, so that every entry has one writer.
        if flags is not None:
            return flags.scatter_(1, places, taken)
        chosen = _above(case, scores, cut, where)
        return chosen.scatter_(1, places, taken | chosen.gather(1, places))
    key = _key(case, scores, cut, where)
    if case.upper == case.lower:
        return top_mask(key, case.lower)
    chosen = _above(case, scores, cut, where)
    if case.upper is not None:
        chosen &= top_mask(key, case.upper)
    return chosen | top_mask(key, case.lower) if case.lower else chosen


def label_chunks(case: Case, scores: LinearScores) -> Iterator[tuple[int, int, Tensor | None, Tensor]]:
    """``(first, last, key, above)`` of lazy scores, in chunks of labels; with label shards, those of this process."""
    hidden = scores.hidden.reshape(case.rows, scores.hidden.shape[-1])
    size = scores.chunk_size or max(1, CHUNK_ELEMENTS // max(case.rows, 1))
    offset, num_labels = scores.first_label, scores.weight.shape[0]
    for start in range(0, num_labels, size):
        stop = min(start + size, num_labels)
        first, last = start + offset, stop + offset
        bias = None if scores.bias is None else scores.bias[start:stop].to(scores.weight.dtype)
        part = torch.nn.functional.linear(hidden, scores.weight[start:stop], bias)
        where = None if case.where is None else case.where[:, first:last]
        cut = case.threshold[:, first:last] if case.per_label else case.threshold
        above = part > cut if where is None else (part > cut) & where
        limits = case.upper is not None or case.lower > 0
        yield first, last, _key(case, part, cut, where) if limits else None, above


def _key(case: Case, scores: Tensor, cut: Tensor, where: Tensor | None) -> Tensor:
    """The key by which labels are ranked, ``-inf`` for labels that are never predicted."""
    key = scores - cut if case.per_label else scores.to(cut.dtype)
    barred = key.isnan()
    return key.masked_fill(barred if where is None else barred | ~where, -INF)


def _first_best(key: Tensor, k: int) -> Tensor:
    """bool ``[..., L]`` with exactly k True per row, k from 1 to L: the best labels; ties go to the lower position."""
    least = key.topk(k, dim=-1).values.amin(dim=-1, keepdim=True)
    better, equal = key > least, key == least
    free = k - better.sum(dim=-1, keepdim=True)
    return better | (equal & (equal.cumsum(dim=-1, dtype=torch.int32) <= free))


def top_mask(key: Tensor, k: int) -> Tensor:
    """bool ``[..., L]``: the k best of each row of a tensor without NaN; ties go to the lower position; ``-inf`` is never
    chosen."""
    k = min(k, key.shape[-1])
    return _first_best(key, k) & (key > -INF) if k else torch.zeros_like(key, dtype=torch.bool)


class RunningBest:
    """The best labels of each row of lazy scores, in falling order, merged chunk by chunk."""

    def __init__(self, case: Case) -> None:
        self.k = case.lower if case.upper is None else case.upper
        self.lower = case.lower
        self.key = case.threshold.new_empty((case.rows, 0))
        self.labels = self.key.long()
        self.above = self.key.bool()

    def merge(self, first: int, key: Tensor | None, above: Tensor) -> None:
        """Merge a chunk of labels that starts at ``first``."""
        if key is None:
            return
        short = min(self.k, key.shape[1])
        place = _first_best(key, short).nonzero()[:, 1].reshape(key.shape[0], short)
        # Earlier labels have lower numbers and come first, so a stable sort keeps ties in order.
        merged, order = torch.cat([self.key, key.gather(1, place)], dim=1).sort(dim=1, descending=True, stable=True)
        self.key, order = merged[:, : self.k], order[:, : self.k]
        self.labels = torch.cat([self.labels, place + first], dim=1).gather(1, order)
        self.above = torch.cat([self.above, above.gather(1, place)], dim=1).gather(1, order)

    def join(self, shard: LabelShard | None) -> None:
        """Merge the best labels of the other processes."""
        if shard is None or not self.k:
            return
        missing = (0, self.k - self.key.shape[1])
        parts = (pad(self.key, missing, value=-INF), pad(self.labels, missing), pad(self.above, missing))
        key, labels, above = (gather_equal(part, shard.group).movedim(0, 1).flatten(1) for part in parts)
        order = labels.argsort(dim=1, stable=True)
        self.key, best = key.gather(1, order).sort(dim=1, descending=True, stable=True)
        self.key, order = self.key[:, : self.k], order.gather(1, best)[:, : self.k]
        self.labels, self.above = labels.gather(1, order), above.gather(1, order)

    def entries(self) -> tuple[Tensor, Tensor]:
        """``(rows, columns)`` of the predicted labels."""
        rank = torch.arange(self.key.shape[1], device=self.key.device)
        kept = (self.key > -INF) & (self.above | (rank < self.lower))
        return kept.nonzero()[:, 0], self.labels[kept]


def dense_entries(case: Case, scores: Tensor) -> tuple[Tensor, Tensor]:
    """``(rows, columns)`` of the predicted labels, in order."""
    found = [(chosen.nonzero(), start) for start, _, chosen in row_blocks(case, scores)]
    nothing = torch.zeros(0, dtype=torch.int64, device=scores.device)
    rows = [nothing, *(entries[:, 0] + start for entries, start in found)]
    return torch.cat(rows), torch.cat([nothing, *(entries[:, 1] for entries, _ in found)])


def lazy_entries(case: Case, scores: LinearScores) -> tuple[Tensor, Tensor]:
    """The same for lazy scores, chunk by chunk, then sorted; a label added by ``min_labels`` may occur twice."""
    best, keys = RunningBest(case), []
    for first, _, key, above in label_chunks(case, scores):
        if case.upper is None:
            rows, columns = above.nonzero(as_tuple=True)
            keys.append(rows * case.labels + columns + first)
        best.merge(first, key, above)
    if scores.shard is not None:
        nothing = torch.zeros(0, dtype=torch.int64, device=scores.device)
        keys = gather_ragged(torch.cat([nothing, *keys]), scores.shard.group)
    best.join(scores.shard)
    rows, columns = best.entries()
    entries = torch.cat([*keys, rows * case.labels + columns]).unique()  # type: ignore[no-untyped-call]
    return entries // max(case.labels, 1), entries % max(case.labels, 1)


@torch.no_grad()
def row_log_sums(logits: Tensor | LinearScores, where: Tensor | None) -> Tensor:
    """``[...]``: the logarithm of the sum of ``e^s`` over the labels of each row that count."""
    if isinstance(logits, LinearScores):
        return logits.log_sums(None if where is None else where.reshape(logits.shape))
    counted = logits if where is None else logits.masked_fill(~where.reshape(logits.shape), -INF)
    return counted.to(accumulation_dtype(logits.dtype)).logsumexp(dim=-1)
