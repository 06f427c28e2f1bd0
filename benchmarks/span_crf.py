"""The baseline of the span benchmark: the same encoder under a linear-chain CRF over B, I and O tags.

Spans inside others go to a second CRF on the same states where ``levels`` is 2. Transitions that no tagging can have are
barred. The chains of all levels are walked together, and the gradient is the forward-backward algorithm's own, which spares
the graph that CRF layers in common use keep.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from manyhot.decisions.span_decoding import Span
from manyhot.labels.spans import SpanLabels
from manyhot.training.spans.rows import SpanBatch

BARRED = -1e4


class LogPartition(torch.autograd.Function):
    """``log sum_y e^{s(y)}``, ``[B, C]``, of C chains; both walks of the forward-backward algorithm at once, without a graph.

    ``scores [B, T, C, K]``, ``between [C, K, K]``, ``start`` and ``end [C, K]``, ``lengths [B]`` from 1 on.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, between: Tensor, start: Tensor, end: Tensor, lengths: Tensor) -> Tensor:
        size, steps = scores.shape[1], torch.stack([between, between.mT]).unsqueeze(1)
        there = torch.arange(size, device=scores.device) < lengths.unsqueeze(1)
        own = scores.transpose(0, 1)
        # Side 0 goes on from the first token, and what comes after a row's end is not looked at; side 1 comes back from the
        # last token, and starts anew where a row ends.
        gained, fresh = torch.stack([own, own.flip(0)], dim=1), (own + end).flip(0)
        ends_here = ~torch.cat([there[:, 1:], torch.zeros_like(there[:, :1])], dim=1).T.flip(0)
        anew = torch.stack([torch.zeros_like(ends_here), ends_here], dim=1)[..., None, None]
        fresh = torch.stack([fresh, fresh], dim=1)
        state = torch.stack([start + own[0], fresh[0, 1]])
        states = [state]
        for place in range(1, size):
            moved = torch.logsumexp(state.unsqueeze(-1) + steps, dim=-2) + gained[place]
            state = torch.where(anew[place], fresh[place], moved)
            states.append(state)
        ahead, back = torch.stack(states).unbind(dim=1)
        last = ahead[lengths - 1, torch.arange(len(lengths), device=scores.device)]
        total = torch.logsumexp(last + end, dim=-1)
        ctx.save_for_backward(scores, between, ahead.transpose(0, 1), back.flip(0).transpose(0, 1), total, there, lengths)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scores, between, ahead, back, total, there, lengths = ctx.saved_tensors
        whole, pull = total[:, None, :, None], grads[0][:, None, :, None]
        share = torch.where(there[..., None, None], ((ahead - whole) + (back - scores)).exp() * pull, 0.0)
        pairs = (ahead[:, :-1] - whole).unsqueeze(-1) + between + back[:, 1:].unsqueeze(-2)
        pairs = torch.where(there[:, 1:, None, None, None], pairs.exp() * pull.unsqueeze(-1), 0.0).sum(dim=(0, 1))
        last = share[torch.arange(len(lengths), device=scores.device), lengths - 1]
        return share, pairs, share[:, 0].sum(dim=0), last.sum(dim=0), None


class Crfs(nn.Module):
    """C chains with transitions of their own between tags: 0 is O, 1 + 2a begins type a, 2 + 2a goes on with it."""

    barred: Tensor
    barred_start: Tensor

    def __init__(self, num_types: int, chains: int) -> None:
        super().__init__()
        size = 1 + 2 * num_types
        self.between = nn.Parameter(torch.zeros(chains, size, size))
        self.start, self.end = nn.Parameter(torch.zeros(chains, size)), nn.Parameter(torch.zeros(chains, size))
        tags = torch.arange(size)
        goes_on = (tags > 0) & (tags % 2 == 0)
        fits = (tags.unsqueeze(1) == tags) | (tags.unsqueeze(1) + 1 == tags)
        self.register_buffer("barred", torch.where(goes_on & ~(fits & (tags > 0)), BARRED, 0.0))
        self.register_buffer("barred_start", torch.where(goes_on, BARRED, 0.0))

    def loss(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """The mean over rows and sum over chains of ``log sum_y e^{s(y)} - s(tags)``; ``scores [B, T, C, K]``, ``tags [C, B,
        T]``."""
        between, start = self.between + self.barred, self.start + self.barred_start
        there = torch.arange(scores.shape[1], device=scores.device) < lengths.unsqueeze(1)
        chain = torch.arange(len(tags), device=scores.device)[:, None]
        emitted = scores.permute(2, 0, 1, 3).gather(3, tags.unsqueeze(3)).squeeze(3)
        moved = between[chain.unsqueeze(2), tags[..., :-1], tags[..., 1:]]
        last = tags.gather(2, (lengths - 1).expand(len(tags), -1).unsqueeze(2)).squeeze(2)
        own = (emitted * there).sum(dim=2) + (moved * there[:, 1:]).sum(dim=2)
        own = own + start[chain, tags[..., 0]] + self.end[chain, last]
        total: Tensor = LogPartition.apply(scores, between, start, self.end, lengths)
        return (total.sum(dim=1) - own.sum(dim=0)).mean()

    def best(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """The best tags ``[C, B, T]``; those after the end of a row mean nothing."""
        between, start = self.between + self.barred, self.start + self.barred_start
        there = torch.arange(scores.shape[1], device=scores.device) < lengths.unsqueeze(1)
        total, steps = start + scores[:, 0], []
        stay = torch.arange(scores.shape[3], device=scores.device)
        for place in range(1, scores.shape[1]):
            value, source = (total.unsqueeze(3) + between).max(dim=2)
            going = there[:, place, None, None]
            total = torch.where(going, value + scores[:, place], total)
            steps.append(torch.where(going, source, stay))
        tag = (total + self.end).argmax(dim=2)
        tags = [tag]
        for source in reversed(steps):
            tag = source.gather(2, tag.unsqueeze(2)).squeeze(2)
            tags.append(tag)
        return torch.stack(tags[::-1], dim=2).transpose(0, 1)


class CrfNetwork(nn.Module):
    """An encoder with a layer of tags and a CRF for each level."""

    def __init__(self, encoder: Any, num_types: int, levels: int) -> None:
        super().__init__()
        self.encoder, self.levels = encoder, levels
        self.tag = nn.Linear(encoder.width, levels * (1 + 2 * num_types))
        self.crfs = Crfs(num_types, levels)

    def forward(self, batch: SpanBatch) -> Tensor:
        """``[B, T, levels, K]``."""
        hidden = self.encoder(batch)
        with torch.autocast(hidden.device.type, enabled=False):
            return self.tag(hidden.float()).unflatten(2, (self.levels, -1))

    def decode(self, batch: SpanBatch, *, threshold: float, mode: str) -> list[list[Span]]:
        """The spans of each row; a CRF has no score for a span."""
        del threshold, mode
        scores = self(batch).float()[:, : longest(batch)]
        found: list[set[tuple[int, int, int]]] = [set() for _ in range(len(scores))]
        for level in self.crfs.best(scores, batch.lengths.clamp(min=1)).tolist():
            for row, tags in enumerate(level):
                found[row] |= spans_of(tags[: batch.sizes[row]])
        return [sorted((Span(*span, 0.0) for span in row), key=lambda span: span[1:3]) for row in found]


def crf_objective(network: nn.Module, batch: SpanBatch) -> Tensor:
    """The sum of the levels' losses."""
    scores = network(batch).float()[:, : longest(batch)]
    with torch.autocast(scores.device.type, enabled=False):
        tags = tags_of(batch.labels, network.levels, scores.shape[1])
        return network.crfs.loss(scores, tags, batch.lengths.clamp(min=1))


def longest(batch: SpanBatch) -> int:
    """Tokens of the longest row; the chains need not walk over padding."""
    return max(int(batch.sizes.max()), 1)


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
