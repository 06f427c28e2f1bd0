"""CSV and TSV with a header line, and tab-separated files without one.

Parsed by the standard library's csv module: it works line by line, so that a problem has a line number. Tab-separated files are
split at tabs only, because quotation marks in them are usually plain characters, unless the first lines show that fields are
quoted.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

from manyhot._checks import check_choice
from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.formats.format import TABLE_OPTIONS, FileStart, Format
from manyhot.data.options import ReadOptions
from manyhot.data.tables.column_kinds import SAMPLE_ROWS, detect_decimal, is_number, sample_of
from manyhot.data.tables.columns import ID_NAMES, LABEL_NAMES, LABEL_PREFIXES, may_hold_sets
from manyhot.data.tables.decimals import MARKS
from manyhot.data.tables.table import TableExamples, columns_of

DELIMITERS = (",", "\t", ";", "|")
_KNOWN_NAMES = {*LABEL_NAMES, *ID_NAMES, "text", "sentence", "content", "title", "body", "comment", "document", "abstract"}

Fields = tuple[int, list[str]]


def read_delimited(file: InputFile, options: ReadOptions, problems: ProblemLog, *, format: str = "csv") -> Examples:
    """All rows of a CSV or TSV file with a header line."""
    check_choice("read_examples", "delimiter", options.delimiter or DELIMITERS[0], DELIMITERS)
    check_choice("read_examples", "decimal", options.decimal or MARKS[0], MARKS)
    start = [
        line.rstrip("\r") for line in file.peek().decode("utf-8", "ignore").removeprefix("\ufeff").split("\n")[:SAMPLE_ROWS]
    ]
    delimiter = options.delimiter or ("\t" if format == "tsv" else _delimiter(start))
    quoting = _quoted(start, delimiter) if options.quoting is None else options.quoting
    fields = _fields(file, delimiter, quoting, problems)
    first = next(fields, None)
    if first is None:
        raise problems.fatal("must hold a header line and rows; it holds no line.")
    header, ahead = _header(first, options, problems)
    rows = _rows(chain(ahead, fields), header, delimiter, problems)
    sample = sample_of(rows)
    if not sample:
        raise problems.fatal(f"must hold rows beneath the header line; it holds none that can be read.{problems.first()}")
    firsts = dict(zip(header, zip(*(row for _, row in sample), strict=True), strict=True))
    decimal = options.decimal or detect_decimal(cells for n, cells in firsts.items() if not may_hold_sets(n, options))
    columns = columns_of(firsts, options, problems, decimal=decimal)
    places = {name: place for place, name in enumerate(header)}
    table = TableExamples(columns, options, problems, format, places=places, decimal=decimal)
    table.extend(chain(sample, rows))
    told = {"delimiter": delimiter, "quoting": quoting, "header": not ahead}
    return table.finish(told | ({"decimal": decimal} if decimal == "," else {}))


def looks_like_header(fields: Sequence[str]) -> bool:
    """Whether the first line names columns: one is a usual name, and none is a number.

    Example:
        >>> looks_like_header(["id", "comment_text", "toxic"]), looks_like_header(["I like it.", "3", "x17"])
        (True, False)
    """
    names = [name.strip().lower() for name in fields]
    known = any(name in _KNOWN_NAMES or name.startswith(LABEL_PREFIXES) for name in names)
    return known and not any(is_number(name) for name in names)


def _header(first: Fields, options: ReadOptions, problems: ProblemLog) -> tuple[list[str], list[Fields]]:
    """The column names, and the first line again if it is a row."""
    line, fields = first
    if options.header is False:
        return [str(place) for place in range(1, len(fields) + 1)], [first]
    names = [name.strip() for name in fields]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise problems.fatal(
            "column names must differ; this one occurs twice. Rename it, or use `header=False` if the first line is a row.",
            line=line,
            column=twice,
        )
    if options.header is None and all(is_number(name) for name in names):
        raise problems.fatal(
            f"the first line must name the columns; it holds the numbers {shown(', '.join(names[:5]))}."
            " Use `header=False` to number the columns from 1.",
            line=line,
        )
    return names, []


def _fields(file: InputFile, delimiter: str, quoting: bool, problems: ProblemLog) -> Iterator[Fields]:
    """The fields of each row, with the number of the line where it begins; empty lines are skipped."""
    if not quoting:
        for line, text in file.lines():
            if text:
                yield line, text.split(delimiter)
        return
    # The csv module's field size limit is global to the process and too low for documents; never lower it.
    csv.field_size_limit(max(csv.field_size_limit(), file.max_line_bytes))
    reader = csv.reader((text for _, text in file.lines(keep_ends=True)), delimiter=delimiter, strict=True)
    while True:
        begin = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise problems.fatal(
                f"the fields could not be split: {error}. Double the quotation marks inside a quoted field, or use"
                " `quoting=False` if they are ordinary characters.",
                line=begin,
            ) from None
        if fields:
            yield begin, fields


def _rows(fields: Iterator[Fields], header: Sequence[str], delimiter: str, problems: ProblemLog) -> Iterator[Fields]:
    for line, row in fields:
        if len(row) != len(header):
            problems.add(
                f"the row must have {len(header)} columns like the first line; got {len(row)}: {shown(delimiter.join(row))}."
                " Quote a field that holds the delimiter.",
                line=line,
            )
        else:
            yield line, row


def _delimiter(start: Sequence[str]) -> str:
    first = next((line for line in start if line.strip()), "")
    if not any(mark in first for mark in DELIMITERS):
        # One column: a mark that no row has.
        return next((mark for mark in DELIMITERS if not any(mark in line for line in start)), DELIMITERS[0])
    return max(DELIMITERS, key=first.count)


def _quoted(start: Sequence[str], delimiter: str) -> bool:
    """Whether fields are quoted: always in CSV; in TSV if splitting at tabs gives rows of different lengths and quoting gives
    equal ones."""
    if delimiter != "\t":
        return True
    lines = [line for line in start[:-1] if line] or list(start)
    if len({line.count(delimiter) for line in lines}) <= 1:
        return False
    try:
        rows = list(csv.reader([line + "\n" for line in lines], delimiter=delimiter, strict=True))
    except csv.Error:
        return False
    return len({len(row) for row in rows}) == 1


def _looks_like_csv(start: FileStart) -> bool:
    first = start.lines[0].lstrip()
    return "\t" not in first and any(mark in first and looks_like_header(first.split(mark)) for mark in DELIMITERS)


def _looks_like_tsv(start: FileStart) -> bool:
    first = start.lines[0].lstrip()
    return "\t" in first and looks_like_header(first.split("\t"))


_OPTIONS = (*TABLE_OPTIONS, "delimiter", "header", "quoting", "decimal")
CSV = Format(
    name="csv",
    about="columns between commas, semicolons or bars, with a header line",
    read=read_delimited,
    suffixes=(".csv",),
    looks=_looks_like_csv,
    columns=True,
    takes=_OPTIONS,
)
TSV = Format(
    name="tsv",
    about="columns between tabs, with a header line",
    read=partial(read_delimited, format="tsv"),
    likely_suffixes=(".tsv", ".tab"),
    looks=_looks_like_tsv,
    columns=True,
    takes=_OPTIONS,
)
