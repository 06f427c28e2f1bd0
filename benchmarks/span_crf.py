"""The baseline of the span benchmark: the same encoder under a linear-chain CRF over B, I and O tags.

Spans inside others go to a second CRF on the same states where ``levels`` is 2. Transitions that no tagging can have are
barred. The forward algorithm and Viterbi walk over the tokens, as in the CRF layers in common use.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from manyhot.decode_spans import Span
from manyhot.labels.spans import SpanLabels
from manyhot.train.span_inputs import SpanBatch

BARRED = -1e4


class Crf(nn.Module):
    """Transitions between tags: 0 is O, 1 + 2a begins type a, 2 + 2a goes on with it."""

    barred: Tensor

    def __init__(self, num_types: int) -> None:
        super().__init__()
        size = 1 + 2 * num_types
        self.between = nn.Parameter(torch.zeros(size, size))
        self.start, self.end = nn.Parameter(torch.zeros(size)), nn.Parameter(torch.zeros(size))
        tags = torch.arange(size)
        goes_on = (tags > 0) & (tags % 2 == 0)
        fits = (tags.unsqueeze(1) == tags) | (tags.unsqueeze(1) + 1 == tags)
        self.register_buffer("barred", torch.where(goes_on & ~(fits & (tags > 0)), BARRED, 0.0))
        self.register_buffer("barred_start", torch.where(goes_on, BARRED, 0.0))

    def loss(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """The mean over rows of ``log sum_y e^{s(y)} - s(tags)``; ``scores [B, T, K]``, ``tags [B, T]``."""
        between, start = self.between + self.barred, self.start + self.barred_start
        there = torch.arange(scores.shape[1], device=scores.device) < lengths.unsqueeze(1)
        emitted = scores.gather(2, tags.unsqueeze(2)).squeeze(2)
        moved = between[tags[:, :-1], tags[:, 1:]]
        last = tags.gather(1, (lengths - 1).unsqueeze(1)).squeeze(1)
        own = (emitted * there).sum(dim=1) + (moved * there[:, 1:]).sum(dim=1) + start[tags[:, 0]] + self.end[last]
        total = start + scores[:, 0]
        for place in range(1, scores.shape[1]):
            step = torch.logsumexp(total.unsqueeze(2) + between, dim=1) + scores[:, place]
            total = torch.where(there[:, place].unsqueeze(1), step, total)
        return (torch.logsumexp(total + self.end, dim=1) - own).mean()

    def best(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """The best tags ``[B, T]``; those after the end of a row mean nothing."""
        between, start = self.between + self.barred, self.start + self.barred_start
        there = torch.arange(scores.shape[1], device=scores.device) < lengths.unsqueeze(1)
        total, steps = start + scores[:, 0], []
        stay = torch.arange(scores.shape[2], device=scores.device)
        for place in range(1, scores.shape[1]):
            value, source = (total.unsqueeze(2) + between).max(dim=1)
            going = there[:, place].unsqueeze(1)
            total = torch.where(going, value + scores[:, place], total)
            steps.append(torch.where(going, source, stay))
        tag = (total + self.end).argmax(dim=1)
        tags = [tag]
        for source in reversed(steps):
            tag = source.gather(1, tag.unsqueeze(1)).squeeze(1)
            tags.append(tag)
        return torch.stack(tags[::-1], dim=1)


class CrfNetwork(nn.Module):
    """An encoder with a layer of tags and a CRF for each level."""

    def __init__(self, encoder: Any, num_types: int, levels: int) -> None:
        super().__init__()
        self.encoder, self.levels = encoder, levels
        self.tag = nn.Linear(encoder.width, levels * (1 + 2 * num_types))
        self.crfs = nn.ModuleList(Crf(num_types) for _ in range(levels))

    def forward(self, batch: SpanBatch) -> Tensor:
        """``[B, T, levels, K]``."""
        hidden = self.encoder(batch.features, batch.letters, batch.lengths)
        with torch.autocast(hidden.device.type, enabled=False):
            return self.tag(hidden.float()).unflatten(2, (self.levels, -1))

    def decode(self, batch: SpanBatch, *, threshold: float, mode: str) -> list[list[Span]]:
        """The spans of each row; a CRF has no score for a span."""
        del threshold, mode
        scores = self(batch).float()[:, : longest(batch)]
        lengths = batch.lengths.to(scores.device).clamp(min=1)
        found: list[set[tuple[int, int, int]]] = [set() for _ in range(len(scores))]
        for level, crf in enumerate(self.crfs):
            for row, tags in enumerate(crf.best(scores[:, :, level], lengths).tolist()):
                found[row] |= spans_of(tags[: int(batch.lengths[row])])
        return [sorted((Span(*span, 0.0) for span in row), key=lambda span: span[1:3]) for row in found]


def crf_objective(network: nn.Module, batch: SpanBatch) -> Tensor:
    """The sum of the levels' losses."""
    scores = network(batch).float()[:, : longest(batch)]
    lengths = batch.lengths.to(scores.device).clamp(min=1)
    with torch.autocast(scores.device.type, enabled=False):
        tags = tags_of(batch.labels, network.levels, scores.shape[1])
        return sum(crf.loss(scores[:, :, level], tags[level], lengths) for level, crf in enumerate(network.crfs))


def longest(batch: SpanBatch) -> int:
    """Tokens of the longest row; the chains need not walk over padding."""
    return max(int(batch.lengths.max()), 1)


def tags_of(labels: SpanLabels, levels: int, num_tokens: int) -> Tensor:
    """Tags ``[levels, B, T]``: the first level has spans that lie inside no other, the second the rest; made on the device
    without waiting for it."""
    rows, types, first, last = labels.rows, labels.types, labels.first, labels.last
    number = torch.arange(len(rows), device=rows.device)
    covers = (rows.unsqueeze(1) == rows) & (first.unsqueeze(1) <= first) & (last.unsqueeze(1) >= last)
    same = (first.unsqueeze(1) == first) & (last.unsqueeze(1) == last)
    inner = (covers & (~same | (number.unsqueeze(1) < number))).any(dim=0)
    places = torch.arange(num_tokens, device=rows.device)
    inside = (places >= first.unsqueeze(1)) & (places <= last.unsqueeze(1))
    value = 2 + 2 * types.unsqueeze(1) - (places == first.unsqueeze(1)).long()
    found = []
    for level in range(levels):
        kept = inside & (inner if level else ~inner).unsqueeze(1)
        flat = torch.zeros(len(labels) * num_tokens + 1, dtype=torch.int64, device=rows.device)
        target = torch.where(kept, rows.unsqueeze(1) * num_tokens + places, len(labels) * num_tokens)
        flat.scatter_(0, target.flatten(), value.flatten())
        found.append(flat[:-1].reshape(len(labels), num_tokens))
    return torch.stack(found)


def spans_of(tags: list[int]) -> set[tuple[int, int, int]]:
    """(type, first, last) of the entities of a row of tags."""
    found, kind, first = set(), -1, 0
    for place, tag in enumerate([*tags, 0]):
        if kind >= 0 and tag != 2 + 2 * kind:
            found.add((kind, first, place - 1))
            kind = -1
        if tag % 2 == 1:
            kind, first = (tag - 1) // 2, place
    return found
