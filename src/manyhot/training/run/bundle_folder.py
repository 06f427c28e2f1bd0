"""The folder of a bundle, whatever the model in it: found, read and checked. Files in it are not trusted."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from torch import Tensor

from manyhot.training.run.checkpoint import unpack

DESCRIPTION = "model.json"


class BundleError(ValueError):
    """A folder does not hold a model that can be trusted to be whole."""


def model_folder(folder: str | Path) -> Path:
    """The folder itself, or the model in the folder of a run."""
    folder = Path(folder)
    inner = folder / "model"
    return inner if not (folder / DESCRIPTION).exists() and (inner / DESCRIPTION).exists() else folder


def read_description(who: str, folder: Path, wanted: str) -> dict[str, Any]:
    """What a bundle says of itself, in the format ``wanted``."""
    path = folder / DESCRIPTION
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(f"{who}: {str(folder)!r} must hold a {DESCRIPTION}; there is none.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BundleError(f"{who}: {str(path)!r} cannot be read: {error}.") from error
    if not isinstance(data, dict) or data.get("format") != wanted:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise BundleError(f"{who}: {str(path)!r} must have the format {wanted!r}; got {found!r}.")
    return data


def inside(who: str, folder: Path, name: Any, what: str) -> Path:
    """A file of the folder by its name, which may not lead out of it."""
    path = folder / str(name)
    if Path(str(name)).name != name or path.resolve().parent != folder.resolve():
        raise BundleError(f"{who}: the {what} must lie in the model's folder; got {name!r}.")
    return path


def read_weights(who: str, folder: Path, name: Any) -> dict[str, Tensor]:
    """The tensors of a whole weights file, copied to where torch puts its own.

    Where they lie in a file they may start at any address; products of matrices are then rounded in another way, and a model
    would differ in the last digit from itself before it was saved.
    """
    path = inside(who, folder, name, "weights")
    found = unpack(path)
    if found is None:
        raise BundleError(f"{who}: {str(path)!r} is missing, cut off or changed. Save the model again.")
    return {key: tensor.clone() for key, tensor in found[0].items()}


def remove_others(folder: Path, pattern: str, kept: Collection[str]) -> None:
    """Delete what an earlier save left: files like ``pattern`` but those of the names ``kept``."""
    for other in folder.glob(pattern):
        if other.name not in kept:
            other.unlink(missing_ok=True)
