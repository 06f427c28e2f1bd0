"""Selecting and reordering rows, labels and feature columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhot.labels.sparse import SparseLabels

Array = np.ndarray[Any, Any]
Rows = int | slice | Sequence[int] | Array | Tensor
# The largest number of unknown entries; each takes 8 bytes.
MAX_UNKNOWN = 2**25


def row_numbers(rows: Rows, count: int) -> Array:
    """``rows`` as int64 indices into ``count`` rows."""
    if isinstance(rows, (int, np.integer)):
        return np.asarray([range(count)[rows]], dtype=np.int64)
    if isinstance(rows, slice):
        return np.arange(count, dtype=np.int64)[rows]
    chosen = np.asarray(rows)
    numbers: Array = np.arange(count, dtype=np.int64)[chosen if chosen.dtype == bool else chosen.astype(np.int64)]
    return numbers


def name_numbers(who: str, names: Sequence[str]) -> dict[str, int]:
    """The index of each name; duplicate names are an error."""
    number = {name: place for place, name in enumerate(names)}
    if len(number) != len(names):
        twice = next(name for place, name in enumerate(names) if number[name] != place)
        raise ValueError(f"{who}: names must differ; {twice!r} occurs twice. Remove one.")
    return number


def index_lists(rows: Array, columns: Array, shape: tuple[int, int], values: Array | None = None) -> SparseLabels:
    """``SparseLabels`` from the rows and columns of its entries, in any order, each once.

    Args:
        rows: ``[P]``.
        columns: ``[P]``.
        shape: ``[R, L]``.
        values: ``[P]`` soft labels; entries of 0 are dropped, and None or all 1 makes the labels hard.
    """
    if values is not None and not values.all():
        kept = values != 0
        rows, columns, values = rows[kept], columns[kept], values[kept]
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))]).astype(np.int64))
    keys = rows.astype(np.int64) * shape[1] + columns
    if values is None or bool((values == 1).all()):
        keys.sort()
        return SparseLabels(torch.from_numpy(keys % max(shape[1], 1)), offsets, shape[1], validate=False)
    order = np.argsort(keys)
    indices, soft = torch.from_numpy(columns[order].astype(np.int64)), torch.from_numpy(values[order].astype(np.float32))
    return SparseLabels(indices, offsets, shape[1], values=soft, validate=False)


def renumbered_labels(labels: SparseLabels, moved: Array, num_labels: int) -> SparseLabels:
    """Labels in which label i becomes ``moved[i]``, or is dropped if that is -1."""
    target = moved[labels.indices.numpy()]
    kept = target >= 0
    values = None if labels.values is None else labels.values.numpy()[kept]
    return index_lists(labels.rows.numpy()[kept], target[kept], (len(labels), num_labels), values)


def with_unknown_columns(unknown: SparseLabels | None, columns: Sequence[int], shape: tuple[int, int]) -> SparseLabels | None:
    """``unknown`` with whole new columns added."""
    if not columns:
        return unknown
    if shape[0] * len(columns) > MAX_UNKNOWN:
        raise ValueError(
            f"with_labels: at most {MAX_UNKNOWN:,} labels may be unknown; {len(columns):,} labels without a column in"
            f" {shape[0]:,} rows make {shape[0] * len(columns):,}. Take fewer rows at a time."
        )
    rows = np.repeat(np.arange(shape[0], dtype=np.int64), len(columns))
    entries = np.tile(np.asarray(columns, dtype=np.int64), shape[0])
    if unknown is not None:
        rows = np.concatenate([rows, unknown.rows.numpy()])
        entries = np.concatenate([entries, unknown.indices.numpy()])
    return index_lists(rows, entries, shape)


def resized_features(features: Any, width: int) -> Any:
    """Features with columns dropped at the end, or columns of zeros added, to ``width``."""
    have = features.shape[1]
    if have >= width:
        return features[:, :width]
    if isinstance(features, np.ndarray):
        return np.pad(features, ((0, 0), (0, width - have)))
    wider = features.copy()
    wider.resize((features.shape[0], width))
    return wider
