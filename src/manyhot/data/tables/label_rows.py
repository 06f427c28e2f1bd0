"""Labels gathered row by row: sets of names, cells that hold a set, or one 0/1 cell per label."""

from __future__ import annotations

import ast
import json
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from manyhot._checks import nearest
from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.tables.reorder import index_lists
from manyhot.labels.sparse import SparseLabels

SEPARATORS = ("|", ";", ",")
# 1, 1.0 and True are one key; a missing value is None: not known.
TRUTH: dict[Any, bool | None] = {0: False, 1: True, None: None}
TRUTH |= dict.fromkeys(("0", "0.0", "false", "False", "FALSE"), False)
TRUTH |= dict.fromkeys(("1", "1.0", "true", "True", "TRUE"), True)
TRUTH |= dict.fromkeys(("", "?", "nan", "NaN", "NA", "null", "None"))


class GatheredLabels(NamedTuple):
    """Labels, what is unknown, the names, and what a name means that is not among them."""

    labels: SparseLabels
    unknown: SparseLabels | None
    names: tuple[str, ...]
    absent: Literal["negative", "unknown"]


class LabelRows:
    """Rows of label names, or of numbers into fixed ``names``.

    Example:
        >>> rows = LabelRows()
        >>> rows.add(["b", "a"], line=1)
        >>> rows.add_unknown()
        >>> gathered = rows.finish(ProblemLog("raise", "a file"))
        >>> gathered.names, gathered.labels.lists(), gathered.unknown.lists()
        (('a', 'b'), [[0, 1], []], [[], [0, 1]])
    """

    def __init__(self, names: Sequence[str] | None = None, *, absent: Literal["negative", "unknown"] = "negative") -> None:
        self.fixed = names is not None
        self.absent = absent
        self.number = {name: place for place, name in enumerate(names or ())}
        self.first_line: list[int] = [0] * len(self.number)
        self.entries, self.counts = array("q"), array("q")
        self.unknown_rows, self.unknown_entries = array("q"), array("q")
        self.all_unknown: list[int] = []

    def __len__(self) -> int:
        return len(self.counts)

    def add(self, names: Iterable[str], *, line: int, unknown: Iterable[str] = ()) -> None:
        """A row's labels by name; a name that comes twice counts once."""
        number = self.number
        positive = {number.setdefault(name, len(number)) for name in names}
        open_entries = {number.setdefault(name, len(number)) for name in unknown}
        if len(number) > len(self.first_line):
            self.first_line.extend([line] * (len(number) - len(self.first_line)))
        self.add_numbers(positive, open_entries - positive)

    def add_numbers(self, positive: Iterable[int], unknown: Iterable[int] = ()) -> None:
        """A row's labels by number, each once."""
        before = len(self.entries)
        self.entries.extend(positive)
        for place in unknown:
            self.unknown_rows.append(len(self.counts))
            self.unknown_entries.append(place)
        self.counts.append(len(self.entries) - before)

    def add_unknown(self) -> None:
        """A row of which no label is known."""
        self.all_unknown.append(len(self.counts))
        self.counts.append(0)

    def finish(
        self, problems: ProblemLog, *, wanted: Sequence[str] | None = None, ids_of: Sequence[str] | None = None
    ) -> GatheredLabels:
        """The labels of all rows.

        Args:
            problems: for labels that are not wanted.
            wanted: the label names in order. The labels in the file are these names, or, where one of them is not, numbers
                from 0 into them; anything else is an error.
            ids_of: names that the labels are numbers of, if all of them are.
        """
        names, moved = self._renumbering(problems, wanted, ids_of)
        shape = (len(self.counts), len(names))
        rows = np.repeat(np.arange(shape[0]), np.frombuffer(self.counts, dtype=np.int64))
        labels = index_lists(rows, moved[np.frombuffer(self.entries, dtype=np.int64)], shape)
        unknown = None
        if self.all_unknown or self.unknown_rows:
            whole = np.asarray(self.all_unknown, dtype=np.int64)
            open_rows = [np.frombuffer(self.unknown_rows, dtype=np.int64), np.repeat(whole, shape[1])]
            open_entries = [
                moved[np.frombuffer(self.unknown_entries, dtype=np.int64)],
                np.tile(np.arange(shape[1]), len(whole)),
            ]
            unknown = index_lists(np.concatenate(open_rows), np.concatenate(open_entries), shape)
        return GatheredLabels(labels, unknown, names, self.absent)

    def _renumbering(
        self, problems: ProblemLog, wanted: Sequence[str] | None, ids_of: Sequence[str] | None
    ) -> tuple[tuple[str, ...], np.ndarray[Any, Any]]:
        own = list(self.number)
        if wanted is None and ids_of is not None and all(is_number_below(name, len(ids_of)) for name in own):
            wanted = ids_of
        if wanted is None:
            names = own if self.fixed else sorted(own, key=_natural(own))
            place = {name: number for number, name in enumerate(names)}
            return tuple(names), np.asarray([place[name] for name in own], dtype=np.int64)
        place = {name: number for number, name in enumerate(wanted)}
        foreign = [name for name in own if name not in place]
        if foreign and all(is_number_below(name, len(wanted)) for name in own):
            return tuple(wanted), np.asarray([int(name) for name in own], dtype=np.int64)
        if foreign:
            line = self.first_line[self.number[foreign[0]]] or None
            raise problems.fatal(
                f"labels must be among the {len(wanted)} `label_names`; got {shown(foreign[0])}"
                f" ({len(foreign)} such).{nearest(foreign[0], wanted)} Add it, or read without `label_names`.",
                line=line,
            )
        return tuple(wanted), np.asarray([place[name] for name in own], dtype=np.int64)


class LabelCells:
    """Cells of one column that hold a label set each: a list, a number, or a delimited string.

    Strings are cut at the end, when all have been seen: one kind of separator must serve for all of them.
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

    def accepts(self, value: Any, line: int) -> bool:
        """Whether the cell can be added; if not, the problem has been noted."""
        if value is None or value != value:
            return True
        kind = int if type(value) is int else type(value)
        if kind not in (list, str, int):
            wanted = "a list of names, a string or a whole number"
        elif self.kind not in (None, kind):
            wanted = {list: "a list", str: "a string", int: "a whole number"}[self.kind or kind] + " as in the rows before"
        elif kind is list and not all(type(name) in (str, int) and str(name).strip() for name in value):
            wanted = "a list of names that are not empty"
        else:
            self.kind = kind
            return True
        self.problems.add(
            f"labels must be {wanted}; got {shown(value)}. Make the column one kind.", line=line, column=self.column
        )
        return False

    def add(self, value: Any, line: int, unknown: Any = None) -> None:
        """One more cell, which ``accepts`` let through."""
        if value is None or value != value:
            if self.kind is str:
                self.strings.append((-line, ""))
            else:
                self.rows.add_unknown()
        elif isinstance(value, str):
            if not self.strings:
                self.strings.extend((-row - 1, "") for row in range(len(self.rows)))
            self.strings.append((line, value))
        elif isinstance(value, list):
            names = unknown if isinstance(unknown, list) else ()
            self.rows.add((str(name).strip() for name in value), line=line, unknown=map(str, names))
        else:
            self.rows.add((str(value),), line=line)

    def finish(self) -> LabelRows:
        """All rows, strings cut."""
        if self.kind is not str:
            return self.rows
        filled = [text for line, text in self.strings if line > 0 and text.strip()]
        bracketed = bool(filled) and all(text.lstrip()[0] == "[" and text.rstrip()[-1] == "]" for text in filled)
        if self.separator is None and not bracketed:
            self.separator = self._common_separator(filled)
        rows = LabelRows()
        for line, text in self.strings:
            if line < 0 or (self.empty_unknown and not text.strip()):
                rows.add_unknown()
                continue
            self.num_empty += not text.strip()
            names = self._list_in(text, line) if bracketed else text.split(self.separator) if self.separator else [text]
            rows.add((name for name in map(str.strip, names) if name), line=line)
        return rows

    def _common_separator(self, strings: list[str]) -> str | None:
        found = {mark: next((text for text in strings if mark in text), None) for mark in SEPARATORS}
        marks = [mark for mark, text in found.items() if text is not None]
        if len(marks) > 1:
            shown_cells = ", ".join(shown(found[mark]) for mark in marks)
            raise self.problems.fatal(
                f"labels must be separated by one of {' '.join(marks)}; more than one occurs: {shown_cells}."
                " Say which with `separator`.",
                column=self.column,
            )
        return marks[0] if marks else None

    def _list_in(self, text: str, line: int) -> list[str]:
        if not text.strip():
            return []
        try:
            try:
                names = json.loads(text)
            except ValueError:
                names = ast.literal_eval(text.strip())
            if not all(type(name) in (str, int) for name in names):
                raise ValueError("not names")
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise self.problems.fatal(
                f"must be a list of names like the rows before; got {shown(text)}.", line=line, column=self.column
            ) from None
        return [str(name) for name in names]


def is_number_below(name: str, limit: int) -> bool:
    """Whether the name is a whole number in [0, limit), in digits alone."""
    return name.isascii() and name.isdecimal() and len(name) < 19 and int(name) < limit


def _natural(names: Sequence[str]) -> Any:
    """By value where all names are whole numbers, else by letters."""
    if all(name.isascii() and name.isdecimal() and len(name) < 19 for name in names):
        return lambda name: (int(name), name)
    return None
