"""Rows of a table to examples, whatever file the table came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from manyhot.data.examples import Examples, Source
from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.options import ReadOptions
from manyhot.data.tables.columns import Columns, choose_columns, column_kind
from manyhot.data.tables.feature_rows import FeatureCells, VectorCells
from manyhot.data.tables.label_rows import TRUTH, LabelCells, LabelRows


def columns_of(sample: Mapping[str, Sequence[Any]], options: ReadOptions, problems: ProblemLog) -> Columns:
    """The columns by what they are for, from the first values of each."""
    return choose_columns(
        {name: column_kind(values) for name, values in sample.items()},
        problems,
        text=options.text,
        labels=options.labels,
        features=options.features,
        ids=options.ids,
        need_labels=options.need_labels,
    )


class TableExamples:
    """Examples of a table, gathered row by row.

    Args:
        columns: which column is for what.
        options: the reader's.
        problems: where a row's problems go; such a row is left out.
        format: the name of the file's format.
    """

    def __init__(self, columns: Columns, options: ReadOptions, problems: ProblemLog, format: str) -> None:
        self.columns = columns
        self.options = options
        self.problems = problems
        self.format = format
        self.texts: list[str] = []
        self.ids: list[str] = []
        self.cells: FeatureCells | VectorCells | None = None
        self.sets = None
        if columns.labels is not None:
            self.sets = LabelCells(columns.labels, options.separator, problems, empty_unknown=options.empty_labels == "unknown")
        self.marks = LabelRows(columns.label_columns, absent="unknown" if columns.label_columns else "negative")

    def extend(self, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """More rows: line numbers and cells by column; an absent cell is a missing value."""
        for line, row in rows:
            self._add(row, line)

    def _add(self, row: Mapping[str, Any], line: int) -> None:
        columns = self.columns
        text = self._text(row, line) if columns.text else ""
        if text is None:
            return
        value = row.get(columns.labels) if columns.labels is not None else None
        if self.sets is not None and not self.sets.accepts(value, line):
            return
        marks = self._marks(row, line) if columns.label_columns else ([], [])
        if marks is None or (columns.features and not self._features(row, line)):
            return
        if columns.text:
            self.texts.append(text)
        if columns.ids is not None:
            name = row.get(columns.ids)
            self.ids.append("" if name is None else str(name))
        if self.sets is not None:
            self.sets.add(value, line, row.get(columns.unknown) if columns.unknown else None)
        else:
            self.marks.add_numbers(*marks)

    def _text(self, row: Mapping[str, Any], line: int) -> str | None:
        parts = []
        for name in self.columns.text:
            cell = row.get(name)
            if isinstance(cell, list) and all(isinstance(word, str) for word in cell):
                cell = " ".join(cell)
            if isinstance(cell, str):
                parts.append(cell)
            elif cell is None:
                if name not in row and len(self.columns.text) == 1:
                    self.problems.add("the row must have a text; the column is not there.", line=line, column=name)
                    return None
            else:
                self.problems.add(f"the text must be a string; got {shown(cell)}. Quote it.", line=line, column=name)
                return None
        return "\n".join(parts)

    def _marks(self, row: Mapping[str, Any], line: int) -> tuple[list[int], list[int]] | None:
        positive, unknown = [], []
        for place, name in enumerate(self.columns.label_columns):
            cell = row.get(name)
            try:
                truth = TRUTH[cell.strip() if isinstance(cell, str) else cell]
            except (KeyError, TypeError):
                if cell != cell:
                    truth = None
                else:
                    self.problems.add(
                        f"a label must be 0 or 1, or empty where it is not known; got {shown(cell)}. Correct the cell,"
                        " or name the label columns with `labels`.",
                        line=line,
                        column=name,
                    )
                    return None
            if truth:
                positive.append(place)
            elif truth is None:
                unknown.append(place)
        return positive, unknown

    def _features(self, row: Mapping[str, Any], line: int) -> bool:
        names = self.columns.features
        if self.cells is None:
            vector = len(names) == 1 and isinstance(row.get(names[0]), (list, dict))
            self.cells = (
                VectorCells(names[0], self.problems) if vector else FeatureCells(names, self.columns.nominal, self.problems)
            )
        if isinstance(self.cells, VectorCells):
            return self.cells.add(row.get(names[0]), line=line)
        return self.cells.add([row.get(name) for name in names], line=line)

    def finish(self, chosen: Mapping[str, Any] | None = None) -> Examples:
        """All rows as examples; ``chosen`` is added to what ``Source`` tells."""
        rows = self.marks if self.sets is None else self.sets.finish()
        gathered = rows.finish(self.problems, wanted=self.options.label_names)
        told = {**self.columns.chosen(), **(chosen or {})}
        if self.sets is not None and self.sets.separator:
            told["separator"] = self.sets.separator
        if self.sets is not None and self.sets.num_empty:
            told["empty_label_cells"] = self.sets.num_empty
        features, feature_names = (None, None) if self.cells is None else self.cells.finish()
        if features is None and not self.columns.text:
            raise self.problems.fatal("must hold at least one row that can be read; it holds none.")
        return Examples(
            gathered.labels,
            gathered.names,
            texts=self.texts if self.columns.text else None,
            features=features,
            unknown=gathered.unknown,
            feature_names=feature_names,
            ids=self.ids if self.columns.ids is not None else None,
            source=(source_of(self.problems, self.format, told),),
            absent=gathered.absent,
        )


def source_of(problems: ProblemLog, format: str, chosen: Mapping[str, Any]) -> Source:
    """What is told of a file that was read."""
    return Source(problems.file, format, chosen, tuple(problems.kept), problems.count)
