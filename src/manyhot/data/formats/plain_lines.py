"""A fast path for JSON lines of texts with label lists: the native engine parses them in blocks.

The result is the same as that of the line-by-line reader. If a file has anything unusual (a damaged line, a line that is not an
object, a label that is not a name), that reader reads it again from the start and reports the errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from manyhot.data.examples import Examples
from manyhot.data.files.collection import collection_paused
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.json_lines import json_object, json_objects
from manyhot.data.files.problems import DataError, ProblemLog
from manyhot.data.options import ReadOptions
from manyhot.data.tables.column_kinds import sample_of
from manyhot.data.tables.table import TableExamples, columns_of_records
from manyhot.engines.native import lines as native

BLOCK_BYTES = 1 << 22
# Reading a smaller file takes less time than starting a thread.
LEAST_BYTES = 1 << 20


def read_plain(path: str, options: ReadOptions) -> Examples | None:
    """All rows of a file, or None if some line has another form; lines with escapes are accepted."""
    if not _worth_it(path, options):
        return None
    quiet = ProblemLog("raise", path)
    try:
        with InputFile(path, max_line_bytes=options.max_line_bytes, max_expansion=options.max_expansion) as file:
            return _read(file, options, quiet)
    except (DataError, UnicodeDecodeError):
        return None


def _worth_it(path: str, options: ReadOptions) -> bool:
    large = path != "-" and Path(path).is_file() and Path(path).stat().st_size >= LEAST_BYTES
    return large and options.max_line_bytes >= BLOCK_BYTES and native.available()[0]


def _read(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples | None:
    sample = sample_of(json_objects(file, problems))
    if not sample:
        return None
    table = TableExamples(columns_of_records(sample, options, problems), options, problems, "jsonl")
    table.extend(sample)
    keys = table.plain_keys
    if keys is None or any("\0" in key for key in keys):
        return None
    known: dict[bytes, int] = {}
    line = sample[-1][0]
    with collection_paused():
        for block in _blocks(file):
            line = _add_block(table, block, keys, known, line)
    return table.finish()


def _blocks(file: InputFile) -> Iterator[bytes]:
    """Blocks of whole lines; the next block is decompressed while this one is parsed."""
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(file.line_block, BLOCK_BYTES)
        while block := ahead.result():
            ahead = pool.submit(file.line_block, BLOCK_BYTES)
            yield block


def _add_block(table: TableExamples, block: bytes, keys: tuple[str, str], known: dict[bytes, int], line: int) -> int:
    """Add the lines of a block, which begins after ``line``; returns the number of its last line."""
    block.decode("utf-8")
    ends, texts, counts, labels = native.scan(block, *keys)
    names = [block[first:last] for first, last in zip(*labels, strict=True)]
    # Later blocks rarely have new names; looking all names up together is faster than row by row.
    numbers = list(map(known.get, names))
    every_known, add_plain = None not in numbers, table.add_plain
    start = at = 0
    for end, first, last, count in zip(ends, *texts, counts, strict=True):
        line += 1
        if count < 0:
            text = block[start:end].decode("utf-8").rstrip("\r\n")
            record = json_object(text, line, table.problems) if text and not text.isspace() else None
            table.extend(() if record is None else ((line, record),))
        else:
            own = numbers[at : at + count]
            if not every_known and None in own:
                known |= {
                    name: table.number_of(name.decode("utf-8"), line) for name in names[at : at + count] if name not in known
                }
                own = [known[name] for name in names[at : at + count]]
            add_plain(block[first:last].decode("utf-8"), own)
            at += count
        start = end + 1
    return line
