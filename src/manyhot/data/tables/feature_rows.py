"""Features gathered row by row: table cells, or one cell that holds a vector.

A missing value is kept as NaN: what to put in its place is learned from the training rows alone (``fill_missing``), and a
reader sees one file at a time. A column of strings becomes one 0/1 column per value, named ``column=value``; a missing value
is then 0 in all of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.tables.columns import is_missing

GatheredFeatures = tuple[Any, tuple[str, ...] | None]


class FeatureCells:
    """Rows of one number or nominal value per column.

    Example:
        >>> cells = FeatureCells(["size", "colour"], {"colour"}, ProblemLog("raise", "a file"))
        >>> _ = cells.add(["1.5", "red"], line=1), cells.add(["", "blue"], line=2)
        >>> features, names = cells.finish()
        >>> features.tolist(), names
        ([[1.5, 0.0, 1.0], [nan, 1.0, 0.0]], ('size', 'colour=blue', 'colour=red'))
    """

    def __init__(self, names: Sequence[str], nominal: set[str] | frozenset[str], problems: ProblemLog) -> None:
        self.names = list(names)
        self.problems = problems
        self.numeric = [place for place, name in enumerate(names) if name not in nominal]
        self.values = array("f")
        self.codes = {place: array("q") for place, name in enumerate(names) if name in nominal}
        self.categories: dict[int, dict[str, int]] = {place: {} for place in self.codes}
        self.num_rows = 0

    def add(self, cells: Sequence[Any], *, line: int) -> bool:
        """One more row; False, with the problem noted, where a cell is not a number."""
        try:
            row = [float(cells[place]) for place in self.numeric]
        except (TypeError, ValueError, OverflowError):
            careful = [self._number(cells[place], line, self.names[place]) for place in self.numeric]
            row = [number for number in careful if number is not None]
            if len(row) < len(careful):
                return False
        self.values.extend(row)
        for place, codes in self.codes.items():
            known = self.categories[place]
            missing = is_missing(cells[place])
            codes.append(-1 if missing else known.setdefault(str(cells[place]).strip(), len(known)))
        self.num_rows += 1
        return True

    def _number(self, cell: Any, line: int, name: str) -> float | None:
        if is_missing(cell):
            return float("nan")
        try:
            return float(cell)
        except (TypeError, ValueError, OverflowError):
            self.problems.add(
                f"a feature must be a number; got {shown(cell)}. Correct it, or leave the column out of `features`.",
                line=line,
                column=name,
            )
            return None

    def finish(self) -> GatheredFeatures:
        """float32 ``[R, F]`` and the names of the columns."""
        numbers = np.frombuffer(self.values, dtype=np.float32).reshape(self.num_rows, len(self.numeric)).copy()
        if np.isinf(numbers).any():
            row, place = np.argwhere(np.isinf(numbers))[0].tolist()
            raise self.problems.fatal(
                f"a feature must be a finite number in float32; row {row + 1} has {numbers[row, place]}.",
                column=self.names[self.numeric[place]],
            )
        parts: list[np.ndarray[Any, Any]] = []
        names: list[str] = []
        for place, name in enumerate(self.names):
            if place in self.codes:
                ordered = sorted(self.categories[place])
                own = [self.categories[place][value] for value in ordered]
                parts.append(np.frombuffer(self.codes[place], dtype=np.int64)[:, None] == np.asarray(own, dtype=np.int64))
                names += [f"{name}={value}" for value in ordered]
            else:
                parts.append(numbers[:, [self.numeric.index(place)]])
                names.append(name)
        if not self.codes:
            return numbers, tuple(names)
        return np.concatenate(parts, axis=1).astype(np.float32), tuple(names)


class SparseRows:
    """Rows of column numbers and values, for a CSR matrix."""

    def __init__(self, type: Literal["f", "d"] = "f") -> None:
        self.columns, self.values, self.ends = array("q"), array(type), array("q", [0])

    def add(self, columns: Sequence[int], values: Sequence[float]) -> None:
        """One more row, each column once."""
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
        self.sparse = SparseRows()
        self.number: dict[str, int] = {}
        self.num_rows = 0

    def add(self, cell: Any, *, line: int) -> bool:
        """One more row; False, with the problem noted, where the cell does not fit."""
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
        """Add, or say what would have been right."""
        try:
            if kind == "list":
                row = [float("nan") if value is None else float(value) for value in cell]
                if self.num_rows and len(row) != self.width:
                    return f"{self.width} numbers as in the rows before, not {len(row)}"
                self.width = len(row)
                self.dense.extend(row)
            elif kind == "names":
                values = [float("nan") if value is None else float(value) for value in cell.values()]
                self.sparse.add([self.number.setdefault(name, len(self.number)) for name in cell], values)
            elif kind == "numbers":
                places = [int(place) for place in cell["indices"]]
                values = [float("nan") if value is None else float(value) for value in cell["values"]]
                rising = all(low < high for low, high in pairwise(places)) and (not places or places[0] >= 0)
                if len(places) != len(values) or not rising or (places and places[-1] >= 2**31):
                    return "as many values as indices, and indices rising from 0"
                self.sparse.add(places, values)
                self.width = max(self.width, places[-1] + 1 if places else 0)
            else:
                return "a list of numbers, or names with numbers"
        except (TypeError, ValueError, OverflowError):
            return "numbers"
        return None

    def finish(self) -> GatheredFeatures:
        """Features and their names, where the cells name them."""
        if self.kind in (None, "list"):
            return np.frombuffer(self.dense, dtype=np.float32).reshape(self.num_rows, self.width).copy(), None
        if self.kind == "numbers":
            return self.sparse.finish(self.width), None
        matrix, names = self.sparse.finish(len(self.number)), tuple(self.number)
        every_name_in_every_row = len(self.sparse.columns) == self.num_rows * len(names)
        return matrix.toarray() if every_name_in_every_row else matrix, names
