"""Checkpoints of a sharded state: each process writes its part, and any number of processes can read them.

``torch.distributed.checkpoint`` plans who writes and reads what. The files are those of ``checkpoint``: safetensors with a
checksum, written atomically, and an index in JSON that is put in place last. Nothing in them is unpickled.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from manyhot._files import storage_error, write_json
from manyhot.training.run.checkpoint import Saved, Tensors, unpack
from manyhot.training.run.part_files import PartReader, PartWriter
from manyhot.training.run.processes import Processes, ProcessesError

NUMBER = "number"
# Returns tensors with the shapes and the sharding in which a state is to be loaded.
Like = Callable[[], Tensors]


class ShardedCheckpoints:
    """A folder of named states whose tensors may be DTensors. The previous state is kept until the new one is on the disk.

    All processes call ``save`` and ``load`` together, and all can write to the folder.

    Args:
        folder: where the files are; the first process has made it.
        processes: which process this is.
    """

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder, self.processes = folder, processes
        self._numbers: dict[str, int] = {}

    def save(self, name: str, tensors: Tensors, about: dict[str, Any]) -> None:
        """Save a state under ``name``; the one that is there becomes the previous one."""
        from torch.distributed.checkpoint.state_dict_saver import save

        number = self._next_number(name)
        writer = PartWriter(self.folder, f"{name}.{number}")
        with _errors_of_all(), _alone_is_fine():
            save(tensors, storage_writer=writer, no_dist=not _joined())
        if self.processes.first:
            index, previous = self._paths(name)
            if index.exists():
                try:
                    index.replace(previous)
                except OSError as error:
                    raise storage_error(previous, error) from error
            write_json(index, {NUMBER: number, "about": about, "tensors": writer.tensors})
            self._remove_others(name)

    def load(self, name: str, like: Like | None = None) -> Saved | None:
        """The last complete state under ``name``, or None; each process gets the parts that its ``like`` has.

        If a file is damaged, the previous state is read. A tensor that ``like`` does not have, or has in another shape or
        type, is read whole.
        """
        found = self._whole_index(name)
        if found is None:
            return None
        from torch.distributed.checkpoint.state_dict_loader import load

        wanted = {} if like is None else like()
        tensors = {key: _target(wanted.get(key), entry) for key, entry in found["tensors"].items()}
        with _errors_of_all(), _alone_is_fine():
            load(tensors, storage_reader=PartReader(self.folder, found["tensors"]), no_dist=not _joined())
        return tensors, dict(found["about"])

    def _next_number(self, name: str) -> int:
        """A number that no file of ``name`` has yet, the same on all processes."""
        if name not in self._numbers:
            used = [-1, *(int(path.name.split(".")[-3]) for path in self.folder.glob(f"{name}.*.*.safetensors"))]
            self._numbers[name] = int(self.processes.agreed(max(used)))
        self._numbers[name] += 1
        return self._numbers[name]

    def _whole_index(self, name: str) -> dict[str, Any] | None:
        """The newest index whose files are all undamaged, the same on all processes."""
        for path in self._paths(name):
            content = self.processes.from_first(_content(path) if self.processes.first else None)
            index = _parsed(content)
            # Each process looks at some of the files.
            files = sorted({chunk["file"] for entry in index["tensors"].values() for chunk in entry["chunks"]}) if index else []
            own = files[self.processes.rank :: self.processes.count]
            fine = index is not None and all(unpack(self.folder / file) is not None for file in own)
            if self.processes.all_of(fine):
                return index
            # A damaged state must not become the previous one when the next is saved.
            if self.processes.first:
                path.unlink(missing_ok=True)
        return None

    def _remove_others(self, name: str) -> None:
        """Remove the files of ``name`` that no index names."""
        kept = {index[NUMBER] for index in (_parsed(_content(path)) for path in self._paths(name)) if index is not None}
        for path in self.folder.glob(f"{name}.*.*.safetensors"):
            if int(path.name.split(".")[-3]) not in kept:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _paths(self, name: str) -> tuple[Path, Path]:
        return self.folder / f"{name}.index.json", self.folder / f"{name}.previous.index.json"


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _parsed(content: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(content or b"")
    except ValueError:
        return None
    whole = isinstance(found, dict) and found.keys() >= {NUMBER, "about", "tensors"}
    return cast(dict[str, Any], found) if whole else None


def _target(own: Tensor | None, entry: dict[str, Any]) -> Tensor:
    """Where a tensor is read into: as this process has it, or whole."""
    kind = getattr(torch, entry["dtype"])
    if own is not None and list(own.shape) == entry["size"] and own.dtype == kind:
        return own
    return torch.empty(entry["size"], dtype=kind)


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()


@contextlib.contextmanager
def _alone_is_fine() -> Iterator[None]:
    """Ignores the warning of torch about a process that saves alone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


@contextlib.contextmanager
def _errors_of_all() -> Iterator[None]:
    """Raises the error of any process on this one."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        first: BaseException = next(iter(error.failures.values()))[0]
        if isinstance(first, (OSError, ValueError)):
            raise first from error
        raise ProcessesError(f"train: a checkpoint must be written and read by all processes; one failed: {first}") from error
    except RuntimeError as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ProcessesError(
            "train: another process of the run ended or cannot be reached while a checkpoint was written or read. Earlier"
            f" checkpoints are complete: start all processes again with --resume. ({why})"
        ) from error
