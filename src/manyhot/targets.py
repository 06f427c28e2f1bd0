"""scikit-learn's ``y`` in all its forms, as labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from manyhot.labels.encode import encode_label_sets, label_names
from manyhot.labels.sparse import SparseLabels

Array = np.ndarray[Any, Any]
INDICATORS, NAMES, BINARY, MULTICLASS = "indicators", "names", "binary", "multiclass"


@dataclass(frozen=True, eq=False)
class Targets:
    """Labels, and how to return predictions in the form of ``y``.

    Args:
        labels: ``[N, L]``, hard or soft.
        unknown: the unknown entries, or None.
        classes: L label numbers, column names, label names or classes; two for ``"binary"``.
        kind: ``"indicators"`` (a matrix), ``"names"`` (a collection of names for each row), ``"binary"`` or ``"multiclass"``
            (one class for each row).
    """

    labels: SparseLabels
    unknown: SparseLabels | None
    classes: Array
    kind: str

    @property
    def label_names(self) -> tuple[str, ...]:
        """One name per label: the classes if they differ as text, otherwise label numbers."""
        own = self.classes[1:] if self.kind == BINARY else self.classes
        names = tuple(str(each) for each in own)
        return names if len(set(names)) == len(names) else tuple(str(place) for place in range(len(names)))


def read_targets(who: str, y: Any) -> Targets:
    """Read ``y``: indicators, dense or sparse; collections of names; or a column of classes."""
    if hasattr(y, "tocsr"):
        _check_unit(who, y.tocsr().data)
        labels = SparseLabels.from_scipy(y)
        return Targets(labels, None, np.arange(labels.num_labels), INDICATORS)
    sets = label_sets(who, y)
    if sets is not None:
        names = label_names(sets)
        return Targets(encode_label_sets(sets, names=names), None, np.asarray(names), NAMES)
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] > 1:
        return _indicators(who, values, getattr(y, "columns", None))
    return _classes(who, y)


def label_sets(who: str, y: Any) -> list[list[str]] | None:
    """The label names of each row if ``y`` holds them: lists, tuples, sets or arrays of strings, in a list, array or column."""
    if getattr(y, "ndim", 1) == 2 and np.shape(y)[1] == 1:
        y = np.asarray(y, dtype=object)[:, 0]
    if isinstance(y, (str, bytes)) or getattr(y, "ndim", 1) != 1 or not hasattr(y, "__iter__"):
        return None
    rows = list(y)
    collections = [isinstance(row, (list, tuple, set, frozenset, np.ndarray)) for row in rows]
    if not any(collections):
        return None
    if not all(collections):
        place = collections.index(False)
        raise ValueError(
            f"{who}: y must hold a collection of labels in every row; got {rows[place]!r} in row {place}. Use [] for no labels."
        )
    if not any(len(row) for row in rows):
        raise ValueError(f"{who}: y must name at least one label; got {len(rows)} rows without any.")
    if not any(isinstance(name, str) for row in rows for name in row):
        if len({len(row) for row in rows}) > 1:
            raise ValueError(
                f"{who}: y must be names (strings) if rows have different numbers of labels; got"
                f" {next(name for row in rows for name in row)!r}. Turn label numbers into an indicator matrix."
            )
        return None
    for place, row in enumerate(rows):
        wrong = [name for name in row if not isinstance(name, str)]
        if wrong:
            raise ValueError(f"{who}: y must hold names (strings) in every row; got {wrong[0]!r} in row {place}.")
    return [[str(name) for name in row] for row in rows]


def _indicators(who: str, values: Array, columns: Any) -> Targets:
    table = values.astype(np.float64)
    known = ~np.isnan(table)
    _check_unit(who, table[known])
    unknown = None if known.all() else SparseLabels.from_dense(torch.from_numpy(~known))
    table = np.where(known, table, 0.0)
    hard = bool(((table == 0) | (table == 1)).all())
    labels = SparseLabels.from_dense(torch.from_numpy(table == 1 if hard else table.astype(np.float32)))
    return Targets(labels, unknown, np.arange(labels.num_labels) if columns is None else np.asarray(columns), INDICATORS)


def _classes(who: str, y: Any) -> Targets:
    from sklearn.utils import assert_all_finite
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

    column = column_or_1d(y, warn=True)
    assert_all_finite(column, input_name="y")
    check_classification_targets(column)
    classes, places = np.unique(column, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"{who}: y must have more than one class; got 1 class.")
    if len(classes) == 2:
        return Targets(SparseLabels.from_dense(torch.from_numpy(places == 1)[:, None]), None, classes, BINARY)
    return Targets(SparseLabels.from_lists(places[:, None], num_labels=len(classes)), None, classes, MULTICLASS)


def _check_unit(who: str, values: Array) -> None:
    wrong = values[~((values >= 0) & (values <= 1))]
    if len(wrong):
        raise ValueError(f"{who}: y must be in [0, 1], or NaN for unknown labels; got {wrong[0]:g}.")
