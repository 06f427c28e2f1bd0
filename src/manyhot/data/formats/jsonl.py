"""JSON lines as a table of examples: a row from each object."""

from __future__ import annotations

from itertools import chain

from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.json_lines import json_objects
from manyhot.data.files.problems import ProblemLog
from manyhot.data.formats.format import TABLE_OPTIONS, FileStart, Format
from manyhot.data.options import ReadOptions
from manyhot.data.tables.column_kinds import sample_of
from manyhot.data.tables.table import TableExamples, columns_of
from manyhot.data.write import write_examples


def read_jsonl(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All rows of a JSON lines file."""
    records = json_objects(file, problems)
    sample = sample_of(records)
    if not sample:
        raise problems.fatal(f"must hold at least one JSON object; it holds none that can be read.{problems.first()}")
    names = dict.fromkeys(name for _, record in sample for name in record)
    columns = columns_of({name: [record.get(name) for _, record in sample] for name in names}, options, problems)
    table = TableExamples(columns, options, problems, "jsonl")
    table.extend(chain(sample, records))
    return table.finish()


def _looks(start: FileStart) -> bool:
    return start.lines[0].lstrip().startswith("{")


FORMAT = Format(
    name="jsonl",
    about="JSON lines, an object a row",
    read=read_jsonl,
    suffixes=(".jsonl", ".ndjson"),
    likely_suffixes=(".json",),
    looks=_looks,
    by_lines=True,
    columns=True,
    takes=TABLE_OPTIONS,
    write=write_examples,
)
