"""Rows to predict, some at a time: a file of any size, or a pipe that is still being written to."""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any, cast

from manyhot.data.examples import Examples
from manyhot.data.files.input_file import MAX_LINE_BYTES, InputFile
from manyhot.data.files.problems import DataError, ProblemLog
from manyhot.data.formats.recognise import recognise_format
from manyhot.data.options import ReadOptions
from manyhot.data.read import READERS, read_examples

ROWS = 4096
# A line is a row, whatever the other lines hold. CSV has fields over several lines and a header.
BY_LINES = ("jsonl", "fasttext", "libmultilabel", "text-ids", "svmlight")
STDIN = "-"
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")


class LineBlock(InputFile):
    """Some lines of a file, numbered as they are in it."""

    def __init__(self, name: str, content: bytes, *, first: int, max_line_bytes: int) -> None:
        self.name = name
        self.max_line_bytes = max_line_bytes
        self.compression = None
        self.problems = None
        self._ahead = None
        self.first = first
        self.raw = io.BufferedReader(cast(Any, io.BytesIO(b"")))
        self.stream = io.BufferedReader(cast(Any, io.BytesIO(content)), buffer_size=2**20)

    def raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """Line numbers of the whole file, and lines."""
        for number, line in super().raw_lines():
            yield number + self.first - 1, line


def read_blocks(path: str, *, format: str | None, reading: Mapping[str, Any]) -> Iterator[Examples]:
    """Examples without labels, block by block: formats of one row a line are streamed, others are read whole."""
    limit = int(reading.get("max_line_bytes", MAX_LINE_BYTES))
    if path == STDIN:
        yield from _stdin(format, reading, limit)
        return
    with InputFile(path, max_line_bytes=limit) as file:
        found = format or recognise_format(file)
        if found not in BY_LINES:
            whole = read_examples(path, **{**reading, "format": found, "need_labels": False})
            yield from (whole[start : start + ROWS] for start in range(0, len(whole), ROWS))
            return
        lines = file.raw_lines()
        blocks = iter(lambda: list(itertools.islice(lines, ROWS)), [])
        yield from _parsed(path, found, reading, limit, (b"".join(line for _, line in block) for block in blocks))


def _stdin(format: str | None, reading: Mapping[str, Any], limit: int) -> Iterator[Examples]:
    chunks = _whole_lines(limit)
    start = next(chunks, b"")
    if start.startswith(_COMPRESSED):
        raise DataError("the standard input must not be compressed. Pipe it through zcat or the like.", file=STDIN)
    found = format or recognise_format(LineBlock(STDIN, start, first=1, max_line_bytes=limit))
    contents = itertools.chain([start], chunks)
    yield from _parsed(STDIN, found, reading, limit, contents if found in BY_LINES else iter([b"".join(contents)]))


def _whole_lines(limit: int) -> Iterator[bytes]:
    """What the standard input has, as soon as it has a whole line."""
    read = cast(Any, sys.stdin.buffer).read1
    pending: list[bytes] = []
    while chunk := read(2**20):
        head, end, tail = chunk.rpartition(b"\n")
        if end:
            yield b"".join([*pending, head, end])
            pending = [tail] if tail else []
        else:
            pending.append(tail)
        if sum(map(len, pending)) > limit:
            break
    if pending:
        yield b"".join(pending)


def _parsed(name: str, format: str, reading: Mapping[str, Any], limit: int, contents: Iterator[bytes]) -> Iterator[Examples]:
    """Each block by the format's reader; what it chose for the first one holds for all."""
    options = dict(reading)
    first = 1
    for content in contents:
        if content.strip():
            block = LineBlock(name, content, first=first, max_line_bytes=limit)
            examples = READERS[format](block, ReadOptions(**{**options, "need_labels": False}), ProblemLog("raise", name))
            options.setdefault("text", examples.source[0].chosen.get("text") if examples.source else None)
            yield examples
        first += content.count(b"\n")
