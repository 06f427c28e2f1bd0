"""Missing feature values replaced by the mean of the training rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from manyhot._checks import shape_text
from manyhot.data.examples import Examples

Array = np.ndarray[Any, Any]


def fill_missing(examples: Examples, *, means: Array | None = None) -> tuple[Examples, Array]:
    """Replace NaN in the features by the mean of the other values.

    Compute the means on the training rows and pass them for all others, so that no test data enter a model. A column without
    any value has mean 0. No indicator columns are added: features keep their number and names.

    Args:
        examples: rows with features.
        means: ``[F]``; None computes them from these rows.

    Returns:
        The examples, and the means, float32 ``[F]``.

    Example:
        >>> from manyhot import SparseLabels
        >>> none = SparseLabels.from_lists([[], []], num_labels=0)
        >>> rows = Examples(none, (), features=np.asarray([[1, np.nan], [3, 4]], dtype=np.float32))
        >>> filled, means = fill_missing(rows)
        >>> filled.features.tolist(), means.tolist()
        ([[1.0, 4.0], [3.0, 4.0]], [2.0, 4.0])
    """
    features = examples.features
    if features is None:
        raise ValueError(f"fill_missing: the inputs must be features; they are {examples.kind}.")
    dense = isinstance(features, np.ndarray)
    values = features if dense else features.data
    gaps = np.isnan(values)
    if means is None:
        means = _means(features, gaps)
    elif means.shape != (examples.num_features,):
        raise ValueError(f"fill_missing: `means` must be [{examples.num_features}]; got {shape_text(means.shape)}.")
    if not gaps.any():
        return examples, means
    columns = np.broadcast_to(np.arange(features.shape[1]), features.shape) if dense else features.indices
    filled = features.copy()
    (filled if dense else filled.data)[gaps] = means[columns[gaps]]
    return replace(examples, features=filled), means


def _means(features: Any, gaps: Array) -> Array:
    rows, width = features.shape
    if isinstance(features, np.ndarray):
        sums = np.where(gaps, 0, features).sum(axis=0, dtype=np.float64)
        known = rows - gaps.sum(axis=0)
    else:
        sums = np.bincount(features.indices, weights=np.where(gaps, 0, features.data), minlength=width)
        known = rows - np.bincount(features.indices[gaps], minlength=width)
    means: Array = (sums / np.maximum(known, 1)).astype(np.float32)
    return means
