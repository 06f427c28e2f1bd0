"""Shards of a large prediction: which rows or files a shard takes, and where its output goes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from manyhot._files import make_folder, write_json
from manyhot.data.examples import Examples
from manyhot.data.files.input_file import bare_name
from manyhot.training.run.bundle_folder import DESCRIPTION, model_folder

ABOUT = ".predict.json"

ShardFlag = Annotated[
    str | None,
    typer.Option(
        "--shard",
        help="Predict only shard i of n (1/n to n/n): every n-th file with --to-folder, otherwise a block of consecutive rows.",
        metavar="I/N",
    ),
]
ToFolderFlag = Annotated[
    Path | None,
    typer.Option(
        "--to-folder", help="Write one output file per input file into this folder; inputs whose output exists are skipped."
    ),
]


class Shard(NamedTuple):
    """Shard number ``place``, from 0, of ``parts``."""

    place: int
    parts: int

    def files(self, names: Sequence[str]) -> list[str]:
        """The files of this shard."""
        return list(names[self.place :: self.parts])

    def blocks(self, sizes: Sequence[int]) -> range:
        """The blocks of this shard, given the rows of each: consecutive blocks, with about equal rows per shard.

        Example:
            >>> [list(Shard(place, 3).blocks([5, 5, 5, 5, 2])) for place in range(3)]
            [[0, 1], [2], [3, 4]]
        """
        total, before, owners = sum(sizes), 0, []
        for size in sizes:
            owners.append(before * self.parts // max(total, 1))
            before += size
        own = [number for number, owner in enumerate(owners) if owner == self.place]
        return range(own[0], own[-1] + 1) if own else range(0)


WHOLE = Shard(0, 1)


def parse_shard(given: str | None) -> Shard:
    """``"2/8"`` is the second of eight shards; None is all rows.

    Example:
        >>> parse_shard("2/8")
        Shard(place=1, parts=8)
    """
    if given is None:
        return WHOLE
    place, _, count = given.partition("/")
    if not (place.isdecimal() and count.isdecimal() and 1 <= int(place) <= int(count) < 10**9):
        raise typer.BadParameter(f"--shard must be i/n with i from 1 to n, as 2/8; got {given!r}.")
    return Shard(int(place) - 1, int(count))


def own_blocks(blocks: Iterable[Examples], own: range) -> Iterator[tuple[int, Examples]]:
    """``(number of the first row, block)`` of the blocks of a shard."""
    first = 0
    for number, block in enumerate(blocks):
        if number in own:
            yield first, block
        if number + 1 >= own.stop:
            return
        first += len(block)


def output_files(folder: Path, inputs: Sequence[str], suffix: str) -> dict[str, Path]:
    """The output file of each input file: its name with another suffix."""
    found: dict[str, Path] = {}
    for name in inputs:
        stem = Path(bare_name(name)).stem if Path(bare_name(name)).suffix else bare_name(name)
        path = folder / f"{stem}{suffix}"
        other = next((each for each, taken in found.items() if taken == path), None)
        if other is not None:
            raise typer.BadParameter(f"--to-folder: {other} and {name} would both be written to {path}. Rename one of them.")
        found[name] = path
    return found


def claim_folder(folder: Path, model: Path, about: dict[str, Any]) -> None:
    """Record the model and the flags in the folder; refuse a folder with another record.

    Several shards may call this at the same time, because they write the same content.
    """
    make_folder(folder)
    described = hashlib.blake2b((model_folder(model) / DESCRIPTION).read_bytes(), digest_size=16).hexdigest()
    wanted = {"model": described, **about}
    note = folder / ABOUT
    if note.exists():
        try:
            found = json.loads(note.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if found != wanted:
            raise typer.BadParameter(
                f"--to-folder: {folder} has predictions of another model or with other flags, which would be kept as finished."
                " Choose another folder."
            )
        return
    write_json(note, wanted)
