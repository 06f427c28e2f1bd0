"""Long texts in overlapping windows: how to split them, and how to merge the spans of the windows."""

from __future__ import annotations

from collections.abc import Sequence

from manyhot._checks import check_at_least
from manyhot.decisions.span_choice import check_mode, compatible_spans
from manyhot.decisions.span_decoding import Span, reading_order
from manyhot.engines.terms import INF


def token_windows(num_tokens: int, *, size: int, overlap: int) -> list[tuple[int, int]]:
    """Windows ``(start, stop)`` of at most ``size`` tokens that cover a text; neighbours share at least ``overlap`` tokens.

    Every span of at most ``overlap + 1`` tokens lies entirely in some window.

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
    """Merge the spans of the overlapping windows of a long text.

    A span found in several windows keeps its best score. Conflicts are resolved by score, as in ``decode_spans``.

    Args:
        windows: the spans of each window, in token numbers of the window.
        starts: the first token of each window.
        mode: see ``decode_spans``.
        exact: see ``decode_spans``.
        top_k: see ``decode_spans``.
        threshold: the threshold of decoding; ``exact`` sums scores above it.

    Example:
        >>> merge_windows([[Span(0, 3, 5, 1.0)], [Span(0, 0, 2, 2.0), Span(1, 4, 4, 0.5)]], [0, 3], mode="flat")
        [Span(type=0, start=3, end=5, score=2.0), Span(type=1, start=7, end=7, score=0.5)]
    """
    check_mode("merge_windows", mode, exact, top_k)
    if len(windows) != len(starts):
        raise ValueError(f"merge_windows: `starts` must have one number for each of {len(windows)} windows; got {len(starts)}.")
    best: dict[tuple[int, int, int], float] = {}
    for spans, shift in zip(windows, starts, strict=True):
        for span in spans:
            key = (span.type, span.start + shift, span.end + shift)
            best[key] = max(best.get(key, -INF), span.score)
    merged = [Span(*key, score) for key, score in best.items()]
    merged.sort(key=lambda span: (-span.score, *reading_order(span)))
    base = threshold if threshold > -INF else 0.0
    margins = [span.score - base for span in merged]
    chosen = compatible_spans([(span.start, span.end) for span in merged], margins, mode, exact, top_k)
    return sorted((merged[place] for place in chosen), key=reading_order)
