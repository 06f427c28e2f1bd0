"""What both trainings do about runs that end early: one that was interrupted can go on, one that was refused leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from manyhot.cli.io.config import CONFIG


@contextmanager
def early_ends(folder: Path, *, new: bool, first: bool = True) -> Iterator[None]:
    """Around the training of a run; of several processes the ``first`` alone writes and prints."""
    from manyhot.training.run.folder import discard_unbegun

    try:
        yield
    except KeyboardInterrupt:
        if first:
            typer.echo(f"manyhot: interrupted. Continue with: manyhot train --resume {folder}", err=True)
        raise typer.Exit(130) from None
    except (ValueError, TypeError):
        if new and first:
            discard_unbegun(folder, CONFIG)
        raise
