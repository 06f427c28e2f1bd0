"""Alignment of marked spans with tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from manyhot.data.spans.examples import Offsets, SpanExamples, TextSpan

REASONS = {
    "blank": "begins or ends with a space",
    "start": "begins inside a token",
    "end": "ends inside a token",
    "both": "begins and ends inside a token",
    "outside": "begins or ends where there is no token",
    "pieces": "is in several pieces",
}


class TokenSpan(NamedTuple):
    """A type from token ``first`` to token ``last``, both inclusive."""

    type: str
    first: int
    last: int


class Unaligned(NamedTuple):
    """A span that does not align with tokens, and why."""

    row: int
    type: str
    text: str
    reason: str


class Alignment(NamedTuple):
    """The spans of each row in tokens, and those that cannot be aligned."""

    spans: list[list[TokenSpan]]
    unaligned: list[Unaligned]

    def report(self) -> str:
        """A sentence with the number of unaligned spans and the reasons.

        Example:
            >>> align_examples(SpanExamples(["50km"], [[TextSpan("unit", 2, 4)]]), [[(0, 4)]]).report()
            '1 of 1 spans do not align with tokens (1 begins inside a token) and count as missed'
        """
        total = len(self.unaligned) + sum(map(len, self.spans))
        if not self.unaligned:
            return f"all {total:,} spans align with tokens"
        counts = Counter(each.reason for each in self.unaligned)
        why = ", ".join(f"{count:,} {REASONS[reason]}" for reason, count in counts.most_common())
        return f"{len(self.unaligned):,} of {total:,} spans do not align with tokens ({why}) and count as missed"


def align_spans(spans: Sequence[TextSpan], offsets: Offsets, text: str) -> tuple[list[TokenSpan], list[tuple[TextSpan, str]]]:
    """``(aligned spans, unaligned spans with the reason)`` of one text.

    A span is aligned if it starts where a token starts and ends where one ends. Nothing is moved to the nearest token.

    Args:
        spans: in characters.
        offsets: the first character of each token and the one after its last.
        text: the text.

    Example:
        >>> align_spans([TextSpan("PER", 0, 3), TextSpan("PER", 1, 3)], [(0, 3), (4, 7)], "Ada met")
        ([TokenSpan(type='PER', first=0, last=0)], [(TextSpan(type='PER', start=1, end=3), 'start')])
    """
    begins = {start: place for place, (start, _) in enumerate(offsets)}
    ends = {end: place for place, (_, end) in enumerate(offsets)}
    found, lost = [], []
    for span in spans:
        first, last = begins.get(span.start), ends.get(span.end)
        if first is not None and last is not None and first <= last:
            found.append(TokenSpan(span.type, first, last))
        else:
            lost.append((span, _reason(span, first, last, offsets, text)))
    return found, lost


def align_examples(examples: SpanExamples, offsets: Sequence[Offsets]) -> Alignment:
    """The spans of every row in tokens; ``offsets`` are the tokens of each row.

    Example:
        >>> examples = SpanExamples(["Ada met"], [[TextSpan("PER", 0, 3), TextSpan("PER", 0, 2)]])
        >>> alignment = align_examples(examples, [[(0, 3), (4, 7)]])
        >>> alignment.spans
        [[TokenSpan(type='PER', first=0, last=0)]]
        >>> alignment.unaligned
        [Unaligned(row=0, type='PER', text='Ad', reason='end')]
    """
    aligned, unaligned = [], []
    for row, (text, spans, own) in enumerate(zip(examples.texts, examples.spans, offsets, strict=True)):
        found, lost = align_spans(spans, own, text)
        aligned.append(found)
        unaligned += [Unaligned(row, span.type, text[span.start : span.end], reason) for span, reason in lost]
        for span in examples.fragmented[row]:
            said = " ".join(text[start:end] for start, end in span.pieces)
            unaligned.append(Unaligned(row, span.type, said, "pieces"))
    return Alignment(aligned, unaligned)


def _reason(span: TextSpan, first: int | None, last: int | None, offsets: Offsets, text: str) -> str:
    if text[span.start].isspace() or text[span.end - 1].isspace():
        return "blank"
    inside_start = first is None and _inside_a_token(span.start, offsets)
    inside_end = last is None and _inside_a_token(span.end, offsets)
    if inside_start or inside_end:
        return "both" if inside_start and inside_end else "start" if inside_start else "end"
    return "outside"


def _inside_a_token(place: int, offsets: Offsets) -> bool:
    """Whether a token begins before a character and ends after it; tokens are in order."""
    before = bisect_left(offsets, (place, 0))
    return before > 0 and offsets[before - 1][1] > place
