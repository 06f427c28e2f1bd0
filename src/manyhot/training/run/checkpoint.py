"""Checkpoints: the state of a run in safetensors files, written atomically; damaged files are skipped."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from torch import Tensor

from manyhot._files import make_folder, remove_drafts, storage_error, write_whole
from manyhot.training.run.processes import Processes

Tensors = dict[str, Tensor]
_CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
Saved = tuple[Tensors, dict[str, Any]]


class CheckpointError(ValueError):
    """A checkpoint does not belong to the run that is resumed."""


class Checkpoints:
    """A folder of named states. The previous state is kept until the new one is on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_folder(folder)
        remove_drafts(folder)

    def save(self, name: str, tensors: Tensors, about: dict[str, Any]) -> None:
        """Save a state under ``name``; the one that is there becomes the previous one."""
        path, previous = self._paths(name)
        content = pack(tensors, about)
        if path.exists():
            try:
                path.replace(previous)
            except OSError as error:
                raise storage_error(previous, error) from error
        write_whole(path, content)

    def load(self, name: str) -> Saved | None:
        """The last whole state under ``name``, or None; if a file is damaged, the previous one is read."""
        path, previous = self._paths(name)
        found = unpack(path)
        if found is None:
            # A damaged file must not become the previous one when the next state is saved.
            path.unlink(missing_ok=True)
            found = unpack(previous)
        return found

    def _paths(self, name: str) -> tuple[Path, Path]:
        return self.folder / f"{name}.safetensors", self.folder / f"{name}.previous.safetensors"


class SharedCheckpoints:
    """The checkpoints of several processes: the first one saves and reads them, and broadcasts the result.

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

    def load(self, name: str) -> Saved | None:
        """The last whole state under ``name``, the same on all processes."""
        found = None if self.own is None else self.own.load(name)
        content = self.processes.from_first(None if found is None else pack(*found))
        if content is None or found is not None:
            return found
        return load_tensors(content), json.loads(_header(content)[0]["__metadata__"]["about"])


def pack(tensors: Tensors, about: dict[str, Any]) -> bytes:
    """The bytes of a file with a checksum over its tensors; equal tensors and ``about`` give equal bytes."""
    return b"".join(packed_parts(tensors, about))


def packed_parts(tensors: Tensors, about: dict[str, Any], check: str | None = None) -> list[bytes | memoryview]:
    """What ``pack`` joins: the header, and the memory of each tensor, which is not copied.

    ``check`` is their checksum, if it is known.

    The format is that of safetensors: the size of a header, the header, and the tensors one after the other. The package's own
    writer copies all of it several times, and orders the header differently from run to run.
    """
    whole = on_cpu(tensors)
    header: dict[str, Any] = {"__metadata__": {"about": json.dumps(about), "checksum": check or checksum(whole)}}
    end = 0
    # Wide types first, so that every tensor starts at a multiple of its element size.
    ordered = sorted(whole, key=lambda name: (-whole[name].element_size(), name))
    for name in ordered:
        start, end = end, end + whole[name].numel() * whole[name].element_size()
        header[name] = {"dtype": _CODES[whole[name].dtype], "shape": list(whole[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *(bytes_of(whole[name]) for name in ordered)]


def on_cpu(tensors: Tensors) -> Tensors:
    """The tensors as they are written: contiguous, in the order of their names."""
    return {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else memoryview(b"")


def unpack(path: Path) -> Saved | None:
    """Read a file that ``pack`` wrote; None if it is missing, cut off or changed."""
    try:
        if not path.is_file():
            return None
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        about = json.loads(metadata["about"])
    except (OSError, SafetensorError, KeyError, ValueError, RecursionError):
        return None
    if not isinstance(about, dict) or metadata.get("checksum") != checksum(tensors):
        return None
    return tensors, about


def _header(content: bytes) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file and where its data starts; the file starts with the header's size."""
    start = 8 + int.from_bytes(content[:8], "little")
    return dict(json.loads(content[8:start])), start


def checksum(tensors: Tensors) -> str:
    """CRC-32 over names, shapes and bytes, in the order of names."""
    total = 0
    for name in sorted(tensors):
        part = tensors[name]
        total = zlib.crc32(f"{name}{tuple(part.shape)}{part.dtype}".encode(), total)
        if part.numel():
            total = zlib.crc32(bytes_of(part.contiguous()), total)
    return f"{total:08x}"
