"""Prepares memory-mapped rows block by block: a first pass counts words, a second one writes the prepared rows to their folder.

The results are bit by bit those of rows in memory. The written rows are a cache for the next training with the same features.
A pass that was killed is resumed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from manyhot.data.mapped.arrays import ABOUT, Array, open_arrays
from manyhot.data.mapped.log import ArrayLog
from manyhot.data.mapped.rows import MappedMatrix, MappedTexts
from manyhot.training.rows.inputs.weighted_words import CutTexts, frequent_runs
from manyhot.training.rows.inputs.word_starts import number_starts
from manyhot.training.rows.inputs.words import Runs
from manyhot.training.rows.settings import TrainSettings

KINDS = {"row.ends": "int64", "columns": "int32", "values": "float32"}
NO_ENGINE = "train: packed texts need the native engine, which {why}. Train on the original files, or build the engine."


class WordCounts:
    """The number of texts that contain each word and each word start, counted block by block; numbered by first appearance."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}
        self.starts: dict[str, int] = {}
        self.word_counts, self.start_counts = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self.total = 0

    def add(self, texts: list[str]) -> None:
        """Count a block of texts."""
        cut = CutTexts.of(texts)
        if cut is None:
            raise ValueError(NO_ENGINE.format(why="is not available or cannot read a text"))
        self.total += len(cut.flat)
        every = np.arange(len(cut.words))[:, None]
        self.word_counts = _added(self.word_counts, self.words, cut.words, cut.frequencies(every, len(cut.words)))
        table, names = number_starts(cut.words)
        self.start_counts = _added(self.start_counts, self.starts, names, cut.frequencies(table, len(names)))

    def runs(self, limits: dict[str, int], *, starts: bool) -> tuple[Runs, Runs, Array]:
        """``(words, starts, rows_with [F])`` of the features."""
        words = frequent_runs(list(self.words), self.word_counts, **limits)
        rows_with = [self.word_counts[words.keys[0]]]
        letters = Runs([], [np.zeros(0, dtype=np.int64)])
        if starts:
            letters = frequent_runs(list(self.starts), self.start_counts, **limits)
            rows_with.append(self.start_counts[letters.keys[0]])
        return words, letters, np.concatenate(rows_with)


def _added(counts: Array, number: dict[str, int], names: list[str], own: Array) -> Array:
    """Add the counts of a block; new names get the next numbers."""
    places = np.asarray([number.setdefault(name, len(number)) for name in names], dtype=np.int64)
    grown = np.zeros(len(number), dtype=np.int64)
    grown[: len(counts)] = counts
    grown[places] += own
    return grown


def counted_words(texts: MappedTexts, settings: TrainSettings) -> WordCounts:
    """The first pass: count the words of all texts."""
    for name, usual in (("ngrams", 1), ("char_ngrams", 0)):
        if (getattr(settings, name) or usual) != usual:
            raise ValueError(
                f"train: `{name}` must be {usual} for packed texts, whose features are single words; got"
                f" {getattr(settings, name)}. Train on the original files."
            )
    counts = WordCounts()
    for block in texts.blocks():
        counts.add(block)
    return counts


class Prepares(Protocol):
    """A fitted preparation of inputs, as it is saved with a model."""

    @property
    def width(self) -> int:
        """How many features."""

    def to_json(self) -> dict[str, Any]:
        """Its description."""

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors."""


def written_rows(folder: Path, inputs: Prepares, parts: Iterable[Any], prepare: Callable[[Any], Any]) -> MappedMatrix:
    """The second pass: write the prepared rows to files below ``folder``, unless an earlier training has written the same rows.

    Args:
        folder: the folder of the texts or features.
        inputs: the fitted preparation.
        parts: all rows, block by block.
        prepare: maps a block to a scipy matrix.
    """
    digest = hashlib.blake2b(json.dumps(inputs.to_json()).encode(), digest_size=8)
    for name, tensor in sorted(inputs.tensors().items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    key = digest.hexdigest()
    place = folder / f"rows-{key}"
    if not (place / ABOUT).exists():
        with ArrayLog(place, KINDS, key=key) as log:
            if not log.records:
                log.append({name: np.zeros(int(name == "row.ends")) for name in KINDS})
            for number, part in enumerate(parts, start=1):
                if number >= len(log.records):
                    block = prepare(part)
                    ends = block.indptr[1:].astype(np.int64) + log.ends["values"]
                    log.append({"row.ends": ends, "columns": block.indices, "values": block.data})
            log.finish({"width": inputs.width})
    _, arrays = open_arrays(place, KINDS)
    return MappedMatrix(place, arrays["row.ends"], arrays["columns"], arrays["values"], inputs.width)
