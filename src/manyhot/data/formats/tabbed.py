"""Tab-separated lines without a header: LibMultiLabel's format, and texts with label numbers.

- ``libmultilabel``: ``id TAB labels TAB text`` or ``labels TAB text``, labels separated by blanks.
- ``text-ids``: ``text TAB numbers`` or ``text TAB numbers TAB id``, numbers separated by commas. A file ``labels.txt`` in
  the same folder, one name per line, gives the names of the numbers, if it has one for every number.

Fields are split at tabs only; quotation marks are ordinary characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.label_files import names_in_text_file
from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.formats.format import FileStart, Format, part_as_whole
from manyhot.data.options import ReadOptions
from manyhot.data.tables.label_rows import LabelRows
from manyhot.data.tables.table import source_of

_NUMBERS = re.compile(r"\d+(,\d+)*", re.ASCII)
_ROLES = {
    ("libmultilabel", 3): ("id", "labels", "text"),
    ("libmultilabel", 2): ("labels", "text"),
    ("text-ids", 3): ("text", "labels", "id"),
    ("text-ids", 2): ("text", "labels"),
}


def tabbed_format(lines: Sequence[str]) -> str | None:
    """``"text-ids"``, ``"libmultilabel"``, or None if the first lines are neither.

    Example:
        >>> tabbed_format(["I like it.\\t3,17\\tx1", "Oh no!\\t2\\tx2"])
        'text-ids'
        >>> tabbed_format(["d1\\tECAT GDIA\\tthe rate rose again today"])
        'libmultilabel'
    """
    rows = [line.split("\t") for line in lines if line]
    if not rows or len({len(row) for row in rows}) != 1 or len(rows[0]) not in (2, 3):
        return None
    if all(_NUMBERS.fullmatch(row[1].replace(" ", "")) for row in rows) and sum(_words(row[0]) for row in rows) >= 2 * len(
        rows
    ):
        return "text-ids"
    text_words = sum(_words(row[-1]) for row in rows)
    return "libmultilabel" if text_words > sum(_words(row[-2]) for row in rows) else None


def read_tabbed(file: InputFile, options: ReadOptions, problems: ProblemLog, *, format: str) -> Examples:
    """All rows of a tab-separated file without header."""
    separator = options.separator or ("," if format == "text-ids" else None)
    texts: list[str] = []
    ids: list[str] = []
    labels = LabelRows()
    roles: tuple[str, ...] | None = None
    for line, content in file.lines():
        if not content:
            continue
        fields = content.split("\t")
        roles = roles or _roles(format, fields, line, problems)
        try:
            names = _label_names(fields, roles, separator, numbers=format == "text-ids")
        except _WrongLineError as error:
            problems.add(*error.args, line=line, column=error.column)
            continue
        labels.add(names, line=line)
        texts.append(fields[roles.index("text")])
        ids.append(fields[roles.index("id")] if "id" in roles else "")
    if roles is None:
        raise problems.fatal("must hold at least one line; it holds none.")
    chosen: dict[str, object] = {"fields": list(roles), "separator": separator or "blanks"}
    beside = Path(file.name).with_name("labels.txt") if format == "text-ids" and options.label_names is None else None
    ids_of = names_in_text_file(beside) if beside is not None and beside.is_file() else None
    gathered = labels.finish(problems, wanted=options.label_names, ids_of=ids_of)
    if ids_of is not None and gathered.names == tuple(ids_of):
        chosen["label_file"] = str(beside)
    source = (source_of(problems, format, chosen),)
    return Examples(gathered.labels, gathered.names, texts=texts, ids=ids if "id" in roles else None, source=source)


class _WrongLineError(ValueError):
    """A line that is not a row: the message, and the position of the wrong field."""

    def __init__(self, message: str, column: int | None = None) -> None:
        super().__init__(message)
        self.column = column


def _roles(format: str, fields: Sequence[str], line: int, problems: ProblemLog) -> tuple[str, ...]:
    """The roles of the fields, from the first line."""
    roles = _ROLES.get((format, len(fields)))
    if roles is None:
        raise problems.fatal(
            f"a line of format {format!r} must have 2 or 3 fields separated by tabs; got {len(fields)}:"
            f" {shown(chr(9).join(fields))}.",
            line=line,
        )
    return roles


def _label_names(fields: Sequence[str], roles: Sequence[str], separator: str | None, *, numbers: bool) -> list[str]:
    if len(fields) != len(roles):
        raise _WrongLineError(
            f"the line must have {len(roles)} fields separated by tabs ({', '.join(roles)}); got {len(fields)}:"
            f" {shown(chr(9).join(fields))}."
        )
    place = roles.index("labels")
    names = [name for name in map(str.strip, fields[place].split(separator)) if name]
    wrong = next((name for name in names if not name.isdecimal()), None) if numbers else None
    if wrong is not None:
        raise _WrongLineError(f"labels must be numbers separated by {separator!r}; got {shown(wrong)}.", place + 1)
    return names


def _words(text: str) -> int:
    return len(text.split())


def _looks_like(name: str, start: FileStart) -> bool:
    return "\t" in start.lines[0] and tabbed_format(start.lines) == name


TEXT_IDS = Format(
    name="text-ids",
    about="text TAB label numbers, optionally followed by TAB id",
    read=partial(read_tabbed, format="text-ids"),
    looks=partial(_looks_like, "text-ids"),
    by_lines=True,
    read_part=part_as_whole(partial(read_tabbed, format="text-ids")),
    takes=("separator", "label_names"),
)
LIBMULTILABEL = Format(
    name="libmultilabel",
    about="labels TAB text, optionally preceded by id TAB",
    read=partial(read_tabbed, format="libmultilabel"),
    looks=partial(_looks_like, "libmultilabel"),
    by_lines=True,
    read_part=part_as_whole(partial(read_tabbed, format="libmultilabel")),
    takes=("separator", "label_names"),
)
