"""Compiles kernels with Triton, loads them without Triton's launcher, and caches them on disk.

Triton compiles a launcher in C for every kernel, which takes as long as the kernel itself. It is not needed: ``modules`` loads
kernels through the driver, and ``direct`` launches them. The disk cache is keyed by everything that a kernel is compiled from:
its sources, constants and argument types, and the version of Triton.

A file has one line of JSON, then the machine code. It is stored in Triton's cache folder and trusted like Triton's own files.
If it is damaged, the kernel is compiled again.
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
from manyhot.engines.triton.launch.described import Map, maps_of

# Prefixes of the environment variables that change what compilers do, and the variables among them that only name folders.
COMPILER_VARIABLES = ("TRITON", "MLIR", "LLVM", "NVPTX", "PTXAS", "DISABLE_", "ENABLE_", "USE_")
FOLDERS = ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR")
SUFFIX = ".manyhot-kernel"
# The instruction by which a kernel that started early waits for the one before.
WAITS = "griddepcontrol.wait"


class Metadata(NamedTuple):
    """Warps per program, bytes of shared memory, whether programs wait for the kernel before by themselves, and how the
    kernel reads matrices that are passed as tensor descriptors."""

    num_warps: int
    shared: int
    early: bool
    maps: list[Map]


class Source(NamedTuple):
    """The types of a kernel's arguments, by argument, under Triton's names."""

    signature: dict[str, str]


class LoadedKernel(NamedTuple):
    """A kernel that the driver has loaded; ``module`` keeps it loaded."""

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
    early: bool
    maps: list[Map]

    def load(self, device: int) -> LoadedKernel:
        """Load it onto a device."""
        module, function, threads = modules.load_binary(self.name, self.code, self.shared, device)
        if 32 * self.warps > threads:
            raise RuntimeError(f"{self.name} needs {32 * self.warps} threads, and the device allows {threads}")
        signature = {str(place): kind for place, kind in enumerate(self.kinds)}
        return LoadedKernel(function, Metadata(self.warps, self.shared, self.early, self.maps), Source(signature), module)


def load_kernel(
    device: int, identity: tuple[Any, ...], compile_it: Callable[[], Any], extras: Sequence[str]
) -> LoadedKernel | None:
    """A kernel loaded onto a device, from disk or compiled by ``compile_it``. ``identity`` is everything its code depends on
    besides sources, versions and device. None if the kernel uses ``extras``, features of Triton's launcher."""
    capability = torch.cuda.get_device_capability(device)
    path = _place((capability, *identity))
    found = None if path is None else read(path)
    if found is None:
        with modules.only_compiling():
            compiled = compile_it()
        metadata = compiled.metadata
        if getattr(metadata, "num_ctas", 1) != 1 or any(getattr(metadata, name, 0) for name in extras):
            return None
        maps = maps_of(compiled)
        if maps is None:
            return None
        kinds = list(compiled.src.signature.values())
        early = WAITS in compiled.asm["ptx"]
        found = Machine(metadata.name, bytes(compiled.asm["cubin"]), metadata.num_warps, metadata.shared, kinds, early, maps)
        if path is not None:
            write(path, found)
    return found.load(device)


def read(path: Path) -> Machine | None:
    """The kernel in a file; None if the file is missing or damaged."""
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        about = json.loads(head)
        if hashlib.sha256(code).hexdigest() != about["sha256"]:
            return None
        kinds, maps = [str(kind) for kind in about["kinds"]], [Map(*map(int, each)) for each in about["maps"]]
        return Machine(str(about["name"]), code, int(about["warps"]), int(about["shared"]), kinds, bool(about["early"]), maps)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(path: Path, machine: Machine) -> None:
    """Write a kernel to disk atomically. A folder that cannot be written to is not an error."""
    about = {"name": machine.name, "warps": machine.warps, "shared": machine.shared, "kinds": machine.kinds}
    about |= {"early": machine.early, "maps": machine.maps}
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
    """The cache file of a kernel; None if this Triton is not a release, because its version does not identify its sources."""
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
    """A digest of all source files that kernels are built from."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
