"""Metrics of predicted spans over a whole corpus: exact F1 by type, F1 of boundaries, of outer and of inner spans.

Spans are tuples that begin with (type, start, end), of tokens or of characters, the same for predicted and true spans. Types
may be numbers or names. Counts are summed over the corpus; nothing is averaged over batches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from manyhot._checks import check_choice

AVERAGES = ("micro", "macro", "none")
MATCHES = ("exact", "boundary")
LEVELS = ("all", "outer", "inner")

Spans = Sequence[Sequence[Any]]
Key = tuple[Hashable, int, int]


class SpanCounts(NamedTuple):
    """The numbers of spans found, predicted and true; ratios of 0 / 0 are 0."""

    hits: int = 0
    predicted: int = 0
    gold: int = 0

    @property
    def precision(self) -> float:
        """The share of predicted spans that are true."""
        return self.hits / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of true spans that are predicted."""
        return self.hits / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """``2 hits / (predicted + gold)``."""
        return 2 * self.hits / (self.predicted + self.gold) if self.predicted + self.gold else 0.0

    def plus(self, other: SpanCounts) -> SpanCounts:
        """Both together."""
        return SpanCounts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class SpanTableRow(NamedTuple):
    """One type's line of the table."""

    type: Hashable
    precision: float
    recall: float
    f1: float
    hits: int
    predicted: int
    gold: int


class SpanMetrics:
    """Running span counts: call ``update`` with batches, then read the metrics.

    ``match="exact"`` requires the right type and both ends, ``"boundary"`` only the ends (spans of several types on the same
    tokens count once). ``level="outer"`` counts predicted and true spans that lie inside no other span of their row,
    ``"inner"`` the others.

    Example:
        >>> metrics = SpanMetrics()
        >>> metrics.update([[("PER", 0, 1), ("LOC", 4, 4)]], [[("PER", 0, 1), ("ORG", 4, 4)]])
        >>> metrics.f1(), metrics.f1(match="boundary"), metrics.f1(average="macro")
        (0.5, 1.0, 0.3333333333333333)
        >>> metrics.table()[-1]
        SpanTableRow(type='PER', precision=1.0, recall=1.0, f1=1.0, hits=1, predicted=1, gold=1)
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Hashable], SpanCounts] = {}
        self._boundaries: dict[str, SpanCounts] = {}

    def update(
        self, predicted: Iterable[Spans], gold: Iterable[Spans], *, unaligned: Iterable[Sequence[Hashable]] | None = None
    ) -> None:
        """Add rows.

        Args:
            predicted: the predicted spans of each row; duplicates count once.
            gold: the true spans of each row.
            unaligned: for each row the types of true spans that do not align with tokens. No prediction can match them, so
                they count as missed outer spans.
        """
        guesses, truths = list(predicted), list(gold)
        missed = [()] * len(truths) if unaligned is None else list(unaligned)
        if not len(guesses) == len(truths) == len(missed):
            raise ValueError(
                "SpanMetrics.update: `predicted`, `gold` and `unaligned` must have one list for each row;"
                f" got {len(guesses)}, {len(truths)} and {len(missed)}."
            )
        for guess, truth, lost in zip(guesses, truths, missed, strict=True):
            self._add_row(_keys(guess), _keys(truth), lost)

    def merge(self, other: SpanMetrics) -> None:
        """Add the counts of another accumulator, for example of another process."""
        for place, counts in other._counts.items():
            self._counts[place] = self._counts.get(place, SpanCounts()).plus(counts)
        for level, counts in other._boundaries.items():
            self._boundaries[level] = self._boundaries.get(level, SpanCounts()).plus(counts)

    def counts(self, *, match: str = "exact", level: str = "all") -> SpanCounts:
        """All types together."""
        check_choice("SpanMetrics", "match", match, MATCHES)
        if match == "boundary":
            check_choice("SpanMetrics", "level", level, LEVELS)
            return self._boundaries.get(level, SpanCounts())
        total = SpanCounts()
        for counts in self.by_type(level=level).values():
            total = total.plus(counts)
        return total

    def by_type(self, *, level: str = "all") -> dict[Hashable, SpanCounts]:
        """The counts of every type that was true or predicted."""
        check_choice("SpanMetrics", "level", level, LEVELS)
        kinds = sorted((kind for own, kind in self._counts if own == level), key=lambda kind: (str(type(kind)), kind))
        return {kind: self._counts[level, kind] for kind in kinds}

    def f1(self, *, average: str = "micro", match: str = "exact", level: str = "all") -> float:
        """Micro F1 pools all spans; macro F1 is the mean over the types that were true or predicted."""
        check_choice("SpanMetrics", "average", average, AVERAGES[:2])
        if average == "micro":
            return self.counts(match=match, level=level).f1
        if match != "exact":
            raise ValueError("SpanMetrics: `average` 'macro' is over types, which match='boundary' ignores. Use 'micro'.")
        values = [counts.f1 for counts in self.by_type(level=level).values()]
        return sum(values) / len(values) if values else 0.0

    def table(self, *, level: str = "all") -> list[SpanTableRow]:
        """One line for each type."""
        return [
            SpanTableRow(kind, counts.precision, counts.recall, counts.f1, *counts)
            for kind, counts in self.by_type(level=level).items()
        ]

    def _add_row(self, guess: set[Key], truth: set[Key], lost: Sequence[Hashable]) -> None:
        outer_guess, outer_truth = _outer(guess), _outer(truth)
        levels = {
            "all": (guess, truth, lost),
            "outer": (outer_guess, outer_truth, lost),
            "inner": (guess - outer_guess, truth - outer_truth, ()),
        }
        for level, (guesses, truths, missed) in levels.items():
            for spans, change in (
                (guesses & truths, SpanCounts(hits=1)),
                (guesses, SpanCounts(predicted=1)),
                (truths, SpanCounts(gold=1)),
                ([(kind,) for kind in missed], SpanCounts(gold=1)),
            ):
                for span in spans:
                    place = (level, span[0])
                    self._counts[place] = self._counts.get(place, SpanCounts()).plus(change)
            ends, true_ends = ({span[1:] for span in spans} for spans in (guesses, truths))
            counts = SpanCounts(len(ends & true_ends), len(ends), len(true_ends) + len(missed))
            self._boundaries[level] = self._boundaries.get(level, SpanCounts()).plus(counts)


def span_f1_score(
    predicted: Iterable[Spans],
    gold: Iterable[Spans],
    *,
    average: str = "micro",
    match: str = "exact",
    level: str = "all",
    unaligned: Iterable[Sequence[Hashable]] | None = None,
) -> float | dict[Hashable, float]:
    """F1 of predicted spans over a corpus; see ``SpanMetrics`` for a running form and for the settings.

    Args:
        predicted: the spans of each row, tuples that begin with (type, start, end).
        gold: the true spans of each row.
        average: ``"micro"``, ``"macro"``, or ``"none"`` for one value per type.
        match: ``"exact"``, or ``"boundary"`` with the micro average.
        level: ``"all"``, ``"outer"`` or ``"inner"``.
        unaligned: for each row the types of true spans that do not align with tokens; they count as missed.

    Example:
        >>> span_f1_score([[(0, 2, 3)], []], [[(0, 2, 3)], [(1, 0, 0)]])
        0.6666666666666666
        >>> span_f1_score([[(0, 2, 3)], []], [[(0, 2, 3)], []], unaligned=[[], [1]])
        0.6666666666666666
    """
    check_choice("span_f1_score", "average", average, AVERAGES)
    check_choice("span_f1_score", "match", match, MATCHES if average == "micro" else MATCHES[:1])
    metrics = SpanMetrics()
    metrics.update(predicted, gold, unaligned=unaligned)
    if average == "none":
        return {kind: counts.f1 for kind, counts in metrics.by_type(level=level).items()}
    return metrics.f1(average=average, match=match, level=level)


def _keys(spans: Spans) -> set[Key]:
    """The distinct (type, start, end) of the spans."""
    return {(span[0], span[1], span[2]) for span in spans}


def _outer(spans: set[Key]) -> set[Key]:
    """The spans that lie inside no other; spans on the same tokens do not lie inside each other."""
    outer, edge = set(), (-1, -1)
    reach = -1
    for span in sorted(spans, key=lambda span: (span[1], -span[2])):
        ends = (span[1], span[2])
        if span[2] > reach or ends == edge:
            outer.add(span)
            edge, reach = ends, max(reach, span[2])
    return outer
