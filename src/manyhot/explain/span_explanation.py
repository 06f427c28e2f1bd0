"""The explanation of a text's spans: each span with the tokens that count for and against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from manyhot.explain.explanation import GRADIENT, Contribution


@dataclass(frozen=True)
class SpanExplanation:
    """Why a span has its score: ``score = base + contributions + rest + error``.

    Args:
        type: of the span.
        start: its first character.
        end: the character after its last.
        text: what it says.
        score: the logit of its cell.
        predicted: whether the model finds it.
        threshold: what a score must be above.
        probability: by the model's link.
        base: the score of the cell in a text of tokens that say nothing.
        contributions: the tokens with the largest parts, by size.
        rest: the sum of the parts that are not listed.
        error: what the parts do not explain.
        words: ``(start, end, part)`` of every token of the window.
    """

    type: str
    start: int
    end: int
    text: str
    score: float
    predicted: bool
    threshold: float
    probability: float
    base: float
    contributions: tuple[Contribution, ...]
    rest: float
    error: float
    words: tuple[tuple[int, int, float], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For JSON."""
        plain = ("type", "start", "end", "text", "score", "predicted", "threshold", "probability", "base", "rest", "error")
        found = {name: getattr(self, name) for name in plain}
        found["contributions"] = [each.to_json() for each in self.contributions]
        return {**found, "words": [list(word) for word in self.words]}


@dataclass(frozen=True)
class TextExplanation:
    """The explanation of one text.

    Args:
        row: its place among the texts given.
        text: the text.
        spans: what is found, and the best others up to the number asked for, the best first.
        method: always gradient x input.
    """

    row: int
    text: str
    spans: tuple[SpanExplanation, ...]
    method: str = GRADIENT

    def to_json(self) -> dict[str, Any]:
        """For JSON."""
        return {"row": self.row, "text": self.text, "method": self.method, "spans": [span.to_json() for span in self.spans]}
