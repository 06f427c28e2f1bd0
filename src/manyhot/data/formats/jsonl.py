"""JSON lines, or one JSON array over the whole file: each object is a row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.json_array import array_objects
from manyhot.data.files.json_lines import json_objects
from manyhot.data.files.line_block import LineBlock
from manyhot.data.files.problems import ProblemLog
from manyhot.data.formats.format import TABLE_OPTIONS, FileStart, Format
from manyhot.data.formats.plain_lines import read_plain
from manyhot.data.options import ReadOptions
from manyhot.data.tables.column_kinds import sample_of
from manyhot.data.tables.columns import TableColumns
from manyhot.data.tables.table import TableExamples, columns_of_records
from manyhot.data.write import write_examples


def read_jsonl(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All rows of a JSON lines file."""
    # A block of a file has the name of the file; the fast path would read the whole file.
    plain = None if isinstance(file, LineBlock) else read_plain(file.name, options)
    if plain is not None:
        return plain
    records = json_objects(file, problems)
    sample = sample_of(records)
    table = TableExamples(_columns(sample, options, problems), options, problems, "jsonl")
    table.extend(chain(sample, records))
    return table.finish()


def read_json(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All rows of a file that is one array of objects."""
    records = array_objects(file, problems)
    sample = sample_of(records)
    table = TableExamples(_columns(sample, options, problems), options, problems, "json")
    table.extend(chain(sample, records))
    return table.finish()


def read_jsonl_part(part: InputFile, file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """The rows in some lines of a JSON lines file, with the columns found at the start of the file."""
    sample = sample_of(json_objects(file, ProblemLog("collect", file.name)))
    table = TableExamples(_columns(sample, options, problems), options, problems, "jsonl")
    table.extend(json_objects(part, problems))
    return table.finish()


def _columns(sample: Sequence[tuple[int, dict[str, Any]]], options: ReadOptions, problems: ProblemLog) -> TableColumns:
    if not sample:
        raise problems.fatal(f"must hold at least one JSON object; it holds none that can be read.{problems.first()}")
    return columns_of_records(sample, options, problems)


def _looks_like_an_array(start: FileStart) -> bool:
    text = "".join(start.lines[:2]).lstrip()
    return text.startswith("[") and text[1:].lstrip()[:1] in ("{", "]", "")


def _looks(start: FileStart) -> bool:
    return start.lines[0].lstrip().startswith("{")


ARRAY = Format(
    name="json",
    about="one JSON array of objects, each a row",
    read=read_json,
    looks=_looks_like_an_array,
    columns=True,
    takes=TABLE_OPTIONS,
)
FORMAT = Format(
    name="jsonl",
    about="JSON lines, one object per row",
    read=read_jsonl,
    suffixes=(".jsonl", ".ndjson"),
    likely_suffixes=(".json",),
    looks=_looks,
    by_lines=True,
    read_part=read_jsonl_part,
    columns=True,
    takes=TABLE_OPTIONS,
    write=write_examples,
)
