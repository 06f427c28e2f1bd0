"""Span scores to spans, read by tiles: which cells are spans, and which of those may stand together."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_broadcast, check_choice, shape_text
from manyhot.scores.spans import SpanScores

INF = float("inf")
MODES = ("nested", "flat", "all")

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
    # Half the hyperbolic tangent's form: no exponential that could overflow.
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

    A cell is a candidate where ``s > threshold``. ``mode`` says which candidates may stand together: ``"all"`` any,
    ``"nested"`` those that do not cross (one inside the other, or on the same tokens with another type, is fine), ``"flat"``
    those that share no token. Conflicts go to the higher score (``s - threshold`` where each type has its own).

    Args:
        scores: what a span head returns.
        threshold: a number, or one for each type ``[H]``.
        mode: ``"nested"``, ``"flat"`` or ``"all"``. A head without a triangle gives links, which have no order: ``"all"``.
        exact: for ``"flat"``: the set with the largest sum of ``s - threshold`` (weighted interval scheduling) instead of the
            greedy one.
        top_k: at most so many spans a row, the best that may stand together; None for no limit.
        max_spans: at most so many candidates a row are looked at, the best; where there are more a warning says so. An
            untrained model takes half of all cells for spans.

    Returns:
        For each row a list of ``Span``, in reading order.

    Example:
        >>> q = torch.tensor([[[[1.0], [2.0], [-1.0]]]])
        >>> k = torch.tensor([[[[-1.0], [1.0], [0.5]]]])
        >>> decode_spans(SpanScores(q, k), mode="flat")
        [[Span(type=0, start=1, end=1, score=2.0)]]
    """
    _check_settings("decode_spans", mode, exact, top_k)
    check_at_least("decode_spans", "max_spans", max_spans, 1)
    if mode != "all" and not scores.triangle:
        raise ValueError(f"decode_spans: `mode` {mode!r} is for spans that run forwards; links need mode='all'.")
    limits = _limits("decode_spans", threshold, scores)
    direct = mode == "all" and top_k is not None and top_k <= max_spans
    cells, counts = _candidates(scores, limits, top_k if direct and top_k is not None else max_spans)
    crowded = counts > max_spans
    if crowded.any() and not direct:
        warnings.warn(
            f"decode_spans: {int(crowded.sum())} of {len(counts)} rows have more than {max_spans} candidates above the"
            f" threshold, the fullest {int(counts.max())}; the best {max_spans} of each are kept. An untrained model does this;"
            " otherwise raise `threshold` or `max_spans`.",
            stacklevel=2,
        )
    edges = np.searchsorted(cells.rows, np.arange(len(counts) + 1))
    return [_row(cells, slice(start, stop), mode, exact, top_k) for start, stop in pairwise(edges.tolist())]


class _Cells(NamedTuple):
    """Candidates, each ``[K]``: by row, in a row the best first, of equals the first in reading order."""

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
    """The best candidates of each row, at most ``cap``, and how many there were."""
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
    chosen = _choose([span[1:3] for span in spans], [span[4] for span in spans], mode, exact, top_k)
    return sorted((Span(*spans[place][:4]) for place in chosen), key=_reading_order)


def _reading_order(span: Span) -> tuple[int, int, int]:
    return span.start, span.end, span.type


def _choose(ends: Sequence[tuple[int, int]], margins: Sequence[float], mode: str, exact: bool, top_k: int | None) -> list[int]:
    """Which of the spans ``(first, last)``, best first, may stand together."""
    if mode == "all":
        return list(range(len(ends)))[:top_k]
    if exact:
        return _schedule(ends, margins, top_k)
    size = max((last for _, last in ends), default=-1) + 2
    # For each token: how far a chosen span that starts there reaches, and how early one that ends there starts.
    reach, origin = [-1] * size, [size] * size
    taken = bytearray(size)
    chosen: list[int] = []
    for place, (first, last) in enumerate(ends):
        if top_k is not None and len(chosen) == top_k:
            break
        if mode == "flat":
            free = not any(taken[first : last + 1])
        else:
            crossed = first < last and (max(reach[first + 1 : last + 1]) > last or min(origin[first:last]) < first)
            free = not crossed
        if free:
            chosen.append(place)
            reach[first], origin[last] = max(reach[first], last), min(origin[last], first)
            if mode == "flat":
                taken[first : last + 1] = b"\x01" * (last + 1 - first)
    return chosen


def _schedule(ends: Sequence[tuple[int, int]], margins: Sequence[float], top_k: int | None) -> list[int]:
    """Weighted interval scheduling: the set without overlap, of at most ``top_k``, whose margins have the largest sum."""
    count = len(ends)
    order = sorted(range(count), key=lambda place: ends[place][1])
    lasts = np.array([ends[place][1] for place in order])
    before = np.searchsorted(lasts, [ends[place][0] for place in order]) if count else np.zeros(0, dtype=np.int64)
    room = count if top_k is None else min(top_k, count)
    # best[c] for at most c spans among those seen; without a limit on their number one column is enough.
    width = 1 if top_k is None else room + 1
    best = np.zeros((count + 1, width))
    taken = np.zeros((count + 1, width), dtype=bool)
    for step, place in enumerate(order):
        earlier = best[before[step]] if top_k is None else np.concatenate([[-INF], best[before[step], :-1]])
        taken[step + 1] = margins[place] + earlier > best[step]
        best[step + 1] = np.maximum(best[step], margins[place] + earlier)
    chosen, step, column = [], count, width - 1
    while step:
        if taken[step, column]:
            chosen.append(order[step - 1])
            step, column = int(before[step - 1]), column if top_k is None else column - 1
        else:
            step -= 1
    return chosen


def character_spans(spans: Sequence[Span], offsets: Sequence[tuple[int, int]]) -> list[CharacterSpan]:
    """Token spans as character spans, end exclusive.

    Args:
        spans: what ``decode_spans`` gives for one row.
        offsets: for each token of the row its first character and the one after its last.

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


def token_windows(num_tokens: int, *, size: int, overlap: int) -> list[tuple[int, int]]:
    """Windows ``(start, stop)`` of at most ``size`` tokens that cover a text, neighbours sharing at least ``overlap``.

    Every span of at most ``overlap + 1`` tokens lies whole in some window.

    Example:
        >>> token_windows(10, size=6, overlap=3)
        [(0, 6), (3, 9), (4, 10)]
    """
    check_at_least("token_windows", "num_tokens", num_tokens, 0)
    check_at_least("token_windows", "overlap", overlap, 0)
    if size <= overlap:
        raise ValueError(f"token_windows: `size` must be more than `overlap`, {overlap}; got {size}.")
    starts = [*range(0, max(num_tokens - size, 0), size - overlap), max(num_tokens - size, 0)]
    return [(start, min(start + size, num_tokens)) for start in starts]


def merge_windows(
    windows: Sequence[Sequence[Span]],
    starts: Sequence[int],
    *,
    mode: str = "nested",
    exact: bool = False,
    top_k: int | None = None,
    threshold: float = 0.0,
) -> list[Span]:
    """The spans of one long text from those of its overlapping windows: a span seen twice keeps its better score, and
    conflicts between windows go by score, as in ``decode_spans``.

    Args:
        windows: the spans of each window, in the window's own token numbers.
        starts: the first token of each window.
        mode: see ``decode_spans``.
        exact: see ``decode_spans``.
        top_k: see ``decode_spans``.
        threshold: what the spans were decoded with; ``exact`` adds up scores above it.

    Example:
        >>> merge_windows([[Span(0, 3, 5, 1.0)], [Span(0, 0, 2, 2.0), Span(1, 4, 4, 0.5)]], [0, 3], mode="flat")
        [Span(type=0, start=3, end=5, score=2.0), Span(type=1, start=7, end=7, score=0.5)]
    """
    _check_settings("merge_windows", mode, exact, top_k)
    if len(windows) != len(starts):
        raise ValueError(f"merge_windows: `starts` must have one number for each of {len(windows)} windows; got {len(starts)}.")
    best: dict[tuple[int, int, int], float] = {}
    for spans, shift in zip(windows, starts, strict=True):
        for span in spans:
            key = (span.type, span.start + shift, span.end + shift)
            best[key] = max(best.get(key, -INF), span.score)
    merged = [Span(*key, score) for key, score in best.items()]
    merged.sort(key=lambda span: (-span.score, *_reading_order(span)))
    base = threshold if threshold > -INF else 0.0
    margins = [span.score - base for span in merged]
    chosen = _choose([(span.start, span.end) for span in merged], margins, mode, exact, top_k)
    return sorted((merged[place] for place in chosen), key=_reading_order)


def _check_settings(who: str, mode: str, exact: bool, top_k: int | None) -> None:
    check_choice(who, "mode", mode, MODES)
    if exact and mode != "flat":
        raise ValueError(f"{who}: `exact` chooses among spans that may not overlap: mode='flat'; got mode={mode!r}.")
    if top_k is not None:
        check_at_least(who, "top_k", top_k, 1)


def _limits(who: str, threshold: float | Tensor, scores: SpanScores) -> Tensor:
    """One threshold for each type, ``[H]``."""
    num_types = scores.shape[1]
    if isinstance(threshold, Tensor):
        check_broadcast(who, "threshold", threshold, (num_types,), "a number or one value per type")
    elif isinstance(threshold, bool) or not isinstance(threshold, (int, float)):
        raise TypeError(f"{who}: `threshold` must be a number or a tensor {shape_text((num_types,))}; got {threshold!r}.")
    kind = torch.float64 if scores.q.dtype == torch.float64 else torch.float32
    return torch.as_tensor(threshold, dtype=kind, device=scores.device).detach().expand(num_types)
