"""Files that commands write: never one of their inputs, and under their final name only when they are whole."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import typer

from manyhot._files import writing


def check_outputs(outputs: dict[str, Path | None], inputs: Iterable[str | Path]) -> None:
    """Refuse to write over a file that is read, and to write two outputs to one file.

    Args:
        outputs: paths by the flag that gave them.
        inputs: files that the command reads.
    """
    read = [Path(name) for name in inputs]
    taken: dict[Path, str] = {}
    for flag, path in outputs.items():
        if path is None:
            continue
        if any(_same(path, other) for other in read):
            raise typer.BadParameter(f"{flag}: {path} is an input too; writing to it would destroy it. Choose another file.")
        place = path.resolve()
        if place in taken:
            raise typer.BadParameter(f"{flag} and {taken[place]} name the same file, {path}. Choose two.")
        taken[place] = flag


@contextmanager
def text_output(path: Path | None) -> Iterator[IO[str]]:
    """The standard output, or a text file that appears when the block ends without an error."""
    if path is None:
        yield sys.stdout
        return
    with writing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        try:
            yield text
            text.flush()
        finally:
            text.detach()


def _same(path: Path, other: Path) -> bool:
    """Whether both name one regular file, also through links."""
    return path.is_file() and other.is_file() and path.samefile(other)
