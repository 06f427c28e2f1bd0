"""``manyhot pack``: pack files of examples into a folder of memory-mapped rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from manyhot.cli.io.console import JsonFlag, QuietFlag, say, show_json
from manyhot.cli.io.reading import read_flags, read_options, reading_of, tell
from manyhot.data.examples import Source

PackFiles = Annotated[list[str], typer.Argument(help="Files of examples with one row per line, read as one set.")]
FolderFlag = Annotated[
    Path, typer.Option("--output", "-o", help="The folder to create; to continue an interrupted call, repeat it.")
]
# Seconds between two progress lines.
EVERY = 5.0


@read_flags
def pack(
    files: PackFiles, *, output: FolderFlag, json: JsonFlag = False, quiet: QuietFlag = False, reading: dict[str, Any]
) -> None:
    """Pack files of examples into a folder of memory-mapped rows, for data larger than memory.

    The commands train, evaluate and predict read the folder like a file.
    """
    from manyhot.data.mapped.pack import pack as pack_files

    options, format = read_options(reading_of(reading))
    silent, told = quiet or json, time.monotonic()

    read: dict[str, Source] = {}

    def progress(rows: int, source: Source) -> None:
        nonlocal told
        read[source.path] = source
        if time.monotonic() - told >= EVERY:
            told = time.monotonic()
            say(f"{rows:,} rows", quiet=silent)

    rows = pack_files(files, output, options, format=format, told=progress)
    tell(list(read.values()), quiet=silent)
    if json:
        show_json({"folder": str(output), "rows": rows})
    else:
        say(f"Done: {output}, {rows:,} rows. Train on it with: manyhot train {output}", quiet=quiet)
