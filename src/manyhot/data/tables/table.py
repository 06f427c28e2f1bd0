"""Rows of a table as examples, for every file format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from manyhot.data.examples import Examples, Source
from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.options import ReadOptions
from manyhot.data.tables.column_kinds import column_kind
from manyhot.data.tables.columns import TableColumns, choose_columns, may_hold_sets
from manyhot.data.tables.decimals import number_reader
from manyhot.data.tables.feature_rows import FeatureCells, VectorCells
from manyhot.data.tables.label_cells import LabelCells
from manyhot.data.tables.label_rows import Array, LabelRows
from manyhot.data.tables.label_values import TRUTH, WANTED, label_value

Pick = Callable[[Any], Sequence[Any]]


def columns_of(
    sample: Mapping[str, Sequence[Any]], options: ReadOptions, problems: ProblemLog, *, decimal: str = "."
) -> TableColumns:
    """The columns by purpose, from the first values of each."""
    kinds = {
        name: column_kind(values, decimal="." if may_hold_sets(name, options) else decimal) for name, values in sample.items()
    }
    return choose_columns(kinds, options, problems)


def columns_of_records(
    sample: Sequence[tuple[int, Mapping[str, Any]]], options: ReadOptions, problems: ProblemLog
) -> TableColumns:
    """The same from the first objects of a JSON lines file, with their line numbers."""
    names = dict.fromkeys(name for _, record in sample for name in record)
    return columns_of({name: [record.get(name) for _, record in sample] for name in names}, options, problems)


class TableExamples:
    """Examples of a table, gathered row by row.

    Args:
        columns: the columns by purpose.
        options: the options of the reader.
        problems: records the problems of rows; such rows are skipped.
        format: the name of the file's format.
        places: the index of each column, if rows are sequences; None if rows are mappings.
        decimal: the decimal mark of numbers that are strings; None: the format has only plain numbers.
    """

    def __init__(
        self,
        columns: TableColumns,
        options: ReadOptions,
        problems: ProblemLog,
        format: str,
        *,
        places: Mapping[str, int] | None = None,
        decimal: str | None = None,
    ) -> None:
        self.columns = columns
        self.options = options
        self.problems = problems
        self.format = format
        self.decimal = decimal
        self.texts: list[str] = []
        self.ids: list[str] = []
        self.cells: FeatureCells | VectorCells | None = None
        self.sets = None
        if columns.labels is not None:
            self.sets = LabelCells(columns.labels, options.separator, problems, empty_unknown=options.empty_labels == "unknown")
        self.marks = LabelRows(columns.label_columns, absent="unknown" if columns.label_columns else "negative")
        single = [columns.labels, columns.unknown, columns.ids]
        self.pick_text, self.pick_marks, self.pick_features, self.pick_single = (
            _picker(names, places) for names in (columns.text, columns.label_columns, columns.features, single)
        )

    def extend(self, rows: Iterable[tuple[int, Any]]) -> None:
        """Add rows: line numbers and cells by column; an absent cell is a missing value."""
        for line, row in rows:
            self._add(row, line)

    @property
    def plain_keys(self) -> tuple[str, str] | None:
        """The columns of text and labels if a row is only one text and a list of labels; None otherwise."""
        columns = self.columns
        more = columns.label_columns or columns.features or columns.ids is not None
        if more or self.sets is None or self.sets.kind is not list or len(columns.text) != 1:
            return None
        return (columns.text[0], columns.labels) if isinstance(columns.labels, str) else None

    def number_of(self, name: str, line: int) -> int:
        """The number of a label's name in the list of a row."""
        assert self.sets is not None
        if not name.strip():
            raise self.problems.fatal("labels must be a list of names that are not empty.", line=line)
        return self.sets.rows.number_of(name.strip(), line)

    def add_plain(self, texts: list[str], counts: Array, labels: Array) -> None:
        """Add rows of plain columns: their texts, how many labels each has, and the labels as numbers, each once in a row."""
        self.texts += texts
        assert self.sets is not None
        self.sets.rows.add_hard(counts, labels)

    def _add(self, row: Any, line: int) -> None:
        columns = self.columns
        text = self._text(row, line) if columns.text else ""
        if text is None:
            return
        value, unknown, name = self.pick_single(row)
        if self.sets is not None and not self.sets.accepts(value, line, unknown):
            return
        marks = self._marks(row, line) if columns.label_columns else ([], [], None)
        if marks is None or (columns.features and not self._features(row, line)):
            return
        if columns.text:
            self.texts.append(text)
        if columns.ids is not None:
            self.ids.append("" if name is None else str(name))
        if self.sets is not None:
            self.sets.add(value, line, unknown)
        else:
            self.marks.add_numbers(*marks)

    def _text(self, row: Any, line: int) -> str | None:
        parts = []
        for name, cell in zip(self.columns.text, self.pick_text(row), strict=True):
            if isinstance(cell, list) and all(isinstance(word, str) for word in cell):
                cell = " ".join(cell)
            if isinstance(cell, str):
                parts.append(cell)
            elif cell is None:
                if len(self.columns.text) == 1 and isinstance(row, Mapping) and name not in row:
                    self.problems.add("the row must have a text; it has no such column.", line=line, column=name)
                    return None
            else:
                self.problems.add(f"the text must be a string; got {shown(cell)}. Quote it.", line=line, column=name)
                return None
        return "\n".join(parts)

    def _marks(self, row: Any, line: int) -> tuple[list[int], list[int], list[float] | None] | None:
        """Positive labels, unknown ones, and the values of the positive ones if some are soft; None if a cell is invalid."""
        cells = self.pick_marks(row)
        try:
            values = [TRUTH[cell] for cell in cells]
        except (KeyError, TypeError):
            values = []
            for name, cell in zip(self.columns.label_columns, cells, strict=True):
                try:
                    values.append(label_value(cell, number_reader(self.decimal)))
                except ValueError:
                    self.problems.add(
                        f"a label must be {WANTED}, or empty if it is unknown; got {shown(cell)}. Correct the cell,"
                        " or name the columns of labels with `labels`.",
                        line=line,
                        column=name,
                    )
                    return None
        positive = [place for place, value in enumerate(values) if value]
        unknown = [place for place, value in enumerate(values) if value is None]
        kept = [value for value in values if value]
        return positive, unknown, kept if any(value != 1 for value in kept) else None

    def _features(self, row: Any, line: int) -> bool:
        names = self.columns.features
        cells = self.pick_features(row)
        if self.cells is None:
            nominal: Any = self.options.nominal if self.options.nominal is not None else self.columns.nominal
            vector = len(names) == 1 and isinstance(cells[0], (list, dict))
            if vector:
                self.cells = VectorCells(names[0], self.problems)
            else:
                self.cells = FeatureCells(names, nominal, self.problems, self.decimal)
        if isinstance(self.cells, VectorCells):
            return self.cells.add(cells[0], line=line)
        return self.cells.add(cells, line=line)

    def finish(self, chosen: Mapping[str, Any] | None = None) -> Examples:
        """All rows as examples; ``chosen`` is added to ``Source.chosen``."""
        rows = self.marks if self.sets is None else self.sets.finish()
        gathered = rows.finish(self.problems, wanted=self.options.label_names)
        features, feature_names = (None, None) if self.cells is None else self.cells.finish()
        if features is None and not self.columns.text:
            raise self.problems.fatal(f"must hold at least one row that can be read; it holds none.{self.problems.first()}")
        told, remarks = self._chosen_and_remarks(chosen or {})
        examples = Examples(
            gathered.labels,
            gathered.names,
            texts=self.texts if self.columns.text else None,
            features=features,
            unknown=gathered.unknown,
            feature_names=feature_names,
            ids=self.ids if self.columns.ids is not None else None,
            source=(source_of(self.problems, self.format, told, remarks, unused=self._unused()),),
            absent=gathered.absent,
        )
        bad = [] if self.sets is None else self.sets.bad_rows
        return examples[np.setdiff1d(np.arange(len(examples)), bad)] if bad else examples

    def _chosen_and_remarks(self, chosen: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The chosen columns, and remarks for the user."""
        told, remarks = {**self.columns.chosen(), **chosen}, list(self.columns.remarks)
        if self.sets is not None:
            told |= {"separator": self.sets.separator} if self.sets.separator else {}
            told |= {"empty_label_cells": self.sets.num_empty} if self.sets.num_empty else {}
            remarks += self.sets.remarks
        if isinstance(self.cells, FeatureCells):
            nominal = self.cells.nominal_values()
            told |= {"nominal": {name: list(values) for name, values in nominal.items()}} if nominal else {}
            remarks += self.cells.remarks()
        return told, remarks

    def _unused(self) -> dict[str, str]:
        """Options that this table does not use."""
        numbers = self.columns.features or self.columns.label_columns
        idle = {} if self.decimal is None or numbers else {"decimal": "no column of numbers is read"}
        if self.sets is None:
            why = "each label has a column of its own" if self.columns.label_columns else "no labels are read"
            return idle | dict.fromkeys(("separator", "empty_labels"), why)
        return idle | self.sets.unused


def source_of(
    problems: ProblemLog,
    format: str,
    chosen: Mapping[str, Any],
    remarks: Sequence[str] = (),
    *,
    unused: Mapping[str, str] | None = None,
) -> Source:
    """The summary of a file that was read."""
    return Source(problems.file, format, chosen, tuple(problems.kept), problems.count, tuple(remarks), unused or {})


def _picker(names: Sequence[str | None], places: Mapping[str, int] | None) -> Pick:
    """A function from a row to its cells in these columns; None if a column is None or missing in a mapping."""
    if places is None:
        return lambda row: [None if name is None else row.get(name) for name in names]
    if len(names) > 1 and None not in names:
        return itemgetter(*(places[name] for name in names if name is not None))
    found = [None if name is None else places[name] for name in names]
    return lambda row: [None if place is None else row[place] for place in found]
