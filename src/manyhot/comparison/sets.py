"""Data sets of the grid: one dense table of inputs, one of labels, and the rows of each seed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from manyhot.comparison.settings import CompareSettings
from manyhot.data.examples import Examples, Source, concatenate_examples
from manyhot.data.files.input_file import bare_name
from manyhot.data.read import read_examples
from manyhot.labels.describe import describe_labels
from manyhot.labels.sparse import SparseLabels
from manyhot.labels.split import stratified_split
from manyhot.training.rows.choose import log_odds
from manyhot.training.rows.inputs.registry import INPUTS
from manyhot.training.rows.settings import TrainSettings

# Maximum number of float32 entries of a dense table: 16 GiB.
LARGEST_TABLE = 1 << 32
TRAIN = re.compile(r"(?i)(?<![a-z])train(?:ing)?(?![a-z])")


@dataclass(frozen=True)
class SetFiles:
    """The files of a data set.

    Args:
        name: its name in tables.
        train: its files, read as one set.
        test: the test files; if empty, test rows are sampled for each seed.
        reading: arguments of ``read_examples``.
    """

    name: str
    train: tuple[str, ...]
    test: tuple[str, ...] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)


class SeedRows(NamedTuple):
    """Row numbers of one seed."""

    train: Tensor
    validation: Tensor
    test: Tensor


@dataclass(frozen=True, eq=False)
class ComparedSet:
    """Inputs ``[1 or S, N, F]`` (one table per seed if test rows are sampled), labels ``[N, L]`` of 0 and 1.

    Seeds with their own training texts have their own vocabulary: a table with fewer than F columns is padded with zeros, and
    ``widths`` is the number of columns of each table.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    rows: tuple[SeedRows, ...]
    widths: tuple[int, ...] = ()
    # Cache of facts and log odds by seed, which every method needs.
    known: dict[tuple[str, int], Any] = field(default_factory=dict, repr=False)

    def width(self, seed_place: int) -> int:
        """The number of features of the seed's table."""
        return self.widths[seed_place if len(self.widths) > 1 else 0] if self.widths else self.inputs.shape[-1]

    def log_odds(self, seed_place: int) -> Tensor:
        """``[L]``: the log odds of each label in the training rows, the initial biases."""
        if ("odds", seed_place) not in self.known:
            labels = SparseLabels.from_dense(self.labels[self.rows[seed_place].train])
            self.known["odds", seed_place] = log_odds(labels, None)
        found: Tensor = self.known["odds", seed_place]
        return found

    def facts(self, seed_place: int) -> dict[str, float]:
        """Properties of the data for tables and statistics, from the training and validation rows."""
        if ("facts", seed_place) not in self.known:
            self.known["facts", seed_place] = {
                **self._facts(*self.rows[seed_place]),
                "num_features": self.width(seed_place),
            }
        found: dict[str, float] = self.known["facts", seed_place]
        return dict(found)

    def _facts(self, train: Tensor, validation: Tensor, test: Tensor) -> dict[str, float]:
        found = describe_labels(self.labels[torch.cat([train, validation])], top_pairs=0)
        return {
            "num_train": len(train),
            "num_validation": len(validation),
            "num_test": len(test),
            "num_labels": found.labels,
            "cardinality": found.cardinality,
            "density": found.density,
            "imbalance": found.mean_imbalance,
            "label_sets": found.distinct_sets,
        }


def pair_files(files: Sequence[str], reading: Mapping[str, Any]) -> list[SetFiles]:
    """Group files into data sets. Two files whose names differ only in ``train`` and ``test`` are one set.

    Example:
        >>> [(each.name, each.test) for each in pair_files(["a-train.arff", "a-test.arff", "b.csv"], {})]
        [('a', ('a-test.arff',)), ('b', ())]
    """
    given = list(dict.fromkeys(files))
    found, used = [], set()
    for file in given:
        path = Path(file)
        partners = {str(path.with_name(TRAIN.sub(word, path.name))) for word in ("test", "Test", "TEST")}
        partner = next((other for other in given if other != file and str(Path(other)) in partners), None)
        if TRAIN.search(path.name) and partner is not None:
            found.append(SetFiles(_set_name(file), (file,), (partner,), dict(reading)))
            used |= {file, partner}
    sets = found + [SetFiles(_set_name(file), (file,), (), dict(reading)) for file in given if file not in used]
    sets.sort(key=lambda each: given.index(each.train[0]))
    names = [each.name for each in sets]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"compare: two data sets would be named {sorted(twice)[0]!r}. Rename a file.")
    return sets


def _set_name(file: str) -> str:
    stem = Path(bare_name(file)).stem
    short = re.sub(r"[-_. ]{2,}", "-", TRAIN.sub("", stem)).strip("-_. ")
    return re.sub(r"[/\s]+", "-", short or Path(file).resolve().parent.name or stem)


class SetShape(NamedTuple):
    """The size of a data set, from its files."""

    rows: int
    features: int
    labels: int
    label_sets: int
    # The files, with the remarks and problems of their reader.
    source: tuple[Source, ...] = ()


def shape_of(files: SetFiles, settings: CompareSettings) -> SetShape:
    """The shape of the training rows; for texts, the number of features is ``max_features``."""
    examples = _read(files.train, files.reading)
    found = describe_labels(examples.labels, top_pairs=0)
    share = (1 - settings.validation) * (1 if files.test else 1 - settings.test_size)
    source = tuple(examples.source)
    if files.test and files.reading.get("on_problem") == "collect":
        source += tuple(_read(files.test, files.reading).source)
    return SetShape(
        round(share * len(examples)), examples.num_features or settings.max_features, found.labels, found.distinct_sets, source
    )


def load_set(files: SetFiles, seeds: Sequence[int], settings: CompareSettings) -> ComparedSet:
    """Read a data set and split it for each seed; errors name the data set."""
    train = _read(files.train, files.reading)
    if not files.test:
        rows = [_sampled_rows(train.labels, seed, settings) for seed in seeds]
        tables = [_prepared(train, torch.cat([each.train, each.validation]), settings) for each in rows]
        widths = tuple(table.shape[1] for table in tables)
        inputs = torch.stack([pad(table, (0, max(widths) - table.shape[1])) for table in tables])
        return ComparedSet(files.name, inputs, train.labels.dense(torch.float32), tuple(rows), widths)
    test = _read(files.test, files.reading).with_labels(train.label_names)
    if test.features is not None and train.feature_names is None:
        test = test.with_features(train.num_features)
    both = concatenate_examples([train, test])
    place = torch.arange(len(both))
    first, last = place[: len(train)], place[len(train) :]
    rows = []
    for seed in seeds:
        kept, held = stratified_split(train.labels, test_size=settings.validation, seed=seed)
        rows.append(SeedRows(kept, held, last))
    inputs = _prepared(both, first, settings)
    return ComparedSet(files.name, inputs.unsqueeze(0), both.labels.dense(torch.float32), tuple(rows))


def _read(files: Sequence[str], reading: Mapping[str, Any]) -> Examples:
    examples = read_examples(files[0] if len(files) == 1 else list(files), **reading)
    if examples.unknown is not None and len(examples.unknown.indices):
        raise ValueError(f"compare: {files[0]}: some labels are unknown; compare needs known labels only.")
    if examples.images is not None:
        raise ValueError(f"compare: {files[0]}: compare reads features and texts, not images.")
    return examples


def _sampled_rows(labels: SparseLabels, seed: int, settings: CompareSettings) -> SeedRows:
    rest, test = stratified_split(labels, test_size=settings.test_size, seed=seed)
    kept, held = stratified_split(labels[rest], test_size=settings.validation, seed=seed)
    return SeedRows(rest[kept], rest[held], test)


def _prepared(examples: Examples, fitted_on: Tensor, settings: CompareSettings) -> Tensor:
    """All rows as one dense table; the scaling or the vocabulary is fitted on the rows ``fitted_on``."""
    prepare = TrainSettings(max_features=settings.max_features)
    inputs, _ = INPUTS[examples.kind].fit(examples[fitted_on], prepare)
    if len(examples) * inputs.width > LARGEST_TABLE:
        raise ValueError(
            f"compare: {len(examples):,} rows of {inputs.width:,} features do not fit into memory as a dense table."
            " Lower `max_features`, or use fewer rows."
        )
    table: Any = inputs.rows(examples)
    dense = table if isinstance(table, np.ndarray) else table.toarray()
    return torch.from_numpy(np.ascontiguousarray(dense, dtype=np.float32))
