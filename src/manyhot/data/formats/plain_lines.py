"""A fast path for JSON lines of texts with label lists: the native engine parses them in blocks.

The result is the same as that of the line-by-line reader. If a file has anything unusual (a damaged line, a line that is not an
object, a label that is not a name), that reader reads it again from the start and reports the errors.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from manyhot.data.examples import Examples
from manyhot.data.files.collection import collection_paused
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.json_lines import json_object, json_objects
from manyhot.data.files.problems import DataError, ProblemLog
from manyhot.data.options import ReadOptions
from manyhot.data.tables.column_kinds import sample_of
from manyhot.data.tables.table import TableExamples, columns_of_records
from manyhot.engines.native import lines as native

Array = np.ndarray[Any, Any]
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
    labels, line = _Labels(table), sample[-1][0]
    with collection_paused():
        for block in _blocks(file):
            line = _add_block(table, block, keys, labels, line)
    return table.finish()


def _blocks(file: InputFile) -> Iterator[bytes]:
    """Blocks of whole lines; the next block is decompressed while this one is parsed."""
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(file.line_block, BLOCK_BYTES)
        while block := ahead.result():
            ahead = pool.submit(file.line_block, BLOCK_BYTES)
            yield block


class _Labels:
    """The numbers that a table gives to the names of labels."""

    def __init__(self, table: TableExamples) -> None:
        self.table, self.names, self.in_table = table, native.Names(), array("q")

    def numbers(self, block: bytes, spans: Array, lines: Array) -> Array:
        """Those of the names at ``spans [P, 2]`` of a block, each on its line."""
        numbers, new = self.names.numbers(block, spans)
        for place in new:
            first, last = spans[place].tolist()
            self.in_table.append(self.table.number_of(block[first:last].decode("utf-8"), int(lines[place])))
        found: Array = np.asarray(self.in_table, np.int64)[numbers]
        return found


def _add_block(table: TableExamples, block: bytes, keys: tuple[str, str], labels: _Labels, line: int) -> int:
    """Add the lines of a block, which begins after ``line``; returns the number of its last line.

    Runs of plain lines are added together. A line that is not plain, or names a label twice, is parsed by itself.
    """
    block.decode("utf-8")
    ends, texts, counts, spans = native.scan(block, *keys)
    sizes = np.maximum(counts, 0)
    rows, begin = np.repeat(np.arange(len(sizes)), sizes), [0, *np.cumsum(sizes).tolist()]
    numbers = labels.numbers(block, spans, rows + line + 1)
    decoded = [block[first:last].decode("utf-8") for first, last in texts]
    alone = counts < 0
    alone[_rows_with_repeats(rows, numbers)] = True
    first = 0
    for single in [*np.flatnonzero(alone).tolist(), len(sizes)]:
        table.add_plain(decoded[first:single], sizes[first:single], numbers[begin[first] : begin[single]])
        if single < len(sizes):
            _add_line(table, block[ends[single - 1] + 1 if single else 0 : ends[single]], line + 1 + single)
        first = single + 1
    return line + len(sizes)


def _add_line(table: TableExamples, content: bytes, line: int) -> None:
    text = content.decode("utf-8").rstrip("\r\n")
    record = json_object(text, line, table.problems) if text and not text.isspace() else None
    table.extend(() if record is None else ((line, record),))


def _rows_with_repeats(rows: Array, numbers: Array) -> Array:
    """The rows that have a number twice; numbers are below 2^32."""
    keys = np.sort(rows << 32 | numbers)
    twice: Array = keys[1:][keys[1:] == keys[:-1]] >> 32
    return twice
