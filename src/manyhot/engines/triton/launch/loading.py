"""Kernels from Triton's compiler to the device, without Triton's launcher, and kept on disk.

Triton compiles a launcher in C for every kernel, which takes as long as the kernel. It is not needed: ``modules`` loads kernels
through the driver, ``direct`` launches them, and a kernel that was compiled before is read from disk by the names and versions
of all it was compiled from.

A file is one line of JSON and the machine code after it. It lies in Triton's cache folder and is trusted as its files are; a
damaged one is compiled again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from manyhot.engines.triton.launch import modules

# Variables of the environment that change what compilers do, by how they begin, and those that only name folders.
COMPILER_VARIABLES = ("TRITON", "MLIR", "LLVM", "NVPTX", "PTXAS", "DISABLE_", "ENABLE_", "USE_")
FOLDERS = ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR")
SUFFIX = ".manyhot-kernel"


class Metadata(NamedTuple):
    """Warps of a program, and its bytes of shared memory."""

    num_warps: int
    shared: int


class Source(NamedTuple):
    """The types of a kernel's arguments by name, as Triton calls them."""

    signature: dict[str, str]


class LoadedKernel(NamedTuple):
    """A kernel that the driver has loaded; ``module`` keeps it."""

    function: int
    metadata: Metadata
    src: Source
    module: Any


class Machine(NamedTuple):
    """Machine code and what a launch needs to know about it."""

    name: str
    code: bytes
    warps: int
    shared: int
    kinds: list[str]

    def load(self, device: int) -> LoadedKernel:
        """Load it to a device."""
        module, function, threads = modules.load_binary(self.name, self.code, self.shared, device)
        if 32 * self.warps > threads:
            raise RuntimeError(f"{self.name} has {32 * self.warps} threads, and the device takes {threads}")
        signature = {str(place): kind for place, kind in enumerate(self.kinds)}
        return LoadedKernel(function, Metadata(self.warps, self.shared), Source(signature), module)


def load_kernel(
    device: int, identity: tuple[Any, ...], compile_it: Callable[[], Any], extras: Sequence[str]
) -> LoadedKernel | None:
    """A kernel on a device: from disk, or what ``compile_it`` gives. ``identity`` is all that its code depends on beside
    sources, versions and device. None if it uses ``extras`` of Triton's launcher."""
    capability = torch.cuda.get_device_capability(device)
    path = _place((capability, *identity))
    found = None if path is None else read(path)
    if found is None:
        with modules.only_compiling():
            compiled = compile_it()
        metadata = compiled.metadata
        if getattr(metadata, "num_ctas", 1) != 1 or any(getattr(metadata, name, 0) for name in extras):
            return None
        kinds = list(compiled.src.signature.values())
        found = Machine(metadata.name, bytes(compiled.asm["cubin"]), metadata.num_warps, metadata.shared, kinds)
        if path is not None:
            write(path, found)
    return found.load(device)


def read(path: Path) -> Machine | None:
    """The kernel of a file; None if there is none, or if it is damaged."""
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        about = json.loads(head)
        if hashlib.sha256(code).hexdigest() != about["sha256"]:
            return None
        kinds = [str(kind) for kind in about["kinds"]]
        return Machine(str(about["name"]), code, int(about["warps"]), int(about["shared"]), kinds)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(path: Path, machine: Machine) -> None:
    """Keep a kernel on disk, whole or not at all; a folder that cannot be written to is no error."""
    about = {"name": machine.name, "warps": machine.warps, "shared": machine.shared, "kinds": machine.kinds}
    head = json.dumps(about | {"sha256": hashlib.sha256(machine.code).hexdigest()}).encode()
    own = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes(head + b"\n" + machine.code)
        own.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            own.unlink()


def _place(identity: tuple[Any, ...]) -> Path | None:
    """The file of a kernel; None if this Triton is no release, whose sources its version would not tell."""
    from triton import __version__ as version

    if re.fullmatch(r"\d+\.\d+\.\d+", version) is None:
        return None
    settings = sorted(
        (name, value) for name, value in os.environ.items() if name.startswith(COMPILER_VARIABLES) and name not in FOLDERS
    )
    digest = hashlib.sha256(repr((version, _sources(), settings, identity)).encode()).hexdigest()
    return _folder() / "manyhot" / (digest + SUFFIX)


def _folder() -> Path:
    """Triton's cache folder."""
    given = os.environ.get("TRITON_CACHE_DIR")
    return Path(given) if given else Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache"


@functools.cache
def _sources() -> str:
    """A digest of all files that kernels are made of."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
