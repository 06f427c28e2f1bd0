"""The value of one label in one cell: 0, 1, a number between them, or unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MISSING = frozenset(("", "?", "nan", "NaN", "NA", "null", "None"))
# 1, 1.0 and True are the same key. None stands for an unknown label.
TRUTH: dict[Any, float | None] = {0: 0.0, 1: 1.0, None: None}
TRUTH |= dict.fromkeys(("0", "0.0", "false", "False", "FALSE"), 0.0)
TRUTH |= dict.fromkeys(("1", "1.0", "true", "True", "TRUE"), 1.0)
TRUTH |= dict.fromkeys(MISSING)
# How error messages describe a valid label.
WANTED = "0, 1 or a number between them (a soft label)"


def label_value(cell: Any, read: Callable[[Any], float] = float) -> float | None:
    """A number in [0, 1], or None if the label is unknown; ValueError otherwise. ``read``: a cell to its number.

    Example:
        >>> label_value("1"), label_value(False), label_value("0.25"), label_value("?")
        (1.0, 0.0, 0.25, None)
    """
    try:
        return TRUTH[cell.strip() if isinstance(cell, str) else cell]
    except (KeyError, TypeError):
        pass
    if cell != cell:
        return None
    try:
        value = read(cell)
    except (TypeError, OverflowError):
        raise ValueError("not a number") from None
    if not 0 <= value <= 1:
        raise ValueError("not in [0, 1]")
    return value


def is_missing(value: Any) -> bool:
    """None, NaN, or a string that stands for no value."""
    return value is None or (isinstance(value, str) and value.strip() in MISSING) or (value != value) is True
