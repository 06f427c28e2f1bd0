"""Read the rows to predict block by block, from a file of any size or from a pipe that is still being written to."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from manyhot.cli.io.reading import read_options, tell
from manyhot.data.examples import Examples, Source
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.line_block import LineBlock
from manyhot.data.files.problems import DataError, ProblemLog
from manyhot.data.formats.format import Format
from manyhot.data.formats.registry import format_named, recognise_format
from manyhot.data.options import ReadOptions
from manyhot.data.read import folder_entry, read_open, read_path
from manyhot.data.reading import Reading
from manyhot.data.used_options import check_options_used

ROWS = 4096
STDIN = "-"
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")


def read_blocks(
    files: Sequence[str] | None, reading: Mapping[str, Any], *, inherited: Mapping[str, Any], quiet: bool = False
) -> Iterator[Examples]:
    """Examples without labels, block by block. Formats with one row per line are streamed; other files are read whole.

    Args:
        files: read one after the other; None reads the standard input.
        reading: the given flags; a flag that a file does not use is an error.
        inherited: how the model's training files were read; ``reading`` takes precedence. The rest is detected on the first
            block of a file.
        quiet: print no messages.
    """
    options, format = read_options({**inherited, **reading}, need_labels=False)
    named = None if format is None else format_named("read_examples", format, "labels")
    paths = files or [STDIN]
    for path in paths:
        said: set[str] = set()
        for examples in _stdin(named, options) if path == STDIN else _file(path, named, options):
            if len(paths) == 1:
                check_options_used(reading, examples.source)
            tell(examples.source, quiet=quiet, said=said)
            yield examples


def first_block(path: str, reading: Mapping[str, Any]) -> Examples | None:
    """The first rows of a file and their labels, without messages; None if the format does not have one row per line."""
    options, format = read_options(reading)
    named = None if format is None else format_named("read_examples", format, "labels")
    if folder_entry(path, named) is not None:
        return None
    with InputFile(path, max_line_bytes=options.max_line_bytes, max_expansion=options.max_expansion) as file:
        entry = named or recognise_format(file, labelled=True)
        if not entry.by_lines:
            return None
        content = b"".join(line for _, line in itertools.islice(file.raw_lines(), ROWS))
        block = LineBlock(path, content, first=1, max_line_bytes=options.max_line_bytes)
        return read_open(block, entry, options, ProblemLog(options.on_problem, path))


def _file(path: str, named: Format | None, options: ReadOptions) -> Iterator[Examples]:
    if folder_entry(path, named) is not None:
        yield from _cut(read_path(path, named, options))
        return
    with InputFile(path, max_line_bytes=options.max_line_bytes, max_expansion=options.max_expansion) as file:
        entry = named or recognise_format(file, labelled=False)
        if not entry.by_lines:
            yield from _cut(read_open(file, entry, options, ProblemLog(options.on_problem, path)))
            return
        lines = file.raw_lines()
        blocks = iter(lambda: list(itertools.islice(lines, ROWS)), [])
        yield from _parsed(path, entry, options, (b"".join(line for _, line in block) for block in blocks))


def _cut(whole: Examples) -> Iterator[Examples]:
    """Blocks of examples; the first one carries the messages about the file."""
    yield whole[:ROWS]
    silent = tuple(replace(source, remarks=(), problems=(), num_problems=0) for source in whole.source)
    rest = replace(whole, source=silent)
    yield from (rest[start : start + ROWS] for start in range(ROWS, len(whole), ROWS))


def _stdin(named: Format | None, options: ReadOptions) -> Iterator[Examples]:
    if sys.stdin is None or sys.stdin.closed:
        raise DataError("the standard input must be open; it is closed. Name a file.", file=STDIN)
    chunks = _whole_lines(options.max_line_bytes)
    start = next(chunks, b"")
    if start.startswith(_COMPRESSED):
        raise DataError("the standard input must not be compressed. Decompress it first, for example with zcat.", file=STDIN)
    first = LineBlock(STDIN, start, first=1, max_line_bytes=options.max_line_bytes)
    entry = named or recognise_format(first, labelled=False)
    contents = itertools.chain([start], chunks)
    yield from _parsed(STDIN, entry, options, contents if entry.by_lines else iter([b"".join(contents)]))


def _whole_lines(limit: int) -> Iterator[bytes]:
    """Chunks of whole lines of the standard input, as soon as they arrive."""
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


def _parsed(name: str, entry: Format, options: ReadOptions, contents: Iterator[bytes]) -> Iterator[Examples]:
    """Blocks parsed by the format's reader. The options that it chooses for the first block are used for all blocks."""
    first, chosen = 1, False
    for content in contents:
        if content.strip():
            block = LineBlock(name, content, first=first, max_line_bytes=options.max_line_bytes)
            problems = ProblemLog(options.on_problem, name)
            try:
                examples = read_open(block, entry, options, problems)
            except DataError:
                # All rows of this block were skipped; other blocks may have rows.
                if not problems.count:
                    raise
                tell([Source(name, entry.name, {}, tuple(problems.kept), problems.count)])
            else:
                if not chosen:
                    options, chosen = _filled(options, examples), True
                yield examples
        first += content.count(b"\n")


def _filled(options: ReadOptions, examples: Examples) -> ReadOptions:
    """Options completed by the reader's choices."""
    found = Reading.of(examples).options()
    # The categories of a column are not taken from the first block: they come from the model, or grow from block to block.
    found.pop("nominal", None)
    return replace(options, **{name: value for name, value in found.items() if getattr(options, name) is None})
