"""Output of the commands: tables or JSON on the standard output, messages and progress on the standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyhot.cli.io.terminal import printable, safe_json

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, without progress and messages.")]

results = Console(soft_wrap=False, highlight=False)
messages = Console(stderr=True, soft_wrap=True, highlight=False)


def say(text: str, *, quiet: bool = False) -> None:
    """Print a message to the standard error."""
    if not quiet:
        messages.print(Text(printable(text)))


def show_json(value: Any) -> None:
    """Print one JSON document; NaN and infinity become null."""
    sys.stdout.write(safe_json(json.dumps(_finite(value), ensure_ascii=False, indent=1, default=str)) + "\n")


def show_text(text: str = "", *, style: str = "") -> None:
    """Print a line of the result; brackets are not interpreted as markup."""
    results.print(Text(printable(text), style=style), soft_wrap=True)


def show_pairs(title: str, pairs: Sequence[tuple[str, Any]]) -> None:
    """Print names and values under a title."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(printable(name)), Text(printable(number(value))))
    if title:
        show_text(title, style="bold")
    results.print(table)


def show_table(
    headings: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[int] = (), whole: Sequence[int] = (0,)
) -> None:
    """Print a table.

    Args:
        headings: one per column.
        rows: one value per column.
        right: the columns that are aligned to the right.
        whole: the columns that are never wrapped.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(
            Text(printable(heading)), justify="right" if place in right else "left", no_wrap=place in whole, overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(printable(number(value))) for value in row))
    results.print(table)


def bar(share: float, width: int) -> str:
    """A bar of text for a share in [0, 1], to an eighth of a character if the terminal supports it.

    Example:
        >>> bar(0.5, 4)
        '██'
    """
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    if (results.encoding or "").lower().replace("-", "") != "utf8":
        return "#" * max(round(share * width), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def number(value: Any) -> str:
    """A value as text: thousands separators, four decimals for fractions.

    Example:
        >>> number(1234567), number(0.25), number(5.0), number(None)
        ('1,234,567', '0.2500', '5', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return (
            f"{value:,.0f}"
            if value.is_integer() and abs(value) >= 2
            else f"{value:,.4f}"
            if abs(value) < 100
            else f"{value:,.1f}"
        )
    if isinstance(value, (list, tuple)):
        return ", ".join(str(part) for part in value)
    return str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return value
