"""Examples: the inputs and labels of rows, with their names and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from manyhot.data.files.problems import Problem
from manyhot.data.tables.numbered import by_number, column_numbers, picked_columns
from manyhot.data.tables.reorder import (
    Rows,
    name_numbers,
    renumbered_labels,
    resized_features,
    row_numbers,
    with_unknown_columns,
)
from manyhot.labels.sparse import SparseLabels


@dataclass(frozen=True, slots=True)
class Source:
    """A file, and how it was read.

    Args:
        path: the file's name as it was given.
        format: the name of the format it was read as.
        chosen: the given or detected columns, separator, label file, ...
        problems: the first problems, if they were collected.
        num_problems: the number of problems; each one is a row that was skipped.
        remarks: guesses of the reader that a user should know about, one sentence each.
        unused: options that this file does not use, each with the reason.
    """

    path: str
    format: str
    chosen: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    num_problems: int = 0
    remarks: tuple[str, ...] = ()
    unused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of inputs (texts, features or images) with their labels.

    Args:
        labels: ``[R, L]``, hard, or soft with ``values`` in [0, 1].
        label_names: one name per label.
        texts: one string per row, or None.
        features: scipy CSR matrix or float32 array ``[R, F]``, or None; a missing value is NaN (see ``fill_missing``).
        images: a tensor ``[R, C, H, W]``, or None; an array is converted to a tensor.
        unknown: the unknown entries, as index lists ``[R, L]``; None if all are known.
        feature_names: one name per feature, or None if the file has none.
        ids: one string per row, or None.
        source: the files.
        absent: how labels that are not in ``label_names`` count: ``"negative"`` if rows list their labels, ``"unknown"`` if
            each label has a column.
        unseen: labels dropped by ``with_labels``, and the number of rows with each.

    Example:
        >>> labels = SparseLabels.from_lists([[0], [], [1]], num_labels=2)
        >>> examples = Examples(labels, ("cat", "dog"), texts=["a cat", "nothing", "a dog"])
        >>> examples, examples[1:].texts
        (Examples(3 rows of texts, 2 labels), ['nothing', 'a dog'])
        >>> examples.with_labels(["bird", "cat"]).unseen
        {'dog': 1}
    """

    labels: SparseLabels
    label_names: tuple[str, ...]
    texts: list[str] | None = None
    features: Any = None
    images: Any = None
    unknown: SparseLabels | None = None
    feature_names: tuple[str, ...] | None = None
    ids: list[str] | None = None
    source: tuple[Source, ...] = ()
    absent: Literal["negative", "unknown"] = "negative"
    unseen: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows, width = self.labels.shape
        if isinstance(self.images, np.ndarray):
            object.__setattr__(self, "images", torch.from_numpy(np.ascontiguousarray(self.images)))
        given = [name for name in ("texts", "features", "images") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"Examples: one of texts, features and images must be given; got {given or 'none'}.")
        for name in (given[0], "ids", "unknown"):
            part = getattr(self, name)
            size = part.shape[0] if hasattr(part, "shape") else None if part is None else len(part)
            if size not in (None, rows):
                raise ValueError(f"Examples: `{name}` must have one row per row of `labels`, {rows}; got {size}.")
        if len(self.label_names) != width:
            raise ValueError(f"Examples: `label_names` must have one name per label, {width}; got {len(self.label_names)}.")
        if self.unknown is not None and self.unknown.num_labels != width:
            raise ValueError(f"Examples: `unknown` must have {width} labels; got {self.unknown.num_labels}.")
        if self.feature_names is not None and len(self.feature_names) != self.num_features:
            raise ValueError(
                f"Examples: `feature_names` must have one name per feature, {self.num_features}; got {len(self.feature_names)}."
            )

    def __repr__(self) -> str:
        return f"Examples({len(self):,} rows of {self.kind}, {self.num_labels:,} labels)"

    @property
    def num_labels(self) -> int:
        """L."""
        return self.labels.num_labels

    @property
    def num_features(self) -> int:
        """F, or 0 if the inputs are not features."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def kind(self) -> str:
        """``"texts"``, ``"features"`` or ``"images"``."""
        return next(name for name in ("texts", "features", "images") if getattr(self, name) is not None)

    @property
    def soft(self) -> bool:
        """Whether some label lies strictly between 0 and 1."""
        return self.labels.values is not None

    def hardened(self) -> Examples:
        """The same rows with hard labels, for metrics: a soft label above one half is positive.

        Example:
            >>> soft = SparseLabels.from_lists([[0, 1]], num_labels=2, values=[[0.7, 0.5]])
            >>> Examples(soft, ("cat", "dog"), texts=["a cat"]).hardened().labels.lists()
            [[0]]
        """
        return self if self.labels.values is None else replace(self, labels=self.labels.hardened())

    def where(self) -> Tensor | None:
        """Bool ``[R, L]``, True where a label is known; None if all are."""
        return None if self.unknown is None else ~self.unknown.dense(torch.bool)

    def label_sets(self) -> list[list[str]]:
        """One list of label names per row; soft labels count above one half."""
        return [[self.label_names[place] for place in row] for row in self.hardened().labels.lists()]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Rows) -> Examples:
        """Some rows as ``Examples``: by number, slice, indices, or a bool array or tensor."""
        picked = row_numbers(rows, len(self))
        as_list = picked.tolist()
        tensor = torch.from_numpy(picked)
        return replace(
            self,
            labels=self.labels[tensor],
            texts=None if self.texts is None else [self.texts[row] for row in as_list],
            features=None if self.features is None else self.features[picked],
            images=None if self.images is None else self.images[tensor],
            unknown=None if self.unknown is None else self.unknown[tensor],
            ids=None if self.ids is None else [self.ids[row] for row in as_list],
        )

    def with_labels(self, names: Sequence[str]) -> Examples:
        """The same rows with labels numbered by ``names``.

        Labels that are not in ``names`` are dropped and counted in ``unseen``. Names that are not labels of these examples are
        negative or unknown in every row, as ``absent`` says.
        """
        if tuple(names) == self.label_names:
            return self
        number = name_numbers("with_labels", names)
        moved = np.asarray([number.get(name, -1) for name in self.label_names], dtype=np.int64).reshape(-1)
        counts = np.bincount(self.labels.indices.numpy(), minlength=self.num_labels)
        unseen = {name: int(counts[i]) for i, name in enumerate(self.label_names) if moved[i] < 0 and counts[i]}
        unknown = None if self.unknown is None else renumbered_labels(self.unknown, moved, len(number))
        if self.absent == "unknown":
            own = set(self.label_names)
            added = [place for name, place in number.items() if name not in own]
            unknown = with_unknown_columns(unknown, added, (len(self), len(number)))
        return replace(
            self,
            labels=renumbered_labels(self.labels, moved, len(number)),
            label_names=tuple(names),
            unknown=unknown,
            unseen=unseen,
        )

    def with_features(self, features: Sequence[str] | int) -> Examples:
        """The same rows with the given feature columns: by name, or the first ``features`` columns if they have no names.

        Missing columns are 0; other columns are dropped. Columns of features without names can be listed as strings of
        their numbers from 0.
        """
        if self.features is None:
            raise ValueError(f"with_features: the inputs must be features; they are {self.kind}.")
        if isinstance(features, int):
            numbers = column_numbers(self.feature_names)
            whole = (
                resized_features(self.features, features) if numbers is None else by_number(self.features, numbers, features)
            )
            return replace(self, features=whole, feature_names=None)
        if tuple(features) == self.feature_names:
            return self
        if self.feature_names is None:
            wanted = column_numbers(features)
            if wanted is None:
                raise ValueError("with_features: these features have no names; give the number of features.")
            return replace(self, features=picked_columns(self.features, wanted), feature_names=tuple(features))
        number = name_numbers("with_features", self.feature_names)
        order = np.asarray([number.get(name, self.num_features) for name in features], dtype=np.int64).reshape(-1)
        padded = resized_features(self.features, self.num_features + 1)
        return replace(self, features=padded[:, order], feature_names=tuple(features))

    def counted_from_0(self) -> Examples:
        """The same rows with an empty first column, for unnamed features that were counted from 1."""
        numbers = column_numbers(self.feature_names)
        source = tuple(replace(each, chosen={**each.chosen, "first_index": 0}, remarks=()) for each in self.source)
        if numbers is not None:
            return replace(self, feature_names=tuple(map(str, (numbers + 1).tolist())), source=source)
        moved = by_number(self.features, np.arange(1, self.num_features + 1), self.num_features + 1)
        return replace(self, features=moved, source=source)


def concatenate_examples(parts: Sequence[Examples]) -> Examples:
    """Concatenate examples; label names are the union in order of first appearance.

    Example:
        >>> one = Examples(SparseLabels.from_lists([[0]], num_labels=1), ("cat",), texts=["a cat"])
        >>> two = Examples(SparseLabels.from_lists([[0]], num_labels=1), ("dog",), texts=["a dog"])
        >>> both = concatenate_examples([one, two])
        >>> both.label_names, both.label_sets()
        (('cat', 'dog'), [['cat'], ['dog']])
    """
    if not parts:
        raise ValueError("concatenate_examples: `parts` must hold at least one Examples; got none.")
    if len(parts) == 1:
        return parts[0]
    kinds = {part.kind for part in parts}
    if len(kinds) != 1:
        raise ValueError(f"concatenate_examples: all parts must hold one kind of input; got {sorted(kinds)}.")
    names = list(dict.fromkeys(name for part in parts for name in part.label_names))
    aligned = [part.with_labels(names) for part in parts]
    features, feature_names = _stacked_features(parts) if "features" in kinds else (None, None)
    unseen: dict[str, int] = {}
    for part in parts:
        for name, count in part.unseen.items():
            unseen[name] = unseen.get(name, 0) + count
    blank = torch.zeros(0, dtype=torch.int64)
    unknown = [
        part.unknown or SparseLabels(blank, torch.zeros(len(part) + 1, dtype=torch.int64), len(names)) for part in aligned
    ]
    return Examples(
        SparseLabels.collate([part.labels for part in aligned]),
        tuple(names),
        texts=None if "texts" not in kinds else [text for part in parts for text in part.texts or ()],
        features=features,
        images=None if "images" not in kinds else torch.cat([part.images for part in parts if part.images is not None]),
        unknown=SparseLabels.collate(unknown) if any(part.unknown is not None for part in aligned) else None,
        feature_names=feature_names,
        ids=None if any(part.ids is None for part in parts) else [name for part in parts for name in part.ids or ()],
        source=tuple(file for part in parts for file in part.source),
        absent="unknown" if any(part.absent == "unknown" for part in parts) else "negative",
        unseen=unseen,
    )


def _stacked_features(parts: Sequence[Examples]) -> tuple[Any, tuple[str, ...] | None]:
    if all(part.feature_names is not None for part in parts):
        names = tuple(dict.fromkeys(name for part in parts for name in part.feature_names or ()))
        blocks = [part.with_features(names).features for part in parts]
    elif all(part.feature_names is None for part in parts):
        names, width = None, max(part.num_features for part in parts)
        blocks = [resized_features(part.features, width) for part in parts]
    else:
        if any(part.feature_names is not None and column_numbers(part.feature_names) is None for part in parts):
            raise ValueError("concatenate_examples: either all parts must have feature names, or none.")
        names = _all_numbers(parts)
        blocks = [part.with_features(names).features for part in parts]
    if all(isinstance(block, np.ndarray) for block in blocks):
        return np.concatenate(blocks), names
    from scipy import sparse

    return sparse.vstack([sparse.csr_matrix(block) for block in blocks], format="csr"), names


def _all_numbers(parts: Sequence[Examples]) -> tuple[str, ...]:
    """The column numbers of all parts, for features without names or with numbers as names."""
    numbers: set[int] = set()
    for part in parts:
        own = column_numbers(part.feature_names)
        numbers.update(range(part.num_features) if own is None else own.tolist())
    return tuple(map(str, sorted(numbers)))
