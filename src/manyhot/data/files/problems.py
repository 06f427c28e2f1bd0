"""Problems of a file, reported with file, line, column, value and remedy."""

from __future__ import annotations

import reprlib
from dataclasses import asdict, dataclass
from typing import Any, Literal

OnProblem = Literal["raise", "collect"]
NO_MEMORY = "needs more memory than is available. Read fewer rows or columns at a time, or use a machine with more memory."
# Shortens a value for a message without reading all of it.
_BRIEF = reprlib.Repr()
_BRIEF.maxlist = _BRIEF.maxdict = _BRIEF.maxtuple = 20
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 120


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a file.

    Args:
        file: the file's name as it was given.
        message: what was expected, what was found, and what to do.
        line: counted from 1 (in Parquet and npz: the row), or None for the whole file.
        column: a column's name, or a character position counted from 1.

    Example:
        >>> str(Problem("a.csv", "must be 0 or 1; got '7'.", line=3, column="spam"))
        "a.csv, line 3, column 'spam': must be 0 or 1; got '7'."
    """

    file: str
    message: str
    line: int | None = None
    column: str | int | None = None

    def __str__(self) -> str:
        place = self.file
        if self.line is not None:
            place += f", line {self.line}"
        if self.column is not None:
            place += f", column {self.column!r}"
        return f"{place}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class DataError(ValueError):
    """Raised for a file that cannot be read as examples; ``problem`` has the position and the message as separate fields.

    Example:
        >>> raise DataError("is empty. Give a file with at least one example.", file="a.csv")
        Traceback (most recent call last):
        ...
        manyhot.data.files.problems.DataError: a.csv: is empty. Give a file with at least one example.
    """

    def __init__(self, message: str, *, file: str, line: int | None = None, column: str | int | None = None) -> None:
        self.problem = Problem(file, message, line, column)
        super().__init__(str(self.problem))


class ProblemLog:
    """Raises the first problem, or keeps the first ``keep`` of them and counts the rest.

    Args:
        mode: ``"raise"`` or ``"collect"``; with ``"collect"`` a reader skips rows with problems.
        file: the file's name.
        keep: the number of problems that are kept in full.
    """

    def __init__(self, mode: OnProblem, file: str, *, keep: int = 10) -> None:
        self.mode = mode
        self.file = file
        self.keep = keep
        self.kept: list[Problem] = []
        self.count = 0

    def add(self, message: str, *, line: int | None = None, column: str | int | None = None) -> None:
        """Report a problem."""
        if self.mode == "raise":
            raise DataError(message, file=self.file, line=line, column=column)
        self.count += 1
        # Counted by line: a reader parses the first rows twice and may find another problem the second time.
        if len(self.kept) < self.keep or (line or 0) < (self.kept[-1].line or 0):
            self.kept.append(Problem(self.file, message, line, column))
            self.kept.sort(key=lambda problem: problem.line or 0)
            del self.kept[self.keep :]

    def first(self) -> str:
        """The first problem, to append to the message that nothing could be read; empty if there is none."""
        return f" The first problem: {self.kept[0]}" if self.kept else ""

    def fatal(self, message: str, *, line: int | None = None, column: str | int | None = None) -> DataError:
        """An error that ends reading, to be raised in both modes."""
        return DataError(message, file=self.file, line=line, column=column)


def shown(value: Any, length: int = 60) -> str:
    """A value, shortened for a message.

    Example:
        >>> shown("a" * 100, 10)
        "'aaaaaaa..."
    """
    text = repr(value[: 2 * length]) if isinstance(value, (str, bytes)) else _BRIEF.repr(value)
    return text if len(text) <= length else text[: length - 2] + "..."


def missing_package(what: str, package: str, *, file: str) -> DataError:
    """The error for a missing package that ``what`` needs."""
    return DataError(f"{what} needs the package {package}. Install it with: pip install manyhot[data]", file=file)
