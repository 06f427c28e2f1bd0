"""Explanations: for each label of a row, the inputs that raise or lower its score."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyhot.explain.contributions import is_reliable

EXACT, GRADIENT = "exact", "integrated gradients"


@dataclass(frozen=True)
class Contribution:
    """The contribution of one input to a score.

    Args:
        feature: the name of the input: a word, an n-gram, a column, a token, a pixel.
        value: the value of the input, as the model reads it.
        part: its contribution; a negative one lowers the score.
        spans: where it occurs in the text, as ``(start, end)`` in characters.
    """

    feature: str
    value: float
    part: float
    spans: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {"feature": self.feature, "value": self.value, "part": self.part}
        return {**found, "spans": [list(span) for span in self.spans]} if self.spans else found


@dataclass(frozen=True)
class LabelExplanation:
    """Why a label has its score: ``score = base + contributions + rest + error``.

    Args:
        label: its name.
        score: the logit.
        predicted: whether the rule predicts it.
        threshold: the label's threshold; None if the rule predicts the k best.
        probability: by the model's link or calibration; None if scores only rank.
        base: the score of a neutral input.
        contributions: the largest contributions, by absolute value.
        rest: the sum of the contributions that are not listed.
        error: the unexplained part of the score; only rounding if the method is exact.
        words: for texts, ``(start, end, part)`` of every word: the contributions of features, divided among their words.
    """

    label: str
    score: float
    predicted: bool
    threshold: float | None
    probability: float | None
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
        """For JSON; an infinite threshold becomes None."""
        finite = self.threshold is not None and abs(self.threshold) != float("inf")
        return {
            "label": self.label,
            "score": self.score,
            "predicted": self.predicted,
            "threshold": self.threshold if finite else None,
            "probability": self.probability,
            "base": self.base,
            "contributions": [each.to_json() for each in self.contributions],
            "rest": self.rest,
            "error": self.error,
            "reliable": self.reliable,
            "words": [list(word) for word in self.words],
        }


@dataclass(frozen=True)
class Explanation:
    """The explanation of one row.

    Args:
        row: its row number.
        text: the text of the row, if it is one.
        method: ``"exact"`` or ``"integrated gradients"``.
        labels: the explained labels, highest score first.
    """

    row: int
    text: str | None
    method: str
    labels: tuple[LabelExplanation, ...]

    def to_json(self) -> dict[str, Any]:
        """For JSON."""
        labels = [label.to_json() for label in self.labels]
        return {"row": self.row, "text": self.text, "method": self.method, "labels": labels}


@dataclass(frozen=True)
class LabelWords:
    """The features with the largest positive and negative weights for a label.

    Args:
        label: its name.
        speak_for: ``(feature, weight)``, the largest weight first.
        speak_against: ``(feature, weight)``, the lowest weight first.
    """

    label: str
    speak_for: tuple[tuple[str, float], ...]
    speak_against: tuple[tuple[str, float], ...]

    def to_json(self) -> dict[str, Any]:
        """For JSON."""
        return {"label": self.label, "for": list(self.speak_for), "against": list(self.speak_against)}


def largest(parts: Tensor, most: int) -> list[int]:
    """The indices of the ``most`` largest absolute values in ``parts [K]``, largest first, without zeros."""
    size = parts.abs()
    order = size.argsort(descending=True, stable=True)[:most]
    return [place for place in order.tolist() if size[place] > 0]


class WordShares:
    """Divides the contributions of features among words.

    The contribution of a feature is divided evenly among its occurrences, and that of an occurrence among the words it covers.

    Args:
        words: ``(start, end)`` of each word, in order and without overlap.
        places: ``(feature, start, end)`` of each occurrence; ``feature`` is an index into the K features of the text.

    Example:
        >>> shares = WordShares([(0, 3), (4, 8)], [(0, 0, 3), (1, 0, 8)])
        >>> shares(torch.tensor([1.0, 4.0]).double())
        ((0, 3, 3.0), (4, 8, 2.0))
    """

    def __init__(self, words: Sequence[tuple[int, int]], places: Sequence[tuple[int, int, int]]) -> None:
        self.words = list(words)
        starts, ends = [start for start, _ in words], [end for _, end in words]
        covers = [(bisect_right(ends, start), bisect_left(starts, end)) for _, start, end in places]
        times: Counter[int] = Counter()
        for (feature, _, _), (first, last) in zip(places, covers, strict=True):
            times[feature] += first < last
        self.features: list[int] = []
        self.covered: list[int] = []
        self.shares: list[float] = []
        for (feature, _, _), (first, last) in zip(places, covers, strict=True):
            for word in range(first, last):
                self.features.append(feature)
                self.covered.append(word)
                self.shares.append(1 / (times[feature] * (last - first)))

    def __call__(self, parts: Tensor) -> tuple[tuple[int, int, float], ...]:
        """``(start, end, part)`` of every word, from the contributions ``[K]`` of the features."""
        given = parts[torch.tensor(self.features, dtype=torch.int64)] * torch.tensor(self.shares, dtype=parts.dtype)
        total = parts.new_zeros(len(self.words)).index_add(0, torch.tensor(self.covered, dtype=torch.int64), given)
        return tuple((start, end, part) for (start, end), part in zip(self.words, total.tolist(), strict=True))
