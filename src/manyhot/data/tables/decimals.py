"""Numbers with a decimal comma, as spreadsheets write them in half of the world."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

MARKS = (".", ",")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?")
_GROUP_OF_THREE = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")


def number_reader(decimal: str | None) -> Callable[[Any], float]:
    """A function from a cell to its number, ValueError if it is none; with a decimal comma a point is allowed too.

    Example:
        >>> number_reader(",")("0,25"), number_reader(",")("0.25"), number_reader(".")("0.25")
        (0.25, 0.25, 0.25)
    """
    return _with_comma if decimal == "," else float


def _with_comma(cell: Any) -> float:
    return float(cell.replace(",", ".") if isinstance(cell, str) else cell)


def has_decimal_comma(cell: Any) -> bool:
    """Whether a cell is a number with a decimal comma.

    Example:
        >>> has_decimal_comma("0,5"), has_decimal_comma("0.5"), has_decimal_comma("1,5,2")
        (True, False, False)
    """
    return isinstance(cell, str) and _DECIMAL_COMMA.fullmatch(cell.strip()) is not None


def may_group_thousands(cell: str) -> bool:
    """Whether the comma of a number may be between groups of three digits.

    Example:
        >>> may_group_thousands("1,250"), may_group_thousands("0,250"), may_group_thousands("1,25")
        (True, False, False)
    """
    return _GROUP_OF_THREE.fullmatch(cell.strip()) is not None
