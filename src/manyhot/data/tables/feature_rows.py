"""Features gathered row by row: table cells, or one cell that holds a vector.

A missing value is NaN: it is replaced later by the mean of the training rows (``fill_missing``), because a reader sees only one
file. A column of strings becomes one 0/1 column per category, named ``column=value``; a missing value is 0 in all of them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.tables.column_kinds import is_number
from manyhot.data.tables.decimals import has_decimal_comma, number_reader
from manyhot.data.tables.label_values import is_missing
from manyhot.data.tables.numbered import MOST_COLUMNS, compact_columns

Array = np.ndarray[Any, Any]
GatheredFeatures = tuple[Any, tuple[str, ...] | None]
LARGEST = float(np.finfo(np.float32).max)
# Categories give many columns of zeros: a table with more cells than this is stored as a sparse matrix.
DENSE_CELLS = 2**25


def all_fit(row: Sequence[float]) -> bool:
    """Whether all numbers are finite in float32; NaN, a missing value, is fine.

    Example:
        >>> all_fit([1.0, float("nan")]), all_fit([1e39]), all_fit([])
        (True, False, True)
    """
    if not row or (not math.isnan(sum(row)) and min(row) >= -LARGEST and max(row) <= LARGEST):
        return True
    return all(-LARGEST <= value <= LARGEST or value != value for value in row)


class FeatureCells:
    """Rows of one number or category per column.

    Args:
        names: the columns.
        nominal: the categorical columns. A mapping also gives their categories; other values are then 0 in every category.
        problems: records cells that are not numbers.
        decimal: the decimal mark of numbers.

    Example:
        >>> cells = FeatureCells(["size", "colour"], {"colour"}, ProblemLog("raise", "a file"))
        >>> _ = cells.add(["1.5", "red"], line=1), cells.add(["", "blue"], line=2)
        >>> features, names = cells.finish()
        >>> features.tolist(), names
        ([[1.5, 0.0, 1.0], [nan, 1.0, 0.0]], ('size', 'colour=blue', 'colour=red'))
    """

    def __init__(self, names: Sequence[str], nominal: Any, problems: ProblemLog, decimal: str | None = None) -> None:
        self.names = list(names)
        self.problems, self.number = problems, number_reader(decimal)
        self.numeric = [place for place, name in enumerate(names) if name not in nominal]
        self.values = array("f")
        self.codes = {place: array("q") for place, name in enumerate(names) if name in nominal}
        self.fixed = isinstance(nominal, Mapping)
        self.categories: dict[int, dict[str, int]] = {}
        for place in self.codes:
            known = nominal[self.names[place]] if self.fixed else ()
            self.categories[place] = {value: number for number, value in enumerate(known)}
        self.unseen: dict[str, set[str]] = {}
        self.num_rows = 0

    def add(self, cells: Sequence[Any], *, line: int) -> bool:
        """Add a row. If a cell is not a number, the problem is reported and the result is False."""
        try:
            row = [self.number(cells[place]) for place in self.numeric]
        except (TypeError, ValueError, OverflowError):
            row = self._careful(cells, line)
            if len(row) < len(self.numeric):
                return False
        if not all_fit(row):
            place = next(place for place, value in zip(self.numeric, row, strict=True) if not all_fit([value]))
            self.problems.add(
                f"a feature must be a finite number in float32; got {shown(cells[place])}.", line=line, column=self.names[place]
            )
            return False
        self.values.extend(row)
        for place, codes in self.codes.items():
            codes.append(-1 if is_missing(cells[place]) else self._code(place, str(cells[place]).strip()))
        self.num_rows += 1
        return True

    def nominal_values(self) -> dict[str, tuple[str, ...]]:
        """The categories of each categorical column, in the order of its features."""
        return {self.names[place]: tuple(self._ordered(place)) for place in self.codes}

    def remarks(self) -> list[str]:
        """Remarks on categories that did not occur in training, and on categories that look like numbers."""
        found = []
        for place in () if self.fixed else self.codes:
            names = self._ordered(place)
            marked = [name for name in names if has_decimal_comma(name)]
            if marked and all(has_decimal_comma(name) or is_number(name) for name in names):
                found.append(
                    f"Column {self.names[place]!r} is read as categories, such as {marked[0]!r}. If they are numbers with a"
                    " decimal comma, use `decimal=','`."
                )
        for column, values in self.unseen.items():
            some = ", ".join(map(repr, sorted(values)[:5])) + (", ..." if len(values) > 5 else "")
            found.append(
                f"Column {column!r} has categories that did not occur in training: {some}. They are treated as missing."
            )
        return found

    def finish(self) -> GatheredFeatures:
        """float32 ``[R, F]``, dense or CSR, and the names of the columns."""
        numbers: Array = np.frombuffer(self.values, dtype=np.float32).reshape(self.num_rows, len(self.numeric))
        if not self.codes:
            return numbers.copy(), tuple(self.names)
        names: list[str] = []
        starts: dict[int, int] = {}
        for place, name in enumerate(self.names):
            starts[place] = len(names)
            names += [f"{name}={value}" for value in self._ordered(place)] if place in self.codes else [name]
        numeric_at = np.asarray([starts[place] for place in self.numeric], dtype=np.int64)
        ones = [self._ones(place, starts[place]) for place in self.codes]
        rows, columns = (np.concatenate(parts) for parts in zip(*ones, strict=True))
        shape = (self.num_rows, len(names))
        if shape[0] * shape[1] > DENSE_CELLS:
            return _sparse_table(numbers, numeric_at, rows, columns, shape), tuple(names)
        features = np.zeros(shape, dtype=np.float32)
        features[:, numeric_at] = numbers
        features[rows, columns] = 1
        return features, tuple(names)

    def _code(self, place: int, value: str) -> int:
        known = self.categories[place]
        if not self.fixed:
            return known.setdefault(value, len(known))
        if value not in known:
            self.unseen.setdefault(self.names[place], set()).add(value[:60])
        return known.get(value, -1)

    def _ordered(self, place: int) -> list[str]:
        return list(self.categories[place]) if self.fixed else sorted(self.categories[place])

    def _ones(self, place: int, start: int) -> tuple[Array, Array]:
        """Rows and columns of the 1s of a categorical column."""
        codes = np.frombuffer(self.codes[place], dtype=np.int64)
        ordered = self._ordered(place)
        rank = np.zeros(len(ordered) + 1, dtype=np.int64)
        rank[[self.categories[place][value] for value in ordered]] = np.arange(len(ordered))
        rows = np.flatnonzero(codes >= 0)
        return rows, start + rank[codes[rows]]

    def _careful(self, cells: Sequence[Any], line: int) -> list[float]:
        """The numbers of a row, NaN for missing ones. A cell that is not a number is reported and ends the list."""
        row: list[float] = []
        for place in self.numeric:
            cell = cells[place]
            try:
                row.append(math.nan if is_missing(cell) else self.number(cell))
            except (TypeError, ValueError, OverflowError):
                self.problems.add(
                    f"a feature must be a number; got {shown(cell)}. Correct it, or leave the column out of `features`.",
                    line=line,
                    column=self.names[place],
                )
                break
        return row


def _sparse_table(numbers: Array, numeric_at: Array, rows: Array, columns: Array, shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_matrix

    own_rows, own_columns = np.nonzero(numbers)
    values = np.concatenate([numbers[own_rows, own_columns], np.ones(len(rows), dtype=np.float32)])
    places = (np.concatenate([own_rows, rows]), np.concatenate([numeric_at[own_columns], columns]))
    return csr_matrix((values, places), shape=shape)


class CsrBuilder:
    """Rows of column numbers and values, for a CSR matrix."""

    def __init__(self, type: Literal["f", "d"] = "f") -> None:
        self.columns, self.values, self.ends = array("q"), array(type), array("q", [0])

    def add(self, columns: Sequence[int], values: Sequence[float]) -> None:
        """Add a row, each column once."""
        self.columns.extend(columns)
        self.values.extend(values)
        self.ends.append(len(self.columns))

    def finish(self, width: int) -> Any:
        """The CSR matrix ``[R, width]``, columns in order."""
        from scipy.sparse import csr_matrix

        columns, ends = (np.frombuffer(part, dtype=np.int64) for part in (self.columns, self.ends))
        values = np.array(self.values, dtype=self.values.typecode)
        matrix = csr_matrix((values, columns.copy(), ends.copy()), shape=(len(ends) - 1, width))
        matrix.sort_indices()
        return matrix


class VectorCells:
    """Rows of one cell each: a list of numbers, ``{name: number}``, or ``{"indices": [...], "values": [...]}``."""

    def __init__(self, column: str, problems: ProblemLog) -> None:
        self.column = column
        self.problems = problems
        self.kind: str | None = None
        self.width = 0
        self.dense = array("f")
        self.sparse = CsrBuilder()
        self.number: dict[str, int] = {}
        self.num_rows = 0

    def add(self, cell: Any, *, line: int) -> bool:
        """Add a row. If the cell does not fit, the problem is reported and the result is False."""
        kind = "list" if isinstance(cell, list) else "names" if isinstance(cell, dict) else "other"
        if kind == "names" and cell.keys() == {"indices", "values"}:
            kind = "numbers"
        wanted = self._add(kind, cell) if self.kind in (None, kind) else f"{self.kind} as in the rows before"
        if wanted is None:
            self.kind = kind
            self.num_rows += 1
            return True
        self.problems.add(f"the features must be {wanted}; got {shown(cell)}.", line=line, column=self.column)
        return False

    def _add(self, kind: str, cell: Any) -> str | None:
        """Add the cell; returns what was expected if it does not fit."""
        if kind == "other":
            return "a list of numbers, or names with numbers"
        cells = cell if kind == "list" else cell["values"] if kind == "numbers" else cell.values()
        try:
            values = [math.nan if value is None else float(value) for value in cells]
        except (TypeError, ValueError, OverflowError):
            return "numbers"
        if not all_fit(values):
            return "finite numbers in float32"
        if kind == "list":
            if self.num_rows and len(values) != self.width:
                return f"{self.width} numbers as in the rows before, not {len(values)}"
            self.width = len(values)
            self.dense.extend(values)
        elif kind == "names":
            self.sparse.add([self.number.setdefault(name, len(self.number)) for name in cell], values)
        else:
            places = cell["indices"]
            whole = isinstance(places, list) and all(type(place) is int for place in places)
            if not whole or len(places) != len(values) or any(low >= high for low, high in pairwise(places)):
                return "as many values as indices, and increasing whole numbers as indices"
            if places and not 0 <= places[0] <= places[-1] < MOST_COLUMNS:
                return f"indices in [0, {MOST_COLUMNS})"
            self.sparse.add(places, values)
            self.width = max(self.width, places[-1] + 1 if places else 0)
        return None

    def finish(self) -> GatheredFeatures:
        """Features and their names, if the cells name them."""
        if self.kind in (None, "list"):
            return np.frombuffer(self.dense, dtype=np.float32).reshape(self.num_rows, self.width).copy(), None
        if self.kind == "numbers":
            return compact_columns(self.sparse.finish(self.width))
        matrix, names = self.sparse.finish(len(self.number)), tuple(self.number)
        every_name_in_every_row = len(self.sparse.columns) == self.num_rows * len(names)
        return matrix.toarray() if every_name_in_every_row else matrix, names
