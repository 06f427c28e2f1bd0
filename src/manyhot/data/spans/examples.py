"""Texts with marked spans, in characters."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from manyhot.data.examples import Source

Offsets = list[tuple[int, int]]


class TextSpan(NamedTuple):
    """A type from character ``start`` to before character ``end``: ``text[start:end]`` is the span."""

    type: str
    start: int
    end: int


class Fragmented(NamedTuple):
    """A discontinuous span, which no prediction can match."""

    type: str
    pieces: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class SpanExamples:
    """Texts and the spans that are marked in them.

    Args:
        texts: one string per row.
        spans: the spans of each row, in reading order, each once.
        tokens: the characters ``(start, end)`` of the tokens of each row if the file is tokenised, otherwise None.
        ids: one string per row, or None.
        fragmented: the discontinuous spans of each row; they count as missed in an evaluation.
        source: the files.
        values: soft labels in [0, 1] for the spans of each row; None if all are 1. All other spans are 0.

    Example:
        >>> examples = SpanExamples(["Ada met Bob"], [[TextSpan("PER", 0, 3), TextSpan("PER", 8, 11)]])
        >>> examples, examples.type_names, examples.surfaces(0)
        (SpanExamples(1 texts, 2 spans), ('PER',), ['Ada', 'Bob'])
    """

    texts: list[str]
    spans: list[list[TextSpan]]
    tokens: list[Offsets] | None = None
    ids: list[str] | None = None
    fragmented: list[list[Fragmented]] = field(default_factory=list)
    source: tuple[Source, ...] = ()
    values: list[list[float]] | None = None

    def __post_init__(self) -> None:
        if not self.fragmented:
            object.__setattr__(self, "fragmented", [[] for _ in self.texts])
        for name in ("spans", "tokens", "ids", "fragmented", "values"):
            part = getattr(self, name)
            if part is not None and len(part) != len(self.texts):
                raise ValueError(f"SpanExamples: `{name}` must have one entry per text, {len(self.texts)}; got {len(part)}.")
        for row, (own, marked) in enumerate(zip(self.values or (), self.spans, strict=False)):
            if len(own) != len(marked) or not all(0 <= value <= 1 for value in own):
                raise ValueError(f"SpanExamples: `values` must have a number in [0, 1] for each span; row {row} has others.")

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"SpanExamples({len(self):,} texts, {self.num_spans:,} spans)"

    @property
    def type_names(self) -> tuple[str, ...]:
        """The types that occur, sorted, including those of discontinuous spans."""
        marked = {span.type for row in self.spans for span in row}
        return tuple(sorted(marked | {span.type for row in self.fragmented for span in row}))

    @property
    def num_spans(self) -> int:
        """The number of spans, including discontinuous ones."""
        return sum(map(len, self.spans)) + sum(map(len, self.fragmented))

    @property
    def soft(self) -> bool:
        """Whether some spans have a soft label."""
        return self.values is not None

    def hardened(self) -> SpanExamples:
        """The same texts with hard labels, for metrics: a soft label above one half is a span.

        Example:
            >>> marked = [TextSpan("PER", 0, 3), TextSpan("PER", 0, 12)]
            >>> SpanExamples(["Ada Lovelace"], [marked], values=[[0.25, 0.75]]).hardened().spans
            [[TextSpan(type='PER', start=0, end=12)]]
        """
        if self.values is None:
            return self
        kept = [
            [span for span, value in zip(row, own, strict=True) if value > 0.5]
            for row, own in zip(self.spans, self.values, strict=True)
        ]
        return replace(self, spans=kept, values=None)

    def surfaces(self, row: int) -> list[str]:
        """The texts of the spans of a row."""
        return [self.texts[row][span.start : span.end] for span in self.spans[row]]

    def num_nested(self) -> int:
        """The number of spans inside another span of their row, or on the same characters."""
        return sum(_inner(row) for row in self.spans)

    def num_crossing(self) -> int:
        """The number of spans that overlap another one without one lying inside the other."""
        return sum(_crossing(row) for row in self.spans)

    def __getitem__(self, rows: slice | Sequence[int]) -> SpanExamples:
        """Some rows."""
        picked = range(len(self))[rows] if isinstance(rows, slice) else rows
        return SpanExamples(
            [self.texts[row] for row in picked],
            [self.spans[row] for row in picked],
            None if self.tokens is None else [self.tokens[row] for row in picked],
            None if self.ids is None else [self.ids[row] for row in picked],
            [self.fragmented[row] for row in picked],
            self.source,
            None if self.values is None else [self.values[row] for row in picked],
        )

    def fingerprint(self) -> str:
        """A digest of texts, spans, soft labels and tokens."""
        digest = hashlib.blake2b(digest_size=16)
        for row, text in enumerate(self.texts):
            tokens = None if self.tokens is None else self.tokens[row]
            soft = () if self.values is None else (self.values[row],)
            digest.update(json.dumps([text, self.spans[row], self.fragmented[row], tokens, *soft]).encode() + b"\0")
        return digest.hexdigest()


def concatenate_span_examples(parts: Sequence[SpanExamples]) -> SpanExamples:
    """Concatenate the rows of several files. Tokens and ids are kept if every part has them."""
    if len(parts) == 1:
        return parts[0]
    return SpanExamples(
        [text for part in parts for text in part.texts],
        [row for part in parts for row in part.spans],
        [row for part in parts for row in part.tokens or ()] if all(part.tokens is not None for part in parts) else None,
        [row for part in parts for row in part.ids or ()] if all(part.ids is not None for part in parts) else None,
        [row for part in parts for row in part.fragmented],
        tuple(source for part in parts for source in part.source),
        [row for part in parts for row in _values(part)] if any(part.soft for part in parts) else None,
    )


def _values(part: SpanExamples) -> list[list[float]]:
    return [[1.0] * len(row) for row in part.spans] if part.values is None else part.values


def in_reading_order(spans: Sequence[TextSpan]) -> list[TextSpan]:
    """Each span once, by start, the longer first."""
    return sorted(set(spans), key=lambda span: (span.start, -span.end, span.type))


def _inner(row: Sequence[TextSpan]) -> int:
    inner, reach = 0, -1
    for span in in_reading_order(row):
        inner += span.end <= reach
        reach = max(reach, span.end)
    return inner


def _crossing(row: Sequence[TextSpan]) -> int:
    """Spans that begin inside an earlier one and end after it."""
    crossing = 0
    # Ends of the spans that began before this start, lowest first; those that end before it are dropped.
    ends: list[int] = []
    waiting: list[TextSpan] = []
    for span in in_reading_order(row):
        if waiting and waiting[0].start < span.start:
            for each in waiting:
                insort(ends, each.end)
            waiting = []
        del ends[: bisect_right(ends, span.start)]
        crossing += bool(ends) and ends[0] < span.end
        waiting.append(span)
    return crossing


def as_span_examples(who: str, texts: SpanExamples | Sequence[str]) -> SpanExamples:
    """Texts as examples without spans; examples as they are.

    Example:
        >>> len(as_span_examples("predict", ["a text", "another"]))
        2
    """
    if isinstance(texts, str):
        raise TypeError(f"{who}: `texts` must be a list of strings; got one string.")
    return texts if isinstance(texts, SpanExamples) else SpanExamples(list(texts), [[] for _ in texts])
