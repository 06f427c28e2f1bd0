"""Label sets in the cells of one column: a list, an object with numbers, a number, or a delimited string."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.tables.label_rows import LabelRows
from manyhot.data.tables.label_values import WANTED, label_value

SEPARATORS = ("|", ";", ",")
_KINDS: dict[type, str] = {list: "a list or an object", str: "a string", int: "a whole number"}


class LabelCells:
    """Label sets of one column, gathered cell by cell.

    A list holds names. An object holds names with numbers: ``{"a": 0.7, "b": 1}`` are soft labels. Strings are split at the
    end, because one separator must fit all of them. Rows whose string cannot be split are then in ``bad_rows``.
    """

    def __init__(self, column: str | int, separator: str | None, problems: ProblemLog, *, empty_unknown: bool = False) -> None:
        self.rows = LabelRows()
        self.column = column
        self.separator = separator
        self.problems = problems
        self.empty_unknown = empty_unknown
        self.kind: type | None = None
        self.strings: list[tuple[int, str]] = []
        self.num_empty = 0
        self.bad_rows: list[int] = []
        self.remarks: list[str] = []
        self.unused: dict[str, str] = {}

    def accepts(self, value: Any, line: int, unknown: Any = None) -> bool:
        """Whether the cell can be added; if not, the problem is reported."""
        if unknown is not None and not (isinstance(unknown, list) and all(map(_is_name, unknown))):
            wanted = "unknown labels must be a list of names that are not empty"
            self.problems.add(f"{wanted}; got {shown(unknown)}.", line=line, column="unknown")
            return False
        if value is None or value != value:
            return True
        kind: type = list if isinstance(value, dict) else int if type(value) is int else type(value)
        if kind not in _KINDS:
            wanted = 'a list of names, an object of names with numbers such as {"a": 0.7}, a string or a whole number'
        elif self.kind not in (None, kind):
            wanted = f"{_KINDS[self.kind or kind]} as in the rows before"
        elif kind is list and (wrong := _wrong_set(value)):
            wanted = wrong
        else:
            self.kind = kind
            return True
        self.problems.add(
            f"labels must be {wanted}; got {shown(value)}. Correct the row, or use one kind of cell in the whole column.",
            line=line,
            column=self.column,
        )
        return False

    def add(self, value: Any, line: int, unknown: Any = None) -> None:
        """Add a cell that ``accepts`` has accepted."""
        open_names = [str(name).strip() for name in unknown or ()]
        if value is None or value != value:
            if self.kind is str:
                self.strings.append((-line, ""))
            else:
                self.rows.add_unknown()
        elif isinstance(value, str):
            if not self.strings:
                self.strings.extend((-row - 1, "") for row in range(len(self.rows)))
            self.strings.append((line, value))
        elif isinstance(value, dict):
            soft = {name.strip(): label_value(cell) for name, cell in value.items()}
            self.rows.add_soft(soft, line=line, unknown=open_names)
        elif isinstance(value, list):
            self.rows.add((str(name).strip() for name in value), line=line, unknown=open_names)
        else:
            self.rows.add((str(value),), line=line)

    def finish(self) -> LabelRows:
        """All rows, with strings split."""
        if self.kind is not str:
            if self.kind is not None:
                self.unused = dict.fromkeys(
                    ("separator", "empty_labels"), f"a row's labels are {_KINDS[self.kind]}, not a string"
                )
                self.separator = None
            return self.rows
        filled = [text for line, text in self.strings if line > 0 and text.strip()]
        bracketed = sum(text.lstrip()[0] == "[" for text in filled) > len(filled) / 2
        if bracketed:
            self.unused["separator"] = "a row's labels are a list in brackets"
        if self.empty_unknown and len(filled) == len(self.strings):
            self.remarks.append(f"No cell of column {self.column!r} is empty, so `empty_labels` has no effect.")
        if self.separator is None and not bracketed:
            self.separator = self._common_separator(filled)
        rows = LabelRows()
        for row, (line, text) in enumerate(self.strings):
            if line < 0 or (self.empty_unknown and not text.strip()):
                rows.add_unknown()
                continue
            self.num_empty += not text.strip()
            names = self._list_in(text, line) if bracketed else text.split(self.separator) if self.separator else [text]
            if names is None:
                self.bad_rows.append(row)
                names = []
            rows.add((name for name in map(str.strip, names) if name), line=line)
        return rows

    def _common_separator(self, strings: list[str]) -> str | None:
        found = {mark: next((text for text in strings if mark in text), None) for mark in SEPARATORS}
        marks = [mark for mark, text in found.items() if text is not None]
        if len(marks) > 1:
            shown_cells = ", ".join(shown(found[mark]) for mark in marks)
            raise self.problems.fatal(
                f"labels must be separated by one of {' '.join(marks)}; more than one occurs: {shown_cells}."
                " Choose one with `separator`.",
                column=self.column,
            )
        if not marks and sum(" " in text.strip() for text in strings) > len(strings) / 2:
            example = next(text for text in strings if " " in text.strip())
            self.remarks.append(
                f"Each cell of column {self.column!r} is read as one label, such as {shown(example)}."
                " If spaces separate labels, use `separator=' '`."
            )
        return marks[0] if marks else None

    def _list_in(self, text: str, line: int) -> list[str] | None:
        """The names in a list written as JSON or Python. If it is not one, the problem is reported and the result is None."""
        if not text.strip():
            return []
        try:
            try:
                names = json.loads(text)
            except ValueError:
                names = ast.literal_eval(text.strip())
            if not isinstance(names, list) or not all(map(_is_name, names)):
                raise ValueError("not names")
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            self.problems.add(
                f"must be a list of names like most rows; got {shown(text)}. Close its bracket and quotation marks.",
                line=line,
                column=self.column,
            )
            return None
        return [str(name) for name in names]


def _is_name(name: Any) -> bool:
    return type(name) in (str, int) and bool(str(name).strip())


def _wrong_set(value: Sequence[Any] | Mapping[str, Any]) -> str:
    """What an invalid list or object of labels must be, for a message; empty if it is valid."""
    if isinstance(value, Mapping):
        try:
            for name, cell in value.items():
                if not name.strip():
                    return "an object whose names are not empty"
                label_value(cell)
        except ValueError:
            return f"an object of names with numbers, {WANTED}, or null for an unknown label"
        return ""
    return "" if all(map(_is_name, value)) else "a list of names that are not empty"
