"""Errors of predicted spans: wrong boundaries, wrong type, missed, or spurious.

A missed true span is paired with a wrong prediction that overlaps it: first one with the right type or the right ends, then the
one with the largest overlap. Each span belongs to at most one pair. Spans without a pair are missed or spurious.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

Key = tuple[Any, int, int]
Spans = Sequence[Sequence[Any]]
BOTH = "boundary and type"
# The kinds of errors and their descriptions.
ERROR_KINDS = {
    "boundary": "right type, wrong ends",
    "type": "right ends, wrong type",
    BOTH: "overlaps a true span, wrong ends and type",
    "missed": "true, no prediction overlaps",
    "spurious": "predicted, no true span overlaps",
}


class SpanError(NamedTuple):
    """One error: its kind, its row, the predicted and the true span (or None)."""

    kind: str
    row: int
    predicted: Key | None
    gold: Key | None


def find_span_errors(predicted: Iterable[Spans], gold: Iterable[Spans]) -> list[SpanError]:
    """Every error of a corpus, row by row in reading order.

    Args:
        predicted: the spans of each row, tuples that begin with (type, start, end), end exclusive.
        gold: the true spans of each row.

    Returns:
        The errors. ``boundary``: the type is right, the ends are not. ``type``: the ends are right, the type is not.
        ``boundary and type``: the spans only overlap. ``missed`` and ``spurious``: no other wrong span overlaps.

    Example:
        >>> errors = find_span_errors([[("PER", 0, 3), ("ORG", 8, 12)]], [[("PER", 0, 12), ("LOC", 20, 24)]])
        >>> [(error.kind, error.predicted, error.gold) for error in errors]
        [('boundary', ('PER', 0, 3), ('PER', 0, 12)), ('spurious', ('ORG', 8, 12), None), ('missed', None, ('LOC', 20, 24))]
    """
    found: list[SpanError] = []
    for row, (guess, truth) in enumerate(zip(predicted, gold, strict=True)):
        guesses, truths = ({(span[0], span[1], span[2]) for span in spans} for spans in (guess, truth))
        found += _of_row(row, guesses - truths, truths - guesses)
    return found


def count_span_errors(errors: Iterable[SpanError]) -> dict[str, int]:
    """The number of errors of each kind, zeros included.

    Example:
        >>> count_span_errors([SpanError("missed", 0, None, ("PER", 0, 3))])["missed"]
        1
    """
    counts = Counter(error.kind for error in errors)
    return {kind: counts[kind] for kind in ERROR_KINDS}


def _of_row(row: int, guesses: set[Key], truths: set[Key]) -> list[SpanError]:
    pairs = list(_overlapping(guesses, truths))
    pairs.sort(key=lambda pair: (_kind(*pair) == BOTH, -_overlap(*pair), pair[1][1:], pair[0][1:], str(pair)))
    errors, free_guesses, free_truths = [], set(guesses), set(truths)
    for guess, truth in pairs:
        if guess in free_guesses and truth in free_truths:
            free_guesses.discard(guess)
            free_truths.discard(truth)
            errors.append(SpanError(_kind(guess, truth), row, guess, truth))
    errors += [SpanError("missed", row, None, truth) for truth in free_truths]
    errors += [SpanError("spurious", row, guess, None) for guess in free_guesses]
    return sorted(errors, key=_reading_order)


def _overlapping(guesses: set[Key], truths: set[Key]) -> Iterator[tuple[Key, Key]]:
    """Every pair of spans that share a character, found in one pass over all spans in reading order."""
    open_guesses: list[Key] = []
    open_truths: list[Key] = []
    marked = [(span[1], 0, span) for span in guesses] + [(span[1], 1, span) for span in truths]
    for start, side, span in sorted(marked, key=lambda each: each[:2]):
        open_guesses = [each for each in open_guesses if each[2] > start]
        open_truths = [each for each in open_truths if each[2] > start]
        if side:
            yield from ((guess, span) for guess in open_guesses if _shared(guess, span) > 0)
            open_truths.append(span)
        else:
            yield from ((span, truth) for truth in open_truths if _shared(span, truth) > 0)
            open_guesses.append(span)


def _shared(one: Key, two: Key) -> int:
    return min(one[2], two[2]) - max(one[1], two[1])


def _overlap(one: Key, two: Key) -> float:
    """Intersection over union."""
    return _shared(one, two) / (max(one[2], two[2]) - min(one[1], two[1]))


def _kind(guess: Key, truth: Key) -> str:
    if guess[1:] == truth[1:]:
        return "type"
    return "boundary" if guess[0] == truth[0] else BOTH


def _reading_order(error: SpanError) -> tuple[int, int, str]:
    span = error.gold or error.predicted or ("", 0, 0)
    return span[1], span[2], str(span[0])
