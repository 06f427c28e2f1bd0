"""The kind of a column, from its first values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from manyhot.data.tables.decimals import has_decimal_comma, may_group_thousands, number_reader
from manyhot.data.tables.label_values import TRUTH, is_missing

SAMPLE_ROWS, SAMPLE_CELLS, LEAST_ROWS = 1000, 400_000, 20
# With at least this many cells, up to a tenth may be of another kind: they are reported as problems of their rows and do not
# change the kind of the column.
ENOUGH = 10
_ODD_SHARE = 0.1

Row = TypeVar("Row", bound=Sequence[Any] | dict[str, Any])


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """The kind of a column.

    Args:
        kind: empty, binary (0 and 1), soft (numbers from 0 to 1), number, string, list, vector (lists of numbers), object or
            mixed.
        wordy: whether strings are running text; dates and times are not.
        repeats: whether the same strings recur, so that they are categories.
    """

    kind: str
    wordy: bool = False
    repeats: bool = False


def sample_of(rows: Iterator[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """The first rows, to detect the kinds of columns: up to 1000, fewer if rows are very wide."""
    sample: list[tuple[int, Row]] = []
    cells = 0
    for line, row in islice(rows, SAMPLE_ROWS):
        sample.append((line, row))
        cells += len(row)
        if cells > SAMPLE_CELLS and len(sample) >= LEAST_ROWS:
            break
    return sample


def column_kind(values: Iterable[Any], *, decimal: str = ".") -> ColumnKind:
    """The kind of a column by its first values; one cell of another kind among many does not change it.

    ``decimal`` is the decimal mark of numbers that are strings.

    Example:
        >>> column_kind(["1", "0", ""]).kind, column_kind(["a b c", "d e"]).wordy, column_kind([["a"], []]).kind
        ('binary', True, 'list')
        >>> column_kind(["0", "0.3"]).kind, column_kind(["0", "1"] * 10 + ["2"]).kind
        ('soft', 'binary')
        >>> column_kind(["2025-03-01 14:05", "2025-03-02 09:00"]).wordy
        False
    """
    filled = [value for value in values if not is_missing(value)]
    if not filled:
        return ColumnKind("empty")
    number = number_reader(decimal)
    counts = Counter(_cell_kind(value, number) for value in filled)
    needed = len(filled) if len(filled) < ENOUGH else math.ceil((1 - _ODD_SHARE) * len(filled))
    if counts["list"] >= needed:
        inner = {type(item) for value in filled if isinstance(value, list) for item in value}
        return ColumnKind("vector" if float in inner and inner <= {int, float} else "list")
    if counts["object"] >= needed:
        return ColumnKind("object")
    if counts["list"] + counts["object"]:
        return ColumnKind("mixed")
    if counts["binary"] >= needed and not counts["soft"]:
        return ColumnKind("binary")
    if counts["binary"] + counts["soft"] >= needed:
        return ColumnKind("soft")
    if counts["binary"] + counts["soft"] + counts["number"] >= needed:
        return ColumnKind("number")
    strings = [str(value) for value in filled]
    words = sum(sum(map(_has_letter, text.split())) for text in strings) / len(strings)
    letters = sum(map(len, strings)) / len(strings)
    unspaced = sum(not text.isascii() for text in strings) > len(strings) / 2 and letters >= 4
    return ColumnKind("string", wordy=words >= 2 or unspaced, repeats=len(set(strings)) <= len(strings) / 2)


def detect_decimal(columns: Iterable[Sequence[Any]]) -> str:
    """The decimal mark of a table: a comma if a column holds numbers with one, and not all of them may be thousands.

    Example:
        >>> detect_decimal([["0,5", "2"], ["red", ""]]), detect_decimal([["1,250", "310,125"]])
        (',', '.')
    """
    for values in columns:
        marked = list(filter(has_decimal_comma, values))
        if not all(map(may_group_thousands, marked)) and column_kind(values, decimal=",").kind in ("binary", "soft", "number"):
            return ","
    return "."


def _has_letter(word: str) -> bool:
    return any(map(str.isalpha, word))


def is_number(value: Any) -> bool:
    """A finite number, or a string that is one."""
    try:
        return not isinstance(value, bool) and math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _cell_kind(value: Any, number: Callable[[Any], float]) -> str:
    if isinstance(value, list):
        return "list"
    if isinstance(value, dict):
        return "object"
    try:
        if value in TRUTH:
            return "binary"
    except TypeError:
        return "string"
    try:
        # Infinity counts as a number: its row is reported as a problem, and the column stays numeric.
        return "soft" if 0 <= number(value) <= 1 else "number"
    except (TypeError, ValueError):
        return "string"
    except OverflowError:
        return "number"
