"""The numbers of an ARFF file split into labels and features; invalid rows are reported and skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.formats.arff.header import Attribute
from manyhot.data.tables.feature_rows import DENSE_CELLS, LARGEST
from manyhot.data.tables.label_values import WANTED
from manyhot.data.tables.reorder import index_lists

Array = np.ndarray[Any, Any]


class ArffTable(NamedTuple):
    """All rows as numbers, dense or CSR ``[R, attributes]``, and their lines."""

    matrix: Any
    lines: Sequence[int]
    attributes: Sequence[Attribute]
    problems: ProblemLog

    @property
    def sparse(self) -> bool:
        """Whether rows list their nonzero values only."""
        return not isinstance(self.matrix, np.ndarray)

    def entries(self, places: Sequence[int]) -> tuple[Array, Array, Array]:
        """Rows, columns (numbered within ``places``) and values of the nonzero entries."""
        part = self.matrix[:, places]
        if self.sparse:
            found = part.tocoo()
            return found.row.astype(np.int64), found.col.astype(np.int64), found.data
        rows, columns = np.nonzero(part)
        return rows, columns, part[rows, columns]

    def note(self, wrong: Array, rows: Array, columns: Array, places: Sequence[int], wanted: str, values: Array) -> Array:
        """Report the first invalid entry of each row; returns these rows."""
        bad, firsts = np.unique(rows[wrong], return_index=True)
        for row, entry in zip(bad.tolist(), np.flatnonzero(wrong)[firsts].tolist(), strict=True):
            column = self.attributes[places[int(columns[entry])]].name
            self.problems.add(f"{wanted}; got {values[entry]:g}.", line=self.lines[row], column=column)
        return bad


def labels_of(table: ArffTable, places: Sequence[int]) -> tuple[Any, Any, Array]:
    """Labels, unknown entries, and the rows that are skipped."""
    inverted = np.asarray([_first_is_positive(table, place) for place in places], dtype=bool)
    if inverted.any():
        # In dense files only: the first declared value, which has the code 0, means a positive label.
        flipped = table.matrix.copy()
        turned = np.asarray(places)[inverted]
        flipped[:, turned] = 1 - flipped[:, turned]
        table = table._replace(matrix=flipped)
    rows, columns, values = table.entries(places)
    missing = np.isnan(values)
    wrong = ~(missing | ((values >= 0) & (values <= 1)))
    wanted = f"a label must be {WANTED}, or ? if it is unknown"
    bad = table.note(wrong, rows, columns, places, wanted, values)
    shape = (table.matrix.shape[0], len(places))
    unknown = index_lists(rows[missing], columns[missing], shape) if missing.any() else None
    known = ~(missing | wrong)
    return index_lists(rows[known], columns[known], shape, values[known].astype(np.float32)), unknown, bad


def _first_is_positive(table: ArffTable, place: int) -> bool:
    """Whether the first value of a label is the positive one; values that are not those of a label are an error."""
    attribute = table.attributes[place]
    truth = [False, True] if attribute.type == "number" else attribute.truth
    if truth is None or len(truth) > 2 or (table.sparse and truth[:1] == [True]):
        what = "whose first value is the negative one in a sparse file" if truth else "with the values 0 and 1"
        raise table.problems.fatal(
            f"a label must be an attribute {what}; got {shown('{' + ','.join(attribute.values) + '}')}.",
            line=attribute.line,
            column=attribute.name,
        )
    return truth[:1] == [True]


def features_of(table: ArffTable, places: Sequence[int]) -> tuple[Any, tuple[str, ...], Array]:
    """Features, with one column per value of nominal ones other than {0,1}; their names; and the skipped rows."""
    attributes = table.attributes
    simple = [place for place in places if attributes[place].type == "number" or attributes[place].zero_one]
    nominal = [place for place in places if not (attributes[place].type == "number" or attributes[place].zero_one)]
    names = [attributes[place].name for place in simple]
    names += [f"{attributes[place].name}={value}" for place in nominal for value in attributes[place].values]
    bad = _bad_rows(table, simple)
    rows, columns = _ones(table, nominal, len(simple))
    shape = (table.matrix.shape[0], len(names))
    if (not table.sparse and shape[0] * shape[1] <= DENSE_CELLS) or (not nominal and not table.sparse):
        features = np.zeros(shape, dtype=np.float32)
        with np.errstate(over="ignore"):
            features[:, : len(simple)] = table.matrix[:, simple]
        features[rows, columns] = 1
        return features, tuple(names), bad
    from scipy.sparse import csr_matrix

    own_rows, own_columns, values = table.entries(simple)
    with np.errstate(over="ignore"):
        every = np.concatenate([values.astype(np.float32), np.ones(len(rows), dtype=np.float32)])
    matrix = csr_matrix((every, (np.concatenate([own_rows, rows]), np.concatenate([own_columns, columns]))), shape=shape)
    matrix.eliminate_zeros()
    return matrix, tuple(names), bad


def _bad_rows(table: ArffTable, simple: Sequence[int]) -> Array:
    """Rows with an infinite number, or with a number other than 0 and 1 in a {0,1} attribute."""
    rows, columns, values = table.entries(simple)
    infinite = np.abs(values) > LARGEST
    bad = table.note(infinite, rows, columns, simple, "a feature must be a finite number in float32, or ?", values)
    zero_one = np.asarray([table.attributes[place].zero_one for place in simple], dtype=bool)
    other = zero_one[columns] & ~(np.isnan(values) | (values == 1))
    wanted = "the value must be one of {0,1}, or ? if it is missing"
    return np.union1d(bad, table.note(other, rows, columns, simple, wanted, values))


def _ones(table: ArffTable, nominal: Sequence[int], start: int) -> tuple[Array, Array]:
    """Rows and columns of the 1s of nominal attributes."""
    rows, columns = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for place in nominal:
        codes = table.matrix[:, [place]].toarray().ravel() if table.sparse else table.matrix[:, place]
        known = np.flatnonzero(~np.isnan(codes))
        rows.append(known)
        columns.append(start + codes[known].astype(np.int64))
        start += len(table.attributes[place].values)
    return np.concatenate(rows), np.concatenate(columns)
