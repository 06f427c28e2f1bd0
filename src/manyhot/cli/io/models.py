"""A model as it is named on the command line: a bundle, or a run folder that holds one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from manyhot.cli.io.config import CONFIG, read_config
from manyhot.cli.io.console import say
from manyhot.data.examples import Examples
from manyhot.data.files.problems import DataError
from manyhot.training.rows.bundle import TrainedModel, load_model

ModelArgument = Annotated[Path, typer.Argument(help="The folder of a run or of a model.")]
BUNDLE = "model"
RUN_SETTINGS = "settings.json"


def bundle_folder(folder: Path) -> Path:
    """The folder with the model in it."""
    if not folder.is_dir():
        raise DataError("must be the folder of a run or of a model; there is no such folder.", file=str(folder))
    if (folder / BUNDLE).is_dir():
        return folder / BUNDLE
    if (folder / CONFIG).is_file():
        raise DataError(
            f"holds no model yet: the run is not finished. Continue it with: manyhot train --resume {folder}", file=str(folder)
        )
    return folder


def open_model(folder: Path) -> TrainedModel:
    """The model of a run or of a bundle."""
    return load_model(bundle_folder(folder))


def fitted_to(model: TrainedModel, examples: Examples) -> Examples:
    """Examples with as many features as the model reads: sparse files without names end where their last feature does."""
    sparse = examples.features is not None and not isinstance(examples.features, np.ndarray)
    return examples.with_features(model.inputs.width) if sparse and examples.feature_names is None else examples


def warn_of_training_rows(folder: Path, digest: Callable[[], str], *, quiet: bool) -> None:
    """Say so where rows are the ones a run was trained on: what they show is too good.

    Args:
        folder: of the run; a model without its run cannot tell.
        digest: gives the fingerprint of the rows, as the run's data have one.
        quiet: say nothing.
    """
    described = folder / RUN_SETTINGS
    if quiet or not described.is_file():
        return
    with contextlib.suppress(ValueError, OSError, KeyError, TypeError):
        if json.loads(described.read_text(encoding="utf-8"))["data"]["train"] == digest():
            say("these are the rows the model was trained on: figures will be too good. Use rows it has not seen.")


def inherited_reading(folder: Path, *, labels: bool) -> dict[str, Any]:
    """The columns that the run was trained on, to be read again; with ``labels`` also how labels were read."""
    if not (folder / CONFIG).is_file():
        return {}
    names = ("text", "features", *(("labels", "separator", "empty_labels") if labels else ()))
    return {name: value for name, value in read_config(folder / CONFIG)["read"].items() if name in names}
