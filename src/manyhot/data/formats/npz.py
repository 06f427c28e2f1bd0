"""numpy and scipy ``.npz``: features and labels in two files, or as two arrays of one file.

A file holds only one scipy sparse matrix, so the labels are in a second file: the one that ``label_file`` names, or one beside
the first with the same name, but Y in place of X, or labels in place of features. One file may hold both as arrays ``X`` and
``Y``, or ``features`` and ``labels``.
Nothing is unpickled, and claimed sizes are checked against the bytes of the file: see ``npz_arrays``.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import DataError, ProblemLog
from manyhot.data.formats.format import Format
from manyhot.data.formats.npz_arrays import NpzArrays
from manyhot.data.options import ReadOptions
from manyhot.data.tables.feature_rows import LARGEST
from manyhot.data.tables.label_values import WANTED
from manyhot.data.tables.numbered import compact_columns
from manyhot.data.tables.reorder import index_lists
from manyhot.data.tables.table import source_of

_INPUTS, _LABELS = ("X", "x", "features", "data"), ("Y", "y", "labels", "targets")
_PARTNERS = (("X", "Y"), ("x", "y"), ("features", "labels"))

Array = np.ndarray[Any, Any]


class _Loaded(NamedTuple):
    main: Any
    partner: Any = None


def read_npz(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """Features and labels of all rows; a problem's line is the row, counted from 1."""
    loaded = _load(file, _INPUTS, options)
    chosen: dict[str, Any] = {}
    unused: dict[str, str] = {}
    if loaded.partner is not None:
        features, labels = loaded
        unused["label_file"] = "the file itself has the labels"
    else:
        path = options.label_file or _partner(Path(file.name))
        if path is None and options.need_labels:
            raise problems.fatal(
                "labels must be an array 'Y' in the file, or a second file: one with the same name, but Y in place of X or"
                " labels in place of features, or the one that `label_file` names."
            )
        features, labels = loaded.main, np.zeros((loaded.main.shape[0], 0))
        if path is not None:
            chosen["label_file"] = str(path)
            with InputFile(path, max_expansion=options.max_expansion) as other:
                labels = _load(other, _LABELS, options).main
    _check_shapes(features, labels, options, problems)
    # Without names, columns are named by their numbers.
    names = options.label_names or tuple(map(str, range(labels.shape[1])))
    if len(names) != labels.shape[1]:
        raise problems.fatal(f"`label_names` must have one name per column of labels, {labels.shape[1]}; got {len(names)}.")
    single, bad_features = _features(features, problems)
    positive, unknown, bad_labels = _labels(labels, problems)
    feature_names = None
    if not isinstance(single, np.ndarray):
        single, feature_names = compact_columns(single)
    source = source_of(problems, "npz", chosen, unused=unused)
    given = {"features": single, "feature_names": feature_names, "unknown": unknown, "source": (source,)}
    examples = Examples(positive, tuple(names), absent="unknown", **given)
    bad = np.union1d(bad_features, bad_labels)
    return examples[np.setdiff1d(np.arange(len(examples)), bad)] if len(bad) else examples


def _load(file: InputFile, wanted: tuple[str, ...], options: ReadOptions) -> _Loaded:
    try:
        source = file.name if file.on_disk else io.BytesIO(file.read())
        with NpzArrays(source, max_expansion=options.max_expansion) as arrays:
            if "format" in arrays.names:
                return _Loaded(arrays.sparse_matrix())
            names = arrays.names
            main = next((arrays.array(name) for name in wanted if name in names), None)
            other = next((arrays.array(name) for name in _LABELS if name in names), None) if wanted is _INPUTS else None
            if main is None and len(names) == 1:
                main = arrays.array(next(iter(names)))
            if main is None:
                raise ValueError(f"it must hold an array called one of {', '.join(wanted)}; it holds {sorted(names)[:10]}")
            return _Loaded(main, other)
    except (DataError, MemoryError):
        raise
    except Exception as error:
        # zipfile, zlib, numpy's header parser and scipy's constructors each raise their own errors for a damaged file.
        raise DataError(
            f"could not be read as .npz ({error}). Is the file complete, and without pickled objects?", file=file.name
        ) from None


def _partner(path: Path) -> Path | None:
    for one, other in _PARTNERS:
        name = re.sub(rf"(?<![A-Za-z]){one}(?![A-Za-z])", other, path.name)
        if name != path.name and path.with_name(name).is_file():
            return path.with_name(name)
    return None


def _check_shapes(features: Any, labels: Any, options: ReadOptions, problems: ProblemLog) -> None:
    kind = features.dtype
    if features.ndim != 2 or kind.kind not in "fiub":
        raise problems.fatal(f"features must be a matrix of numbers; got {kind} {list(features.shape)}.")
    if labels.ndim != 2 or labels.shape[0] != features.shape[0]:
        raise problems.fatal(
            f"labels must be a matrix with one row per row of features, {features.shape[0]}; got {list(labels.shape)}."
        )
    if labels.dtype.kind not in "fiub":
        raise problems.fatal(f"labels must be numbers, {WANTED}; got {labels.dtype}.")
    if labels.shape[1] > options.max_labels:
        raise problems.fatal(
            f"there must be at most {options.max_labels:,} labels; the matrix has {labels.shape[1]:,} columns."
            " If that is intended, raise `max_labels`."
        )


def _features(features: Any, problems: ProblemLog) -> tuple[Any, Array]:
    """Features in float32, and the rows that are skipped because a number is infinite."""
    values = features if isinstance(features, np.ndarray) else features.data
    if values.dtype.kind == "f":
        infinite = np.abs(values) > LARGEST
        rows = np.nonzero(infinite)[0] if isinstance(features, np.ndarray) else _entry_rows(features)[infinite]
    else:
        rows = np.zeros(0, dtype=np.int64)
    bad: Array = np.unique(rows)
    for row in bad.tolist():
        problems.add("features must be finite numbers in float32; one is infinite. Mark missing values with NaN.", line=row + 1)
    with np.errstate(over="ignore"):
        return features.astype(np.float32), bad


def _labels(labels: Any, problems: ProblemLog) -> tuple[Any, Any, Array]:
    """Labels, unknown entries, and the rows that are skipped because a number is not a label."""
    if isinstance(labels, np.ndarray):
        rows, columns = np.nonzero(labels)
        values = labels[rows, columns].astype(np.float64)
    else:
        rows, columns, values = _entry_rows(labels), labels.indices, labels.data.astype(np.float64)
    missing = np.isnan(values)
    wrong = ~(missing | ((values >= 0) & (values <= 1)))
    bad, firsts = np.unique(rows[wrong], return_index=True)
    for row, entry in zip(bad.tolist(), np.flatnonzero(wrong)[firsts].tolist(), strict=True):
        problems.add(
            f"a label must be {WANTED}, or NaN if it is unknown; got {values[entry]:g}.",
            line=row + 1,
            column=str(int(columns[entry])),
        )
    unknown = index_lists(rows[missing], columns[missing], labels.shape) if missing.any() else None
    known = ~(missing | wrong)
    return index_lists(rows[known], columns[known], labels.shape, values[known].astype(np.float32)), unknown, bad


def _entry_rows(matrix: Any) -> Array:
    """The row of each stored entry of a CSR matrix."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


FORMAT = Format(
    name="npz",
    about="numpy or scipy matrices of features and of labels",
    read=read_npz,
    suffixes=(".npz",),
    magic=b"PK\x03\x04",
    takes=("label_names", "label_file"),
)
