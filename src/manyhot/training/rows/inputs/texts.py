"""Texts as weighted n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.data.mapped.rows import MappedTexts
from manyhot.training.rows.bodies.info import AUTO_BODY
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.inputs.mapped import counted_words, written_rows
from manyhot.training.rows.inputs.row_batches import Array
from manyhot.training.rows.inputs.tokens import texts_of
from manyhot.training.rows.inputs.weighted_words import CutTexts, fitted_features, known_columns
from manyhot.training.rows.inputs.word_starts import STARTS, number_starts
from manyhot.training.rows.inputs.words import (
    LEAST_NATIVE,
    Runs,
    find_runs,
    number_characters,
    numbered_words,
    word_lists,
)
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.schema import TEXT, Schema, listed

# From this many words per text on, texts are long; first letters are not used by default then (a guess, not measured).
LONG_TEXT = 200
# From more texts than this on, pairs of words in short texts are frequent enough to help. Label trees on held-out titles of
# yso_titles: one tree with pairs is better than three without on 623,285 rows, and worse than six without on 32,439.
MANY_TEXTS = 100_000
# Texts whose words are counted to see whether texts are long.
TEXTS_MEASURED = 1000


def _takes_starts(given: bool | None, words: float) -> bool:
    """Whether first letters are features, as the settings say or by how many words a text has on average."""
    if given is False and words >= LONG_TEXT:
        raise ValueError(
            f"train: `word_starts` must be left out: texts of {words:.0f} words on average do not use first letters by default."
        )
    return words < LONG_TEXT if given is None else given


def longest_ngram(settings: TrainSettings, texts: Sequence[str]) -> int:
    """The longest word n-gram, as the settings say or by the body, the number of texts and their length."""
    if settings.ngrams is not None:
        return settings.ngrams
    many_short, long = (1, 1) if settings.model == AUTO_BODY else get_body(settings.model).ngrams
    if max(many_short, long) == 1:
        return 1
    some = texts[:: max(len(texts) // TEXTS_MEASURED, 1)]
    if sum(map(len, word_lists(some))) >= LONG_TEXT * max(len(some), 1):
        return long
    return many_short if len(texts) > MANY_TEXTS else 1


class TextInputs:
    """Texts as n-grams and first letters of words, weighted ``(1 + log count) * idf``; rows have length 1."""

    kind = "texts"
    parts = ("words", "starts", "characters")
    gives_sparse = True
    schema: ClassVar[Schema] = {"kind": TEXT, **{name: listed(TEXT) for name in parts}}

    def __init__(self, words: Runs, starts: Runs, characters: Runs, idf: Array) -> None:
        self.words, self.starts, self.characters, self.idf = words, starts, characters, idf

    @classmethod
    def fit(cls, examples: Examples, settings: TrainSettings) -> tuple[TextInputs, Any]:
        """The n-grams of the training texts, and these texts prepared."""
        texts = examples.texts or []
        if isinstance(texts, MappedTexts) and len(texts) >= LEAST_NATIVE:
            return cls._fit_mapped(texts, settings)
        # A feature that is in all texts is kept, however few texts there are.
        limits = {"min_count": min(settings.min_count, len(texts)), "most": settings.max_features}
        longest = longest_ngram(settings, texts)
        cut = CutTexts.of(texts) if longest <= 2 and not settings.char_ngrams else None
        if cut is not None:
            return cls._fit_words(texts, cut, settings, {"longest": longest, **limits})
        flat, rows, names = numbered_words(texts)
        words = find_runs(flat, rows, names, longest=longest, **limits)
        counts = [words.counts(flat, rows, len(texts))]
        starts = characters = Runs([], [np.zeros(0, dtype=np.int64)])
        if _takes_starts(settings.word_starts, len(flat) / max(len(texts), 1)):
            table, names = number_starts(names)
            flat, rows = table[flat].ravel(), np.repeat(rows, len(STARTS))
            starts = find_runs(flat, rows, names, longest=1, **limits)
            counts.append(starts.counts(flat, rows, len(texts)))
        if settings.char_ngrams:
            flat, rows, names = number_characters(texts)
            characters = find_runs(flat, rows, names, longest=settings.char_ngrams, **limits)
            counts.append(characters.counts(flat, rows, len(texts)))
        matrix = _side_by_side(counts)
        if not matrix.shape[1]:
            _refuse(texts, settings.min_count)
        rows_with = np.bincount(matrix.indices, minlength=matrix.shape[1])
        fitted = cls(_used(words), _used(starts), _used(characters), _idf(rows_with, len(texts)))
        return fitted, fitted._weighted(matrix)

    @classmethod
    def _fit_words(
        cls, texts: Sequence[str], cut: CutTexts, settings: TrainSettings, limits: dict[str, int]
    ) -> tuple[TextInputs, Any]:
        """``fit`` for words and pairs of words, by the native engine."""
        takes_starts = _takes_starts(settings.word_starts, len(cut.flat) / len(texts))
        found = fitted_features(cut, starts=takes_starts, **limits)
        if not len(found.rows_with):
            _refuse(texts, settings.min_count)
        idf, none = _idf(found.rows_with, len(texts)), Runs([], [np.zeros(0, dtype=np.int64)])
        starts = none if found.starts is None else _used(found.starts)
        return cls(_used(found.words), starts, none, idf), cut.weighted(found.columns, idf, found.pairs)

    @classmethod
    def _fit_mapped(cls, texts: MappedTexts, settings: TrainSettings) -> tuple[TextInputs, Any]:
        """``fit`` for texts in files: words are counted in one pass, rows are written in another."""
        counts = counted_words(texts, settings)
        limits = {"min_count": min(settings.min_count, len(texts)), "most": settings.max_features}
        takes_starts = _takes_starts(settings.word_starts, counts.total / len(texts))
        words, starts, rows_with = counts.runs(limits, starts=takes_starts)
        if not len(rows_with):
            _refuse(texts, settings.min_count)
        none = Runs([], [np.zeros(0, dtype=np.int64)])
        fitted = cls(_used(words), _used(starts), none, _idf(rows_with, len(texts)))
        return fitted, written_rows(texts.folder, fitted, texts.blocks(), fitted.rows)

    @property
    def width(self) -> int:
        """How many features."""
        return len(self.idf)

    def rows(self, inputs: Any) -> Any:
        """CSR ``[N, width]`` of texts or ``Examples``."""
        texts = texts_of(inputs)
        cut = CutTexts.of(texts) if len(self.words.keys) <= 2 and not len(self.characters) else None
        if cut is not None:
            columns, pairs = known_columns(cut, self.words, self.starts)
            return cut.weighted(columns, self.idf, pairs)
        # Each distinct word is looked up once, however often it occurs.
        flat, rows, names = numbered_words(texts)
        known = np.fromiter((self.words.number.get(name, -1) for name in names), dtype=np.int64, count=len(names))
        counts = [self.words.counts(known[flat], rows, len(texts))]
        if len(self.starts):
            table, _ = number_starts(names, self.starts.number)
            counts.append(self.starts.counts(table[flat].ravel(), np.repeat(rows, len(STARTS)), len(texts)))
        if len(self.characters):
            counts.append(self.characters.counts(*number_characters(texts, self.characters.number)[:2], len(texts)))
        return self._weighted(_side_by_side(counts))

    def _weighted(self, matrix: Any) -> Any:
        values = (1 + np.log(matrix.data)) * self.idf[matrix.indices]
        lengths = np.diff(matrix.indptr)
        row = np.repeat(np.arange(matrix.shape[0]), lengths)
        norms = np.sqrt(np.bincount(row, weights=values.astype(np.float64) ** 2, minlength=matrix.shape[0]))
        matrix.data = (values / np.repeat(norms, lengths)).astype(np.float32)
        return matrix

    def to_json(self) -> dict[str, Any]:
        """The description as JSON, without the tensors."""
        return {"kind": self.kind, **{name: getattr(self, name).symbols for name in self.parts}}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the description."""
        found = {"idf": torch.from_numpy(self.idf)}
        for name in self.parts:
            every = enumerate(getattr(self, name).keys, start=1)
            found |= {f"{name}.{length}": torch.from_numpy(keys) for length, keys in every}
        return found

    @classmethod
    def from_parts(cls, data: dict[str, Any], tensors: dict[str, Tensor]) -> TextInputs:
        """From the results of ``to_json`` and ``tensors``."""
        runs = []
        for name in cls.parts:
            keys = [tensors[f"{name}.{length}"].numpy() for length in range(1, 1 + sum(k.startswith(name) for k in tensors))]
            runs.append(Runs(data[name], keys))
        words, starts, characters = runs
        idf = tensors["idf"].numpy()
        if sum(map(len, runs)) != len(idf) or any(len(each.keys[0]) > len(each.symbols) for each in runs):
            raise ValueError(f"TextInputs: there must be one `idf` for each n-gram, {sum(map(len, runs))}; got {len(idf)}.")
        return cls(words, starts, characters, idf)


def _idf(rows_with: Array, num_texts: int) -> Array:
    weights: Array = (np.log((1 + num_texts) / (1 + rows_with)) + 1).astype(np.float32)
    return weights


def _refuse(texts: Sequence[str], min_count: int) -> NoReturn:
    """Raise the error that says why there are no features."""
    if any(word_lists(texts)):
        raise ValueError(
            f"train: no word occurs in {min_count} of the {len(texts)} texts, so there is nothing to learn from."
            " Give more texts, or pass min_count=1 (--min-count 1)."
        )
    raise ValueError(f"train: none of the {len(texts)} texts has a word. Check which column is read as text.")


def _side_by_side(counts: Sequence[Any]) -> Any:
    from scipy import sparse

    return counts[0] if len(counts) == 1 else sparse.hstack(counts, format="csr")


def _used(runs: Runs) -> Runs:
    """The same n-grams without unused symbols; the others are renumbered."""
    width = max(len(runs.symbols), 1)
    single = runs.keys[0]
    ends = [single, *(keys % width for keys in runs.keys[1:])]
    kept = np.unique(np.concatenate(ends))
    place = np.full(width, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    keys = [place[single], *((keys // width) * max(len(kept), 1) + place[keys % width] for keys in runs.keys[1:])]
    return Runs([runs.symbols[symbol] for symbol in kept.tolist()], keys)
