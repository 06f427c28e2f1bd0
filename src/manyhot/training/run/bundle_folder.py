"""Finding, reading and checking the folder of a bundle of any kind. Its files are not trusted."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import shape_text
from manyhot.training.run.checkpoint import unpack
from manyhot.training.run.schema import SchemaError, parse_json, shown

DESCRIPTION = "model.json"


class BundleError(ValueError):
    """Raised for a folder that does not contain a complete, valid model."""


def model_folder(folder: str | Path) -> Path:
    """The folder itself, or the model in the folder of a run."""
    folder = Path(folder)
    inner = folder / "model"
    return inner if not (folder / DESCRIPTION).exists() and (inner / DESCRIPTION).exists() else folder


def model_fingerprint(who: str, name: str, folder: str | Path) -> str:
    """A digest of a model's description, which names its weights by their checksum; errors name the argument."""
    try:
        content = (model_folder(folder) / DESCRIPTION).read_bytes()
    except OSError as error:
        reason = f"its {DESCRIPTION} cannot be read: {error.strerror}"
        raise BundleError(
            f"{who}: `{name}` must be the folder of a run or of a model; got {str(folder)!r}, {reason}."
        ) from None
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def read_description(who: str, folder: Path, wanted: str) -> dict[str, Any]:
    """The description of a bundle in the format ``wanted``."""
    path = folder / DESCRIPTION
    if path.exists() and not path.is_file():
        raise BundleError(f"{who}: {str(path)!r} must be a file; it is a folder, a pipe or a device.")
    try:
        data = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(f"{who}: {str(folder)!r} must hold a {DESCRIPTION}; there is none.") from None
    except (OSError, UnicodeDecodeError, SchemaError) as error:
        raise BundleError(f"{who}: {str(path)!r} cannot be read: {error}") from error
    if not isinstance(data, dict) or data.get("format") != wanted:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise BundleError(f"{who}: {str(path)!r} must have the format {wanted!r}; got {shown(found)}.")
    return data


@contextlib.contextmanager
def reading(who: str, folder: Path) -> Iterator[None]:
    """Turns every error while a bundle is loaded into one ``BundleError`` that names its folder."""
    try:
        yield
    except BundleError:
        raise
    except MemoryError:
        raise BundleError(f"{who}: {str(folder)!r} holds a model that is too large for the memory of this machine.") from None
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError, OverflowError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BundleError(f"{who}: {str(folder)!r} does not hold a whole model: {why}") from error


def check_tensors(who: str, wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Check that the tensors of a file are those of a module: names, types and shapes."""
    for name, own in wanted.items():
        if name not in found or found[name].shape != own.shape or found[name].dtype != own.dtype:
            got = f"{found[name].dtype} {shape_text(found[name].shape)}" if name in found else "none"
            raise BundleError(f"{who}: tensor {name!r} must be {own.dtype} {shape_text(own.shape)}; got {got}.")
    others = sorted(set(found) - set(wanted))
    if others:
        raise BundleError(f"{who}: there must be no tensor {others[0]!r}; this model has none of that name.")


def inside(who: str, folder: Path, name: Any, what: str) -> Path:
    """A file of the folder by its name, which may not lead out of it."""
    path = folder / str(name)
    if Path(str(name)).name != name or path.resolve().parent != folder.resolve():
        raise BundleError(f"{who}: the {what} must lie in the model's folder; got {name!r}.")
    return path


def read_weights(who: str, folder: Path, name: Any) -> dict[str, Tensor]:
    """The tensors of a whole weights file, all of them finite, copied to memory that torch allocated.

    In a mapped file a tensor may start at any address; matrix products then round differently, and the scores of a loaded model
    would differ in the last digit.
    """
    path = inside(who, folder, name, "weights")
    found = unpack(path)
    if found is None:
        raise BundleError(f"{who}: {str(path)!r} is missing, cut off or changed. Save the model again.")
    for key, tensor in found[0].items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise BundleError(f"{who}: the weights must be finite numbers; tensor {key!r} holds others. Train the model again.")
    return {key: tensor.clone() for key, tensor in found[0].items()}


def remove_others(folder: Path, pattern: str, kept: Collection[str]) -> None:
    """Delete the files of an earlier save: those like ``pattern`` whose names are not in ``kept``."""
    for other in folder.glob(pattern):
        if other.name not in kept:
            other.unlink(missing_ok=True)
