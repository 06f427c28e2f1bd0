"""Inspection of a data set before training: how it is read, and its problems."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from manyhot.data.examples import Examples, Source
from manyhot.data.files.problems import Problem
from manyhot.data.files.streams import PathLike
from manyhot.data.read import read_examples
from manyhot.labels.describe import LabelStatistics, describe_labels, find_leaks

FEW = 2


@dataclass(frozen=True)
class Inspection:
    """The result of ``inspect_examples``.

    Args:
        sources: the files, their formats and the chosen columns.
        kind: ``"texts"``, ``"features"`` or ``"images"``.
        rows: R.
        inputs: facts about the inputs: numbers of words or features, missing values.
        labels: cardinality, density, imbalance, counts, pairs; see ``LabelStatistics``.
        label_names: one name per label.
        unknown_labels: the number of unknown entries.
        soft_labels: the number of entries strictly between 0 and 1.
        unknown_rows: rows without a known label.
        empty_inputs: rows whose input is empty: no word, or no feature other than 0.
        repeated_inputs: rows with the same input as an earlier row.
        contradictions: repeated inputs whose labels differ from those of the first row.
        alike_labels: pairs of label names that differ only in case, spaces or Unicode normalisation.
        problems: the first ten problems of the files, by line.
        num_problems: the number of problems; each is a row that was skipped.
        test: the same for the test files, if given.
        leaks: test rows whose input also occurs in training.
        unseen_labels: labels that occur only in the test files, with their counts.
    """

    sources: tuple[Source, ...]
    kind: str
    rows: int
    inputs: Mapping[str, Any]
    labels: LabelStatistics
    label_names: tuple[str, ...]
    unknown_labels: int
    soft_labels: int
    unknown_rows: int
    empty_inputs: int
    repeated_inputs: int
    contradictions: int
    alike_labels: tuple[tuple[str, str], ...]
    problems: tuple[Problem, ...]
    num_problems: int
    test: Inspection | None = None
    leaks: int | None = None
    unseen_labels: Mapping[str, int] | None = None

    def remarks(self) -> list[str]:
        """Sentences about what to check before training."""
        counts = self.labels.counts
        of_test = 0 if self.test is None else self.test.rows
        found = [
            _counted(self.num_problems, "row has problems and was skipped.", "rows have problems and were skipped."),
            _counted(self.unknown_labels, "label is unknown and will be excluded.", "labels are unknown and will be excluded."),
            _counted(self.soft_labels, "label is soft;", "labels are soft;", "metrics count those above 0.5 as positive."),
            _counted(self.labels.empty_rows, "row has no label.", "rows have no label."),
            _counted(self.empty_inputs, "row has an empty input.", "rows have an empty input."),
            _counted(self.repeated_inputs, "row repeats", "rows repeat", "the input of an earlier row."),
            _counted(self.contradictions, "of these has", "of these have", "other labels than the earlier row."),
            _counted(len(self.labels.without_positives), "label never occurs.", "labels never occur."),
            _counted(
                sum(0 < n < FEW for n in counts), "label occurs", "labels occur", "only once, so no row is left to test on."
            ),
            self._about_alike_labels(),
            _counted(self.inputs.get("missing"), "feature value is missing.", "feature values are missing."),
            _counted(
                self.leaks, f"of {of_test:,} test rows is", f"of {of_test:,} test rows are", "also in the training files."
            ),
            _counted(len(self.unseen_labels or ()), "label occurs", "labels occur", "only in the test files."),
        ]
        said = dict.fromkeys(remark for source in self.sources for remark in source.remarks)
        return [*said, *(sentence for sentence in found if sentence)]

    def _about_alike_labels(self) -> str:
        if not self.alike_labels:
            return ""
        shown = "; ".join(f"{one!r} and {other!r}" for one, other in self.alike_labels[:3])
        more = "; and others" if len(self.alike_labels) > 3 else ""
        return (
            f"{len(self.alike_labels)} labels differ from another one only in case, spaces or Unicode form: {shown}{more}."
            " If they mean the same, spell them the same way in the file."
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        labels = asdict(self.labels)
        labels["counts"] = dict(zip(self.label_names, self.labels.counts, strict=True))
        return {
            "files": [_source_dict(source) for source in self.sources],
            "kind": self.kind,
            "rows": self.rows,
            "inputs": dict(self.inputs),
            "labels": labels,
            "unknown_labels": self.unknown_labels,
            "soft_labels": self.soft_labels,
            "unknown_rows": self.unknown_rows,
            "empty_inputs": self.empty_inputs,
            "repeated_inputs": self.repeated_inputs,
            "contradictions": self.contradictions,
            "alike_labels": [list(pair) for pair in self.alike_labels],
            "problems": [problem.to_dict() for problem in self.problems],
            "num_problems": self.num_problems,
            "remarks": self.remarks(),
            "test": None if self.test is None else self.test.to_dict(),
            "leaks": self.leaks,
            "unseen_labels": None if self.unseen_labels is None else dict(self.unseen_labels),
        }


def _counted(count: int | None, one: str, several: str, rest: str = "") -> str:
    """A sentence that begins with a number; empty if the number is 0 or None."""
    return " ".join([f"{count:,}", one if count == 1 else several, *([rest] if rest else [])]) if count else ""


def inspect_examples(
    examples: Examples | PathLike | Sequence[PathLike],
    *,
    test: Examples | PathLike | Sequence[PathLike] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Inspection:
    """Inspect examples or files of examples, and collect their problems.

    Args:
        examples: examples, a file or several.
        test: the test examples or files, to find leaks and labels that do not occur in training.
        options: arguments of ``read_examples``, if files are given.

    Returns:
        ``Inspection``.

    Raises:
        DataError: if a file cannot be read at all.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "posts.jsonl"
        >>> _ = path.write_text('{"text": "a", "labels": ["x"]}\\n{"text": "a", "labels": []}\\n{"text": 7, "labels": []}\\n')
        >>> found = inspect_examples(path)
        >>> found.rows, found.repeated_inputs, found.problems[0].line
        (2, 1, 3)
    """
    train = _read(examples, options)
    found = _inspect(train)
    if test is None:
        return found
    held_out = _read(test, options)
    if held_out.kind != train.kind:
        raise ValueError(f"inspect_examples: `test` must hold {train.kind} as `examples` do; it holds {held_out.kind}.")
    aligned = held_out
    if train.features is not None:
        aligned = held_out.with_features(train.feature_names if train.feature_names is not None else train.num_features)
    counts = dict(zip(train.label_names, found.labels.counts, strict=True))
    in_test = _inspect(held_out)
    own = zip(held_out.label_names, in_test.labels.counts, strict=True)
    return replace(
        found,
        test=in_test,
        leaks=len(find_leaks(_contents(train), _contents(aligned)).pairs),
        unseen_labels={name: count for name, count in own if count and not counts.get(name)},
    )


def _read(examples: Examples | PathLike | Sequence[PathLike], options: Mapping[str, Any] | None) -> Examples:
    if isinstance(examples, Examples):
        return examples
    paths = examples if isinstance(examples, (str, os.PathLike)) else list(examples)
    return read_examples(paths, **{"on_problem": "collect", **(options or {})})


def _inspect(examples: Examples) -> Inspection:
    statistics = describe_labels(examples.labels, names=examples.label_names)
    unknown = 0 if examples.unknown is None else examples.unknown.indices.numel()
    if unknown:
        known = len(examples) * examples.num_labels - unknown
        statistics = replace(statistics, density=sum(statistics.counts) / max(known, 1))
    open_rows = 0 if examples.unknown is None else int((examples.unknown.counts() == examples.num_labels).sum())
    contents = _contents(examples)
    repeated = [(row, first) for row, first in find_leaks(contents, contents).pairs if row != first]
    lists = examples.labels.lists()
    inputs, empty = _inputs(examples)
    return Inspection(
        sources=examples.source,
        kind=examples.kind,
        rows=len(examples),
        inputs=inputs,
        labels=statistics,
        label_names=examples.label_names,
        unknown_labels=unknown,
        soft_labels=0 if examples.labels.values is None else int((examples.labels.values < 1).sum()),
        unknown_rows=open_rows,
        empty_inputs=empty,
        repeated_inputs=len(repeated),
        contradictions=sum(lists[row] != lists[first] for row, first in repeated),
        alike_labels=_alike(examples.label_names),
        problems=tuple(problem for source in examples.source for problem in source.problems)[:10],
        num_problems=sum(source.num_problems for source in examples.source),
    )


def _alike(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of names that differ only in case, spaces and Unicode form; the first is the first spelling."""
    first: dict[str, str] = {}
    spelled = ("".join(unicodedata.normalize("NFKC", name).casefold().split()) for name in names)
    return tuple(
        (seen, name) for name, key in zip(names, spelled, strict=True) if (seen := first.setdefault(key, name)) != name
    )


def _contents(examples: Examples) -> Any:
    """The content of the inputs, for ``find_leaks``."""
    if examples.images is not None:
        return examples.images.flatten(start_dim=1)
    return examples.texts if examples.texts is not None else examples.features


def _inputs(examples: Examples) -> tuple[dict[str, Any], int]:
    """Facts about the inputs, and the number of empty ones."""
    if examples.texts is not None:
        words = np.fromiter((len(text.split()) for text in examples.texts), dtype=np.int64, count=len(examples))
        told = {"words_mean": float(words.mean()), "words_median": float(np.median(words)), "words_most": int(words.max())}
        return told, int((words == 0).sum())
    if examples.features is None:
        return {"shape": list(examples.images.shape[1:]) if examples.images is not None else []}, 0
    features = examples.features
    dense = isinstance(features, np.ndarray)
    values = features if dense else features.data
    filled = np.count_nonzero(features, axis=1) if dense else np.bincount(_rows_of(features), minlength=len(examples))
    told = {"features": examples.num_features, "sparse": not dense, "missing": int(np.isnan(values).sum())}
    told["density"] = float(filled.sum() / max(len(examples) * examples.num_features, 1))
    return told, int((filled == 0).sum())


def _rows_of(features: Any) -> Any:
    """The row of each entry of a CSR matrix that is not 0."""
    rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
    return rows[features.data != 0]


def _source_dict(source: Source) -> dict[str, Any]:
    return {"path": source.path, "format": source.format, "chosen": dict(source.chosen), "num_problems": source.num_problems}
