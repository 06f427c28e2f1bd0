"""Explanations of the spans of a text: for each span the tokens that count for and against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from manyhot.explain.contributions import is_reliable
from manyhot.explain.explanation import GRADIENT, Contribution


@dataclass(frozen=True)
class SpanExplanation:
    """Why a span has its score: ``score = base + contributions + rest + error``.

    Args:
        type: the type of the span.
        start: its first character.
        end: the character after its last.
        text: its text.
        score: the logit of its cell.
        predicted: whether the model predicts it.
        threshold: the threshold of the score.
        probability: by the model's link.
        base: the score of the cell in a text of unknown tokens (a pretrained encoder: of padding).
        contributions: the tokens with the largest contributions, by absolute value.
        rest: the sum of the contributions that are not listed.
        error: the unexplained part of the score.
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

    @property
    def reliable(self) -> bool:
        """Whether the contributions explain the score; see ``is_reliable``."""
        return is_reliable(self.score, self.base, self.error)

    def to_json(self) -> dict[str, Any]:
        """For JSON."""
        plain = ("type", "start", "end", "text", "score", "predicted", "threshold", "probability", "base", "rest", "error")
        found = {name: getattr(self, name) for name in (*plain, "reliable")}
        found["contributions"] = [each.to_json() for each in self.contributions]
        return {**found, "words": [list(word) for word in self.words]}


@dataclass(frozen=True)
class TextExplanation:
    """The explanation of one text.

    Args:
        row: the number of the text.
        text: the text.
        spans: the predicted spans and the next best, highest score first.
        method: always integrated gradients.
    """

    row: int
    text: str
    spans: tuple[SpanExplanation, ...]
    method: str = GRADIENT

    def to_json(self) -> dict[str, Any]:
        """For JSON."""
        return {"row": self.row, "text": self.text, "method": self.method, "spans": [span.to_json() for span in self.spans]}
