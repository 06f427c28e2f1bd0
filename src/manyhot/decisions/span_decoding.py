"""Decoding of span scores, in tiles: which cells are spans, and which of them are kept if they overlap."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_broadcast, shape_text
from manyhot.decisions.span_choice import check_mode, compatible_spans
from manyhot.engines.terms import INF
from manyhot.scores.spans import SpanScores

Numbers = np.ndarray[Any, np.dtype[Any]]


class Span(NamedTuple):
    """A type from token ``start`` to token ``end``, both inclusive, with its score."""

    type: int
    start: int
    end: int
    score: float

    @property
    def probability(self) -> float:
        """``sigma(score)``, the link of losses on hard labels."""
        return _sigmoid(self.score)


class CharacterSpan(NamedTuple):
    """A type from character ``start`` to before character ``end``, so that ``text[start:end]`` is the span."""

    type: int
    start: int
    end: int
    score: float

    @property
    def probability(self) -> float:
        """``sigma(score)``, the link of losses on hard labels."""
        return _sigmoid(self.score)


def _sigmoid(score: float) -> float:
    # The hyperbolic tangent does not overflow.
    return 0.5 * (1 + math.tanh(0.5 * score))


def decode_spans(
    scores: SpanScores,
    *,
    threshold: float | Tensor = 0.0,
    mode: str = "nested",
    exact: bool = False,
    top_k: int | None = None,
    max_spans: int = 1000,
) -> list[list[Span]]:
    """The spans of each row, without the ``[B, H, T, T]`` tensor.

    A cell is a candidate if ``s > threshold``. ``mode`` says which candidates may overlap: ``"all"`` allows any overlap,
    ``"nested"`` no crossing (spans inside each other, or on the same tokens with another type, are allowed), ``"flat"`` no
    shared token. Of conflicting spans the one with the higher score is kept (``s - threshold`` with a threshold per type).

    Args:
        scores: the scores of a span head.
        threshold: a number, or one for each type ``[H]``.
        mode: ``"nested"``, ``"flat"`` or ``"all"``. A head without a triangle gives links, which have no order: ``"all"``.
        exact: for ``"flat"``: the set with the largest sum of ``s - threshold`` (weighted interval scheduling) instead of the
            greedy one.
        top_k: at most this many compatible spans per row, the best ones; None for no limit.
        max_spans: at most this many candidates per row, the best ones; a warning is issued if there are more. With an
            untrained model half of all cells are candidates.

    Returns:
        A list of ``Span`` for each row, in reading order.

    Example:
        >>> q = torch.tensor([[[[1.0], [2.0], [-1.0]]]])
        >>> k = torch.tensor([[[[-1.0], [1.0], [0.5]]]])
        >>> decode_spans(SpanScores(q, k), mode="flat")
        [[Span(type=0, start=1, end=1, score=2.0)]]
    """
    check_mode("decode_spans", mode, exact, top_k)
    check_at_least("decode_spans", "max_spans", max_spans, 1)
    if mode != "all" and not scores.triangle:
        raise ValueError(f"decode_spans: `mode` {mode!r} is for spans; links between any two tokens need mode='all'.")
    limits = _limits("decode_spans", threshold, scores)
    direct = mode == "all" and top_k is not None and top_k <= max_spans
    cells, counts = _candidates(scores, limits, top_k if direct and top_k is not None else max_spans)
    crowded = counts > max_spans
    if crowded.any() and not direct:
        warnings.warn(
            f"decode_spans: {int(crowded.sum())} of {len(counts)} rows have more than {max_spans} candidates above the"
            f" threshold, up to {int(counts.max())}; the best {max_spans} of each are kept. This is normal for an"
            " untrained model; otherwise raise `threshold` or `max_spans`.",
            stacklevel=2,
        )
    edges = np.searchsorted(cells.rows, np.arange(len(counts) + 1))
    return [_row(cells, slice(start, stop), mode, exact, top_k) for start, stop in pairwise(edges.tolist())]


class _Cells(NamedTuple):
    """Candidates, each ``[K]``: sorted by row, then by score, ties in reading order."""

    rows: Numbers
    types: Numbers
    first: Numbers
    last: Numbers
    scores: Numbers
    margins: Numbers

    def best(self, cap: int) -> _Cells:
        """The best ``cap`` of each row, in order."""
        order = np.lexsort((self.types, self.last, self.first, -self.margins, self.rows))
        rows = self.rows[order]
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        return _Cells(*(part[order][rank < cap] for part in self))


def _candidates(scores: SpanScores, limits: Tensor, cap: int) -> tuple[_Cells, Numbers]:
    """The best candidates of each row, at most ``cap``, and the number of all candidates."""
    base = torch.where(limits == -INF, 0.0, limits)
    counts = torch.zeros(scores.shape[0], dtype=torch.int64, device=scores.device)
    held = _Cells(*(np.zeros(0, dtype=kind) for kind in (np.int64,) * 4 + (np.float64,) * 2))
    for tile in scores.tiles():
        if tile.scores.numel() == 0:
            continue
        above = tile.scores > limits[tile.types, None, None]
        found = above.flatten(1).sum(dim=1)
        counts[tile.batch] += found
        if int(found.max()) > cap:
            margins = torch.where(above, tile.scores - base[tile.types, None, None], -INF).flatten(1)
            best = margins.topk(min(cap, margins.shape[1]), dim=1)
            places = torch.zeros_like(margins, dtype=torch.bool).scatter_(1, best.indices, best.values > -INF)
            above = places.reshape(above.shape)
        at = above.nonzero()
        if at.shape[0] == 0:
            continue
        values = tile.scores[above].double()
        starts = at.new_tensor([tile.batch.start, tile.types.start, tile.first, tile.last])
        cells = at + starts
        margins = values - base[cells[:, 1]].double()
        new = (*cells.T.cpu().numpy(), values.cpu().numpy(), margins.cpu().numpy())
        held = _Cells(*(np.concatenate(parts) for parts in zip(held, new, strict=True)))
        if len(held.rows) > 4 * cap * len(counts):
            held = held.best(cap)
    return held.best(cap), counts.cpu().numpy()


def _row(cells: _Cells, part: slice, mode: str, exact: bool, top_k: int | None) -> list[Span]:
    spans = list(zip(*(column[part].tolist() for column in cells[1:]), strict=True))
    chosen = compatible_spans([span[1:3] for span in spans], [span[4] for span in spans], mode, exact, top_k)
    return sorted((Span(*spans[place][:4]) for place in chosen), key=reading_order)


def reading_order(span: Span) -> tuple[int, int, int]:
    """The sort key for reading order: start, then end, then type."""
    return span.start, span.end, span.type


def character_spans(spans: Sequence[Span], offsets: Sequence[tuple[int, int]]) -> list[CharacterSpan]:
    """Token spans as character spans, end exclusive.

    Args:
        spans: the spans of one row, from ``decode_spans``.
        offsets: the first character of each token and the one after its last.

    Example:
        >>> text = "Ada Lovelace wrote"
        >>> found = character_spans([Span(0, 0, 1, 3.5)], [(0, 3), (4, 12), (13, 18)])
        >>> found, text[found[0].start : found[0].end]
        ([CharacterSpan(type=0, start=0, end=12, score=3.5)], 'Ada Lovelace')
    """
    latest = max((span.end for span in spans), default=-1)
    if latest >= len(offsets):
        raise ValueError(
            f"character_spans: `offsets` must have one pair for each token; got {len(offsets)} for a span up to token {latest}."
        )
    return [CharacterSpan(span.type, offsets[span.start][0], offsets[span.end][1], span.score) for span in spans]


def _limits(who: str, threshold: float | Tensor, scores: SpanScores) -> Tensor:
    """One threshold for each type, ``[H]``."""
    num_types = scores.shape[1]
    if isinstance(threshold, Tensor):
        check_broadcast(who, "threshold", threshold, (num_types,), "a number or one value per type")
    elif isinstance(threshold, bool) or not isinstance(threshold, (int, float)):
        raise TypeError(f"{who}: `threshold` must be a number or a tensor {shape_text((num_types,))}; got {threshold!r}.")
    kind = torch.float64 if scores.q.dtype == torch.float64 else torch.float32
    return torch.as_tensor(threshold, dtype=kind, device=scores.device).detach().expand(num_types)
