"""Unnamed features with very high column numbers. Later steps allocate arrays with one value per column, so if few of very many
columns occur, only these are kept, with their numbers as names: ``("7", "123456789")``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from manyhot.data.tables.label_rows import is_number_below

MOST_COLUMNS = 2**31 - 1
# Up to this many columns, all are kept. With more, all are kept if at least one in ``SHARE`` occurs.
MANY_COLUMNS = 2**16
SHARE = 4

Array = np.ndarray[Any, Any]


def compact_columns(features: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Drop the unused columns of a CSR matrix if few of very many occur.

    Returns:
        The matrix, and its column numbers as names; None in place of the names if no column was dropped.

    Example:
        >>> from scipy.sparse import csr_matrix
        >>> wide = csr_matrix(([1.0, 2.0], ([0, 0], [7, 123456789])), shape=(1, 123456790))
        >>> features, names = compact_columns(wide)
        >>> features.toarray().tolist(), names
        ([[1.0, 2.0]], ('7', '123456789'))
    """
    rows, width = features.shape
    if width <= MANY_COLUMNS:
        return features, None
    from scipy.sparse import csr_matrix

    occurring, places = np.unique(features.indices, return_inverse=True)
    if len(occurring) * SHARE >= width:
        return features, None
    compact = csr_matrix((features.data, places.reshape(-1), features.indptr), shape=(rows, len(occurring)))
    return compact, tuple(map(str, occurring.tolist()))


def column_numbers(names: Sequence[str] | None) -> Array | None:
    """The names as column numbers, or None if one of them is not a column number."""
    if names is None or not all(is_number_below(name, MOST_COLUMNS) for name in names):
        return None
    return np.asarray([int(name) for name in names], dtype=np.int64)


def by_number(features: Any, numbers: Array, width: int) -> Any:
    """Features ``[R, width]`` in which column ``i`` of ``features`` is column ``numbers[i]``; columns beyond ``width`` are
    dropped."""
    from scipy.sparse import csr_matrix

    entries = csr_matrix(features).tocoo()
    columns = numbers[entries.col]
    kept = columns < width
    return csr_matrix((entries.data[kept], (entries.row[kept], columns[kept])), shape=(features.shape[0], width))


def picked_columns(features: Any, numbers: Array) -> Any:
    """The columns of ``numbers`` in that order; missing columns are 0."""
    from scipy.sparse import csr_matrix

    place = {number: new for new, number in enumerate(numbers.tolist())}
    entries = csr_matrix(features).tocoo()
    columns = np.asarray([place.get(column, -1) for column in entries.col.tolist()], dtype=np.int64)
    kept = columns >= 0
    shape = (features.shape[0], len(numbers))
    return csr_matrix((entries.data[kept], (entries.row[kept], columns[kept])), shape=shape)
