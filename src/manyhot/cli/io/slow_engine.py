"""A note of commands that train: the engine that makes them fast on a CPU is not there."""

from __future__ import annotations

from manyhot.cli.io.console import say
from manyhot.engines.native.engine import available


def tell_slow_engine(*, quiet: bool) -> None:
    """If the native engine cannot be used, print that and why."""
    ready, why = available()
    if not ready:
        say(f"reading texts and training on a CPU take longer, because the native engine cannot be used: {why}", quiet=quiet)
