"""The model argument of the commands: a bundle, or a run folder that holds one."""

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
from manyhot.data.reading import Reading
from manyhot.data.tables.numbered import column_numbers
from manyhot.training.rows.bundle import TrainedModel, load_model
from manyhot.training.rows.description import FORMAT
from manyhot.training.run.bundle_folder import DESCRIPTION, BundleError, model_folder, read_description
from manyhot.training.run.device import choose_device

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
            f"has no model yet: the run is not finished. Continue it with: manyhot train --resume {folder}", file=str(folder)
        )
    return folder


def open_model(folder: Path) -> TrainedModel:
    """The model of a run or of a bundle."""
    return load_model(bundle_folder(folder))


def open_for_scoring(folder: Path) -> TrainedModel:
    """The model of a run or of a bundle; a body with lazy scores is moved to a GPU if there is one."""
    model = open_model(folder)
    if model.lazy:
        model.body.to(choose_device("auto"))
    return model


def fitted_to(model: TrainedModel, examples: Examples) -> Examples:
    """Examples with as many features as the model has. A sparse file without feature names may have fewer: its last columns may
    be empty.
    """
    if examples.features is None or isinstance(examples.features, np.ndarray):
        return examples
    names = getattr(model.inputs, "names", None)
    if names is None and column_numbers(examples.feature_names or ()) is not None:
        return examples.with_features(model.inputs.width)
    return examples.with_features(names) if names is not None and column_numbers(names) is not None else examples


def warn_of_training_rows(folder: Path, digest: Callable[[], str], *, quiet: bool) -> None:
    """Warn if the rows are those that the model was trained on.

    Args:
        folder: the run folder, which stores the fingerprint of the training rows.
        digest: computes the fingerprint of the rows.
        quiet: print no warning.
    """
    described = folder / RUN_SETTINGS
    if quiet or not described.is_file():
        return
    with contextlib.suppress(ValueError, OSError, KeyError, TypeError):
        if json.loads(described.read_text(encoding="utf-8"))["data"]["train"] == digest():
            say("the model was trained on these rows, so the metrics are too optimistic. Use other rows.")


def inherited_reading(folder: Path, *, labels: bool) -> dict[str, Any]:
    """How the training files were read, so that other files are read the same way; with ``labels`` also how their labels were.

    These options are saved with the model, and the flags about labels in the settings of the run.
    """
    model = model_folder(folder)
    data = read_description("load_model", model, FORMAT) if (model / DESCRIPTION).is_file() else {}
    found: dict[str, Any] = {}
    if labels and (folder / CONFIG).is_file():
        config = read_config(folder / CONFIG)["read"]
        found = {name: config[name] for name in ("labels", "separator", "empty_labels") if name in config}
    try:
        return {**found, **Reading.from_json(data.get("reading", {})).options(labels=labels)}
    except ValueError as error:
        raise BundleError(f"load_model: {str(model)!r}: {error}") from None
