"""numpy and scipy ``.npz``: features and labels in two files, or as two arrays of one file.

A scipy sparse matrix fills a file, so labels are in a second one: named by ``label_file``, or found beside the first by its
name with Y for X or labels for features. One file may hold both as arrays ``X`` and ``Y``, or ``features`` and ``labels``.
Nothing is unpickled.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import DataError, ProblemLog
from manyhot.data.options import ReadOptions
from manyhot.data.tables.reorder import index_lists
from manyhot.data.tables.table import source_of

_INPUTS, _LABELS = ("X", "x", "features", "data"), ("Y", "y", "labels", "targets")
_PARTNERS = (("X", "Y"), ("x", "y"), ("features", "labels"))


def read_npz(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """Features and labels of all rows."""
    whole = file.compression is None and file.name != "-"
    loaded = _load(cast(IO[bytes], file.stream) if whole else io.BytesIO(file.read()), file.name, _INPUTS)
    chosen: dict[str, Any] = {}
    if loaded.partner is not None:
        features, labels = loaded.main, loaded.partner
    else:
        path = options.label_file or _partner(Path(file.name))
        if path is None:
            raise problems.fatal(
                "labels must come with the features: as an array 'Y' in the file, or in a second file, whose name has Y for X"
                " or labels for features, or that `label_file` names."
            )
        chosen["label_file"] = str(path)
        with InputFile(path) as other:
            features, labels = loaded.main, _load(cast(IO[bytes], other.stream), str(path), _LABELS).main
    features = _features(features, problems)
    if labels.ndim != 2 or labels.shape[0] != features.shape[0]:
        raise problems.fatal(
            f"labels must be a matrix with one row per row of features, {features.shape[0]}; got {list(labels.shape)}."
        )
    positive, unknown = _labels(labels, problems)
    names = options.label_names or tuple(map(str, range(labels.shape[1])))
    if len(names) != labels.shape[1]:
        raise problems.fatal(f"`label_names` must have one name per column of labels, {labels.shape[1]}; got {len(names)}.")
    source = source_of(problems, "npz", chosen)
    return Examples(positive, tuple(names), features=features, unknown=unknown, source=(source,), absent="unknown")


class _Loaded:
    def __init__(self, main: Any, partner: Any = None) -> None:
        self.main, self.partner = main, partner


def _load(stream: IO[bytes], path: str, wanted: tuple[str, ...]) -> _Loaded:
    from scipy import sparse

    try:
        with np.load(stream, allow_pickle=False) as arrays:
            names = set(arrays.files)
            if "format" not in names:
                main = next((arrays[name] for name in wanted if name in names), None)
                other = next((arrays[name] for name in _LABELS if name in names), None) if wanted is _INPUTS else None
                if main is None and len(names) == 1:
                    main = arrays[next(iter(names))]
                if main is not None:
                    return _Loaded(main, other)
                raise DataError(f"must hold an array called one of {', '.join(wanted)}; it holds {sorted(names)}.", file=path)
        stream.seek(0)
        matrix = sparse.csr_matrix(sparse.load_npz(stream))
        matrix.check_format(full_check=True)
        matrix.sum_duplicates()
        return _Loaded(matrix)
    except DataError:
        raise
    except Exception as error:
        # zipfile, zlib, numpy's header parser and scipy's constructors each raise what they like on a damaged file.
        raise DataError(
            f"could not be read as .npz ({error}). Is the file whole, and without pickled objects?", file=path
        ) from None


def _partner(path: Path) -> Path | None:
    for one, other in _PARTNERS:
        name = re.sub(rf"(?<![A-Za-z]){one}(?![A-Za-z])", other, path.name)
        if name != path.name and path.with_name(name).is_file():
            return path.with_name(name)
    return None


def _features(features: Any, problems: ProblemLog) -> Any:
    kind = getattr(features, "dtype", None)
    if features.ndim != 2 or kind is None or kind.kind not in "fiub":
        raise problems.fatal(f"features must be a matrix of numbers; got {kind} {list(features.shape)}.")
    single = features.astype(np.float32)
    if np.isinf(single if isinstance(single, np.ndarray) else single.data).any():
        raise problems.fatal("features must be finite numbers in float32; one is infinite. Mark missing values with NaN.")
    return single


def _labels(labels: Any, problems: ProblemLog) -> tuple[Any, Any]:
    if labels.dtype.kind not in "fiub":
        raise problems.fatal(f"labels must be numbers, 0 or 1; got {labels.dtype}.")
    if isinstance(labels, np.ndarray):
        rows, columns = np.nonzero(labels)
        values = labels[rows, columns].astype(np.float64)
    else:
        entries = labels.tocoo()
        rows, columns, values = entries.row, entries.col, entries.data.astype(np.float64)
    wrong = ~(np.isnan(values) | (values == 0) | (values == 1))
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise problems.fatal(
            f"a label must be 0 or 1, or NaN where it is not known; got {values[first]:g}.",
            line=int(rows[first]) + 1,
            column=str(int(columns[first])),
        )
    missing = np.isnan(values)
    unknown = index_lists(rows[missing], columns[missing], labels.shape) if missing.any() else None
    return index_lists(rows[values == 1], columns[values == 1], labels.shape), unknown
