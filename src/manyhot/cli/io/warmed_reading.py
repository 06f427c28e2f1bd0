"""Read training files, and compile the kernels that the run will need at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from manyhot.cli.io.blocks import first_block
from manyhot.cli.io.reading import read_files

if TYPE_CHECKING:
    from manyhot.data.examples import Examples
    from manyhot.training.rows.settings import TrainSettings

# Smaller files have few labels, or are read before a kernel is compiled.
LEAST_BYTES = 1 << 20


def read_warming(settings: TrainSettings, files: Sequence[str], **about: Any) -> Examples:
    """``read_files``; if the first rows already show which body for very many labels is trained, its kernels are compiled
    meanwhile."""
    # Imported here because it loads slowly, and --help should be fast.
    from manyhot.training.rows.wide.warming import warm_early

    warm_early(_likely(settings, files, about.get("inherited") or {}))
    return read_files(files, {}, **about)


def _likely(settings: TrainSettings, files: Sequence[str], reading: Mapping[str, Any]) -> TrainSettings:
    """The settings with the body that the first rows of the first file imply; as they are if nothing is to be compiled."""
    from manyhot.training.rows.bodies.info import AUTO_BODY
    from manyhot.training.rows.choose import with_body
    from manyhot.training.run.device import choose_device

    try:
        if settings.model != AUTO_BODY or choose_device(settings.device).type != "cuda":
            return settings
        if not Path(files[0]).is_file() or Path(files[0]).stat().st_size < LEAST_BYTES:
            return settings
        start = first_block(files[0], reading)
        return settings if start is None else with_body(settings, start)
    except (ValueError, TypeError, OSError, typer.BadParameter):
        # The run meets the same error and reports it.
        return settings
