"""The run folder of a training run: locked while it runs; a message says how to continue after an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from manyhot._files import remove_drafts

if TYPE_CHECKING:
    from manyhot.training.run.claim import RunClaim


@contextmanager
def claimed_run(folder: Path, *, new: bool, first: bool = True) -> Iterator[Path | RunClaim]:
    """Lock a run folder during the block; with several processes only the ``first`` one writes and prints.

    A new run needs a folder that does not exist or is empty. A new run that ends with an error leaves no folder; an
    interrupted one can be resumed.
    """
    # Imported here because it loads slowly, and --help should be fast.
    from manyhot.training.run.claim import RunClaim

    if not first:
        yield folder
        return
    try:
        with RunClaim(folder) as claim:
            if new and not claim.new:
                raise not_new(folder)
            remove_drafts(folder)
            yield claim
    except KeyboardInterrupt:
        typer.echo(f"manyhot: interrupted. Continue with: manyhot train --resume {folder}", err=True)
        raise typer.Exit(130) from None


def not_new(folder: Path) -> typer.BadParameter:
    """The error for a folder of a new run that is not empty."""
    return typer.BadParameter(
        f"--run must be a new or empty folder; {folder} is neither. To continue a run: manyhot train --resume {folder}"
    )
