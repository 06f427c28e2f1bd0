"""A folder of memory-mapped rows that ``manyhot pack`` wrote: texts or sparse features that stay on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from manyhot.data.examples import Examples, Source
from manyhot.data.files.problems import ProblemLog
from manyhot.data.formats.format import Format
from manyhot.data.mapped.arrays import ABOUT, check_lists, check_numbers, damaged, open_arrays
from manyhot.data.mapped.rows import MappedMatrix, MappedTexts, block_places
from manyhot.data.options import ReadOptions
from manyhot.labels.sparse import SparseLabels

NAME = "mapped"
# Choices of the reader that are reused to read other files the same way.
CHOSEN = ("text", "labels", "separator", "first_index")
_LABELS = {"labels": "int64", "label.ends": "int64"}
_TEXTS = {"text.content": "uint8", "text.ends": "int64"}
_FEATURES = {"columns": "int32", "feature.values": "float32", "feature.ends": "int64"}


def read_mapped(folder: Path, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All rows of a folder; every file is read once, to check it."""
    texts = (folder / "text.ends.bin").exists()
    about, arrays = open_arrays(folder, _LABELS | (_TEXTS if texts else _FEATURES))
    names, rows = about.get("label_names"), about.get("rows")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise damaged(folder, "its label names must be different strings")
    if not isinstance(rows, int) or any(len(array) != rows + 1 for name, array in arrays.items() if name.endswith(".ends")):
        raise damaged(folder, "its lists must have one entry for each row")
    if len(names) > options.max_labels:
        raise problems.fatal(f"there must be at most {options.max_labels:,} labels; it has {len(names):,}.")
    check_lists(folder, "labels", arrays["label.ends"], len(arrays["labels"]))
    check_numbers(folder, "labels", arrays["labels"], len(names))
    labels = _labels(folder, arrays["labels"], arrays["label.ends"], len(names))
    source = (_source(folder, about),)
    if texts:
        check_lists(folder, "texts", arrays["text.ends"], len(arrays["text.content"]))
        held = MappedTexts(folder, arrays["text.content"], arrays["text.ends"])
        return Examples(labels, tuple(names), texts=held, source=source)  # type: ignore[arg-type]
    width, feature_names = about.get("width"), about.get("feature_names")
    if not isinstance(width, int) or width < 0 or not (feature_names is None or isinstance(feature_names, list)):
        raise damaged(folder, "it must state the number of columns")
    check_lists(folder, "features", arrays["feature.ends"], len(arrays["columns"]))
    check_numbers(folder, "columns", arrays["columns"], width)
    matrix = MappedMatrix(folder, arrays["feature.ends"], arrays["columns"], arrays["feature.values"], width)
    own = None if feature_names is None else tuple(map(str, feature_names))
    return Examples(labels, tuple(names), features=matrix, feature_names=own, source=source)


def _labels(folder: Path, numbers: Any, ends: Any, num_labels: int) -> SparseLabels:
    """The labels; those of a row must increase."""
    for first, last in block_places(len(ends) - 1, 1 << 20):
        own = slice(int(ends[first]), int(ends[last]))
        starts = np.zeros(own.stop - own.start + 1, dtype=bool)
        starts[ends[first : last + 1] - own.start] = True
        if not ((np.diff(numbers[own]) > 0) | starts[1:-1]).all():
            raise damaged(folder, "the labels of a row must increase")
    maps = (_writable(folder, name, array) for name, array in zip(_LABELS, (numbers, ends), strict=True))
    indices, offsets = map(torch.from_numpy, maps)
    return SparseLabels(indices, offsets, num_labels, validate=False)


def _writable(folder: Path, name: str, array: Any) -> Any:
    """The same array as a copy-on-write memory map: torch needs writable memory, and the file must not change."""
    if not len(array):
        return np.array(array)
    return np.asarray(np.memmap(folder / f"{name}.bin", dtype=array.dtype, mode="c", shape=array.shape))


def _source(folder: Path, about: dict[str, Any]) -> Source:
    """The folder as a source, with the options of the packed files, so that rows to predict are read the same way."""
    chosen = about.get("chosen")
    known = chosen if isinstance(chosen, dict) else {}
    return Source(str(folder), NAME, {name: known[name] for name in CHOSEN if _is_choice(known.get(name))})


def _is_choice(value: Any) -> bool:
    return isinstance(value, (str, int)) or (isinstance(value, list) and all(isinstance(each, str) for each in value))


def _is_mapped(path: Path) -> bool:
    return (path / ABOUT).is_file()


FORMAT = Format(
    name=NAME,
    about="a folder of memory-mapped rows, made by `manyhot pack`",
    read=read_mapped,
    columns=True,
    folder=_is_mapped,
)
