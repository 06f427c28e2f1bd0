"""The positions of the features in a text, and their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from manyhot.training.rows.inputs.texts import TextInputs
from manyhot.training.rows.inputs.word_starts import STARTS, number_starts
from manyhot.training.rows.inputs.words import (
    WORD,
    Runs,
    joined,
    number_characters,
    number_words,
    positions,
)

Array = np.ndarray[Any, Any]
# Stands for a blank in the name of a character n-gram.
BLANK = "\u2423"


class TextPlaces(NamedTuple):
    """The words of a text and the features found in it.

    Args:
        words: ``(start, end)`` of each word, in characters of the text.
        places: ``(feature, start, end)`` of each occurrence of a feature.
    """

    words: list[tuple[int, int]]
    places: list[tuple[int, int, int]]


def find_places(inputs: TextInputs, text: str) -> TextPlaces:
    """Every occurrence of every feature in a text; the features are those of ``inputs.rows([text])``.

    Args:
        inputs: the fitted preparation of texts.
        text: one text.
    """
    lowered = text.lower()
    origin = _origin(text, lowered)
    words = [match.span() for match in WORD.finditer(lowered)]
    names = [lowered[start:end] for start, end in words]
    found: list[tuple[int, int, int]] = []

    flat = number_words([names], inputs.words.number)[0]
    for feature, first, length in _runs(inputs.words, flat):
        found.append((feature, words[first][0], words[first + length - 1][1]))
    before = len(inputs.words)
    if len(inputs.starts):
        table, _ = number_starts(names, inputs.starts.number)
        for feature, place, _ in _runs(inputs.starts, table.ravel()):
            start = words[place // len(STARTS)][0]
            found.append((before + feature, start, start + STARTS[place % len(STARTS)]))
    before += len(inputs.starts)
    if len(inputs.characters):
        spans = _character_spans(lowered)
        flat = number_characters([text], inputs.characters.number)[0]
        for feature, first, length in _runs(inputs.characters, flat):
            found.append((before + feature, spans[first][0], spans[first + length - 1][1]))
    places = [(feature, *_in_text(origin, start, end)) for feature, start, end in found]
    return TextPlaces([_in_text(origin, start, end) for start, end in words], places)


def feature_name(inputs: TextInputs, feature: int) -> str:
    """The name of a feature: its words, a word start with a star, or a character n-gram in quotes with visible blanks."""
    if feature < len(inputs.words):
        return " ".join(_symbols(inputs.words, feature))
    feature -= len(inputs.words)
    if feature < len(inputs.starts):
        return _symbols(inputs.starts, feature)[0] + "*"
    letters = "".join(_symbols(inputs.characters, feature - len(inputs.starts)))
    return f"\u2018{letters.replace(' ', BLANK)}\u2019"


def _symbols(runs: Runs, feature: int) -> list[str]:
    """The symbols of an n-gram: its key holds the index of its prefix and the last symbol."""
    length = 1
    while feature >= len(runs.keys[length - 1]):
        feature -= len(runs.keys[length - 1])
        length += 1
    width, found = max(len(runs.symbols), 1), []
    while length > 1:
        feature, last = divmod(int(runs.keys[length - 1][feature]), width)
        found.append(runs.symbols[last])
        length -= 1
    found.append(runs.symbols[int(runs.keys[0][feature])])
    return found[::-1]


def _runs(runs: Runs, flat: Array) -> Iterator[tuple[int, int, int]]:
    """``(feature, first symbol, length)`` of the n-grams among the symbol numbers ``flat [T]`` of one text."""
    rows, current, before, width = np.zeros(len(flat), dtype=np.int64), flat, 0, max(len(runs.symbols), 1)
    for length, keys in enumerate(runs.keys, start=1):
        if length > 1:
            current = joined(current, flat, rows, length, width)
        current = positions(keys, current)
        for first in np.flatnonzero(current >= 0).tolist():
            yield int(current[first]) + before, first, length
        before += len(keys)


def _origin(text: str, lowered: str) -> Array:
    """``[len(lowered) + 1]``: the place in ``text`` that each character of ``lowered`` came from."""
    if len(text) == len(lowered):
        return np.arange(len(text) + 1)
    # A few capital letters become two characters in lower case.
    lengths = [len(character.lower()) for character in text]
    return np.append(np.repeat(np.arange(len(text)), lengths), len(text))


def _in_text(origin: Array, start: int, end: int) -> tuple[int, int]:
    first = int(origin[start])
    return first, max(int(origin[end - 1]) + 1, first) if end > start else first


def _character_spans(lowered: str) -> list[tuple[int, int]]:
    """The place of each character that ``number_characters`` reads: it merges the blanks between words."""
    spans, last, inside = [], 0, False
    for place, character in enumerate(lowered):
        if character.isspace():
            inside = False
            continue
        if not inside:
            spans.append((last, place))
        spans.append((place, place + 1))
        last, inside = place + 1, True
    return [*spans, (last, len(lowered))]
