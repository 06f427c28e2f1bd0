"""Checkpoints: the state of a run in safetensors files that are whole or not taken."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save
from torch import Tensor

from manyhot._files import DRAFT_SUFFIX, make_folder, remove_drafts, write_whole
from manyhot.training.run.processes import Processes

Tensors = dict[str, Tensor]


class Checkpoints:
    """A folder of named states. The one before is kept until the new one is on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_folder(folder)
        remove_drafts(folder)

    def save(self, name: str, tensors: Tensors, about: dict[str, Any]) -> None:
        """Save a state under ``name``; what is there becomes the previous one."""
        path = self.folder / f"{name}.safetensors"
        content = pack(tensors, about)
        if path.exists():
            # A second name for the same file: at no moment is there none.
            write_previous(path)
        write_whole(path, content)

    def load(self, name: str) -> tuple[Tensors, dict[str, Any]] | None:
        """The last whole state under ``name``, or None; a file that is damaged gives way to the previous one."""
        for path in (self.folder / f"{name}.safetensors", self.folder / f"{name}.previous.safetensors"):
            found = unpack(path)
            if found is not None:
                return found
        return None


class SharedCheckpoints:
    """The checkpoints of several processes: the first one saves and reads them, the others are told.

    Args:
        own: the folder, for the first process; None for the others.
        processes: which process this is.
    """

    def __init__(self, own: Checkpoints | None, processes: Processes) -> None:
        self.own, self.processes = own, processes

    def save(self, name: str, tensors: Tensors, about: dict[str, Any]) -> None:
        """Save a state, on the first process."""
        if self.own is not None:
            self.own.save(name, tensors, about)

    def load(self, name: str) -> tuple[Tensors, dict[str, Any]] | None:
        """The last whole state under ``name``, the same on all processes."""
        found = None if self.own is None else self.own.load(name)
        content = self.processes.from_first(None if found is None else pack(*found))
        if content is None or found is not None:
            return found
        return load_tensors(content), json.loads(_metadata(content)["about"])


def write_previous(path: Path) -> None:
    """Keep the file at ``path`` under the name of the previous one too, where the file is whole."""
    previous = path.with_name(f"{path.stem}.previous{path.suffix}")
    draft = path.with_name(f".{previous.name}{DRAFT_SUFFIX}")
    draft.unlink(missing_ok=True)
    draft.hardlink_to(path)
    draft.replace(previous)


def pack(tensors: Tensors, about: dict[str, Any]) -> bytes:
    """The bytes of a file with a checksum over its tensors."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"about": json.dumps(about), "checksum": checksum(whole)}
    return bytes(save(whole, metadata=metadata))


def unpack(path: Path) -> tuple[Tensors, dict[str, Any]] | None:
    """What ``pack`` wrote; None where the file is not there, cut off or changed."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (OSError, SafetensorError):
        return None
    if "about" not in about or about.get("checksum") != checksum(tensors):
        return None
    return tensors, dict(json.loads(about["about"]))


def _metadata(content: bytes) -> dict[str, str]:
    """What ``pack`` put beside the tensors: the file starts with the size of its header and the header."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(header["__metadata__"])


def checksum(tensors: Tensors) -> str:
    """CRC-32 over names, shapes and bytes, in the order of names."""
    total = 0
    for name in sorted(tensors):
        part = tensors[name]
        total = zlib.crc32(f"{name}{tuple(part.shape)}{part.dtype}".encode(), total)
        if part.numel():
            total = zlib.crc32(part.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), total)
    return f"{total:08x}"
