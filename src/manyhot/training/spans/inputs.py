"""Tokens to numbers: vocabularies fitted to texts.

A token is encoded as numbers of embedding tables (a word, its parts and its shape; a character, its bigrams and its shape), and
for words also the numbers of its characters. In every vocabulary 0 is padding and 1 is the unknown symbol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.data.spans.alignment import TokenSpan
from manyhot.data.spans.examples import Offsets
from manyhot.training.run.schema import TEXT, Kind, Schema, choice, listed, whole
from manyhot.training.spans.settings import MOST_AFFIXES, SpanSettings
from manyhot.training.spans.tokens import SHAPES, shape_of, split_text

Array = np.ndarray[Any, Any]
PADDING, UNKNOWN = 0, 1
# The first and last letters of a word are the most informative.
HEAD_LETTERS, TAIL_LETTERS = 14, 8
LETTERS = HEAD_LETTERS + TAIL_LETTERS
EDGE = "\0"
# Patterns of words are cut here.
PATTERN = 8
# The numbers of about this many words are kept.
REMEMBERED = 20_000


def _is_vocabulary(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != {"symbols", "counts"}:
        return False
    symbols, counts = value["symbols"], value["counts"]
    return listed(TEXT).fits(symbols) and listed(whole(0)).fits(counts) and len(symbols) == len(counts)


_VOCABULARY = Kind("a vocabulary, `symbols` and their `counts`", _is_vocabulary)


class Encoded(NamedTuple):
    """One window of a text in numbers: ``features [T, K]``, ``letters [T, W]`` or ``[T, 0]``, and its spans ``[P, 3]`` of
    (type, first token, last token), in order, with their soft labels ``[P]``, None where all are 1."""

    features: Array
    letters: Array
    spans: Array
    values: Array | None = None

    def __len__(self) -> int:
        return len(self.features)


class Vocabulary:
    """Symbols with numbers from 2, and how often each was seen in training."""

    def __init__(self, symbols: Sequence[str], counts: Sequence[int]) -> None:
        self.symbols, self.counts = list(symbols), list(counts)
        self.number = {symbol: place + 2 for place, symbol in enumerate(self.symbols)}

    @classmethod
    def fit(cls, rows: Iterable[Iterable[str]], min_count: int) -> Vocabulary:
        """The symbols that are in at least ``min_count`` rows, the most frequent first."""
        in_rows: Counter[str] = Counter()
        times: Counter[str] = Counter()
        for row in rows:
            listed = list(row)
            times.update(listed)
            in_rows.update(set(listed))
        kept = sorted((symbol for symbol, count in in_rows.items() if count >= min_count), key=lambda s: (-times[s], s))
        return cls(kept, [times[symbol] for symbol in kept])

    def __len__(self) -> int:
        return len(self.symbols) + 2

    def numbers(self, symbols: Iterable[str]) -> list[int]:
        """The number of each symbol."""
        return [self.number.get(symbol, UNKNOWN) for symbol in symbols]

    def to_json(self) -> dict[str, Any]:
        """The JSON form that the bundle stores."""
        return {"symbols": self.symbols, "counts": self.counts}


class VocabularyInputs:
    """The encoding of tokens for a body trained from scratch.

    Args:
        tokens: ``words`` or ``characters``.
        tables: a vocabulary for each table but the last, which is the shape.
        letters: the vocabulary of the letters of words, or None.
        affixes: the longest prefix and suffix of a word that is a feature; the second table is of them. 0: no such table.
    """

    kind = "tokens"
    schema: ClassVar[Schema] = {
        "kind": TEXT,
        "tokens": choice("words", "characters"),
        "tables": listed(_VOCABULARY),
        "letters": _VOCABULARY.or_none(),
        "affixes": whole(0, MOST_AFFIXES).or_missing(),
    }

    def __init__(self, tokens: str, tables: Sequence[Vocabulary], letters: Vocabulary | None, *, affixes: int = 0) -> None:
        self.tokens, self.tables, self.letters, self.affixes = tokens, list(tables), letters, affixes
        self._known: dict[str, list[int]] = {}

    @classmethod
    def fit(cls, texts: Sequence[str], offsets: Sequence[Offsets], tokens: str, settings: SpanSettings) -> VocabularyInputs:
        """Build the vocabularies from training texts; a text longer than a window counts as several texts."""
        size = settings.max_tokens
        rows = [
            _surfaces(text, own[start : start + size])
            for text, own in zip(texts, offsets, strict=True)
            for start in range(0, len(own), size)
        ]
        if tokens == "characters":
            tables = [Vocabulary.fit(rows, settings.min_count)]
            tables += [Vocabulary.fit((_bigrams(row) for row in rows), max(settings.min_count, 2))]
            return cls(tokens, tables, None)
        words = Vocabulary.fit(([word.lower() for word in row] for row in rows), settings.min_count)
        letters = Vocabulary.fit((list("".join(row)) for row in rows), settings.min_count)
        if not settings.affixes:
            return cls(tokens, [words], letters)
        parts = ((part for word in row for part in word_parts(word, settings.affixes)) for row in rows)
        return cls(tokens, [words, Vocabulary.fit(parts, max(settings.min_count, 2))], letters, affixes=settings.affixes)

    def offsets(self, text: str) -> Offsets:
        """Split a text into tokens."""
        return split_text(text, self.tokens)

    def encode(self, text: str, offsets: Offsets) -> tuple[Array, Array]:
        """``(features [T, K], letters [T, W])`` of a text."""
        row = _surfaces(text, offsets)
        if self.tokens == "characters":
            bigrams = self.tables[1].numbers(_bigrams(row))
            columns = [self.tables[0].numbers(row), bigrams[:-1], bigrams[1:], [shape_of(token) + 2 for token in row]]
            features = np.array(columns, dtype=np.int32).T.reshape(len(row), len(columns))
            return features, np.zeros((len(row), 0), dtype=np.int32)
        if len(self._known) > REMEMBERED:
            self._known = {}
        # Words repeat: each is encoded once. Another thread may begin a new dict meanwhile.
        known, count = self._known, len(self.shape()["uses"])
        for word in row:
            if word not in known:
                known[word] = self._word(word)
        width = count + (0 if self.letters is None else LETTERS)
        numbers = np.array([known[word] for word in row], dtype=np.int32).reshape(len(row), width)
        return numbers[:, :count], numbers[:, count:]

    def _word(self, word: str) -> list[int]:
        """The features of a word, then its letters."""
        letters = [PADDING] * (LETTERS if self.letters is not None else 0)
        if self.letters is not None:
            kept = word if len(word) <= LETTERS else word[:HEAD_LETTERS] + word[-TAIL_LETTERS:]
            letters[: len(kept)] = self.letters.numbers(kept)
        parts = self.tables[1].numbers(word_parts(word, self.affixes)) if self.affixes else []
        return [*self.tables[0].numbers([word.lower()]), *parts, shape_of(word) + 2, *letters]

    def shape(self) -> dict[str, Any]:
        """The encoder's part of the network description: the sizes of the tables, and which table each feature uses."""
        sizes = [len(table) for table in self.tables] + [len(SHAPES) + 2]
        uses = [0, 1, 1, 2] if self.tokens == "characters" else [0, 1]
        if self.affixes:
            uses = [0, *[1] * (2 * self.affixes + 1), 2]
        return {"tables": sizes, "uses": uses, "letters": 0 if self.letters is None else len(self.letters)}

    def counts(self) -> list[Tensor]:
        """How often each entry of each table was seen; infinity for entries that are never replaced."""
        found = [torch.tensor([float("inf"), float("inf"), *map(float, table.counts)]) for table in self.tables]
        return [*found, torch.full((len(SHAPES) + 2,), float("inf"))]

    def to_json(self) -> dict[str, Any]:
        """The JSON form that the bundle stores."""
        letters = None if self.letters is None else self.letters.to_json()
        tables = [table.to_json() for table in self.tables]
        return {"kind": self.kind, "tokens": self.tokens, "tables": tables, "letters": letters, "affixes": self.affixes}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> VocabularyInputs:
        """The inverse of ``to_json``."""
        tables = [Vocabulary(each["symbols"], each["counts"]) for each in data["tables"]]
        letters = None if data["letters"] is None else Vocabulary(data["letters"]["symbols"], data["letters"]["counts"])
        return cls(data["tokens"], tables, letters, affixes=data.get("affixes", 0))


def _surfaces(text: str, offsets: Offsets) -> list[str]:
    return [text[start:end] for start, end in offsets]


def word_parts(word: str, size: int) -> list[str]:
    """The prefixes and suffixes of 1 to ``size`` letters in lower case, and the pattern of a word: capitals X, small letters x,
    digits 0 and marks, a run of the same once.

    Example:
        >>> [part.replace(EDGE, "|") for part in word_parts("McAda-12", 2)]
        ['|m', '2|', '|mc', '12|', '|XxXx-0|']
    """
    small, found = word.lower(), []
    for length in range(1, size + 1):
        found += [EDGE + small[:length], small[-length:] + EDGE]
    kinds = ("X" if each.isupper() else "x" if each.isalpha() else "0" if each.isdigit() else each for each in word)
    return [*found, EDGE + "".join(kind for kind, _ in groupby(kinds))[:PATTERN] + EDGE]


def _bigrams(row: Sequence[str]) -> list[str]:
    """The bigrams of a row, one more than it has characters: bigram i ends at character i, bigram i + 1 starts there."""
    return [one + two for one, two in zip([EDGE, *row], [*row, EDGE], strict=True)]


def as_cells(
    spans: Sequence[tuple[TokenSpan, float]], number: dict[str, int], start: int, stop: int, *, soft: bool
) -> tuple[Array, Array | None]:
    """The spans inside a window, sorted, ``[P, 3]`` of (type, first, last) counted from the window's first token, and their
    soft labels ``[P]``; None if labels are hard."""
    inside = {
        (number[s.type], s.first - start, s.last - start): value for s, value in spans if start <= s.first and s.last < stop
    }
    order = sorted(inside)
    cells = np.array(order, dtype=np.int64).reshape(-1, 3)
    return cells, np.array([inside[cell] for cell in order], dtype=np.float32) if soft else None
