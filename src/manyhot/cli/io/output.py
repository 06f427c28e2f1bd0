"""Output files of the commands: they never replace an input, and are written atomically."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import typer

from manyhot._files import writing
from manyhot.cli.io.config import CONFIG
from manyhot.cli.io.models import BUNDLE, RUN_SETTINGS
from manyhot.training.run.bundle_folder import DESCRIPTION

# Files of a run beside its model: settings and log.
RUN_FILES = (CONFIG, RUN_SETTINGS, "metrics.jsonl")


def check_outputs(outputs: dict[str, Path | None], inputs: Iterable[str | Path]) -> None:
    """Refuse outputs that would replace an input, and two outputs to one file.

    Args:
        outputs: files or folders by flag.
        inputs: files that the command reads, and folders of models and runs.
    """
    read = [Path(name) for name in inputs]
    taken: dict[Path, str] = {}
    for flag, path in outputs.items():
        if path is None:
            continue
        if str(path) == "-":
            raise typer.BadParameter(
                f"{flag} must be the name of a file or folder; got -. Without {flag} the output is the standard output."
            )
        place = path.resolve()
        if any(_same(path, other) or _is_part(place, other) for other in read):
            raise typer.BadParameter(f"{flag}: {path} is an input too; writing to it would destroy it. Choose another place.")
        if place in taken:
            raise typer.BadParameter(f"{flag} and {taken[place]} name the same file, {path}. Choose two different ones.")
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


def _is_part(place: Path, folder: Path) -> bool:
    """Whether a path is the folder of a run or model, its model, or one of the files of a run."""
    own = folder.resolve()
    described = next((each for each in (own / BUNDLE, own) if (each / DESCRIPTION).is_file()), None)
    return described is not None and (
        place in (own, *(own / name for name in RUN_FILES)) or described in (place, *place.parents)
    )


def _same(path: Path, other: Path) -> bool:
    """Whether both paths are the same regular file, also through links."""
    return path.is_file() and other.is_file() and path.samefile(other)
