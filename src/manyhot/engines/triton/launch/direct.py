"""Compiled kernels launched through the CUDA driver (``cuLaunchKernelEx``), with their parameters in preallocated memory.

Triton's own launcher looks for allocators, profilers and launch modes that the kernels here never use. It does so in Python,
for every launch, and that takes longer than the launch. Kernels that need any of it are left to Triton.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

# How a number fills its slot of eight bytes, by Triton's name of its type.
SLOTS = {"i32": "i4x", "i64": "q", "fp32": "f4x"}
# Triton appends pointers to scratch memory, which no kernel here uses.
SPARE = 4
# The most sets of numbers, and streams, that are cached.
MOST = 64
# Features that only Triton's launcher serves.
EXTRAS = ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")


_INT32 = struct.Struct("<i")


class _Config(ctypes.Structure):
    """The driver's ``CUlaunchConfig``: grid, block and shared memory, the stream, and no attributes."""

    _fields_ = [
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("num_attributes", ctypes.c_uint),
    ]


class BoundKernel:
    """A compiled kernel with its grid and numbers. A call takes a stream and the addresses of the tensors that are present,
    and returns whether the driver accepted the launch."""

    __slots__ = ("calls", "kernel", "launch", "lock", "memory", "pack", "params", "sizes")

    def __init__(self, kernel: DirectKernel, programs: int, numbers: Sequence[int | float]) -> None:
        self.kernel = kernel  # Keeps the compiled code loaded.
        if kernel.kept is not None:
            numbers = [numbers[place] for place in kernel.kept]
        count = (kernel.addresses.size + kernel.numbers.size) // 8 + SPARE
        self.memory = (ctypes.c_char * (8 * count))()
        kernel.numbers.pack_into(self.memory, kernel.addresses.size, *numbers)
        first = ctypes.addressof(self.memory)
        self.params = (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))
        self.sizes = (programs, 1, 1, kernel.threads, 1, 1, kernel.shared)
        self.pack, self.launch, self.lock = kernel.addresses.pack_into, kernel.launch, threading.Lock()
        self.calls: dict[int, tuple[Any, ...]] = {}

    def __call__(self, stream: int, addresses: Sequence[int]) -> bool:
        """Launch. The driver copies the parameters before it returns."""
        call = self.calls.get(stream) or self._call_on(stream)
        with self.lock:
            self.pack(self.memory, 0, *addresses)
            return self.launch(*call) == 0

    def _call_on(self, stream: int) -> tuple[Any, ...]:
        """The driver's arguments for a stream, as ctypes objects: converting them for each call takes three times as long."""
        if len(self.calls) >= MOST:
            self.calls.clear()
        config = _Config(self.sizes, stream)
        found = self.calls[stream] = (ctypes.byref(config), ctypes.c_void_p(self.kernel.function), self.params, None)
        return found


class VaryingKernel(BoundKernel):
    """The same with some numbers, int32, that differ from call to call, and maybe the number of programs."""

    __slots__ = ("configs", "vary")

    def __init__(self, kernel: DirectKernel, programs: int, numbers: Sequence[int | float], places: Sequence[int]) -> None:
        super().__init__(kernel, programs, numbers)
        kept = range(len(numbers)) if kernel.kept is None else kernel.kept
        self.vary = [kernel.addresses.size + 8 * kept.index(place) for place in places]
        self.configs: dict[int, _Config] = {}

    def start(self, stream: int, addresses: Sequence[int], numbers: Sequence[int], programs: int) -> bool:
        """Launch with these numbers in their places."""
        call = self.calls.get(stream) or self._call_on(stream)
        with self.lock:
            self.pack(self.memory, 0, *addresses)
            for place, number in zip(self.vary, numbers, strict=True):
                _INT32.pack_into(self.memory, place, number)
            self.configs[stream].sizes[0] = programs
            return self.launch(*call) == 0

    def _call_on(self, stream: int) -> tuple[Any, ...]:
        call = super()._call_on(stream)
        self.configs[stream] = call[0]._obj
        return call


class DirectKernel:
    """One compiled kernel. A call takes the number of programs, the stream, the addresses of the tensors that are present and
    the numbers, and returns whether the driver accepted the launch."""

    __slots__ = ("addresses", "bound", "compiled", "function", "kept", "launch", "numbers", "shared", "threads")

    def __init__(self, compiled: Any, present: Sequence[bool], slots: Sequence[str | None], launch: Callable[..., int]) -> None:
        self.compiled = compiled  # Keeps the compiled code loaded.
        self.function, self.launch = compiled.function, launch
        self.threads, self.shared = 32 * compiled.metadata.num_warps, compiled.metadata.shared
        # Numbers that Triton turned into constants are not parameters.
        self.kept = None if None not in slots else [place for place, slot in enumerate(slots) if slot]
        # A missing tensor is a null pointer.
        self.addresses = struct.Struct("<" + "".join("Q" if there else "8x" for there in present))
        self.numbers = struct.Struct("<" + "".join(filter(None, slots)))
        self.bound: dict[Any, BoundKernel] = {}

    def __call__(self, programs: int, stream: int, addresses: Sequence[int], numbers: tuple[int | float, ...]) -> bool:
        """Launch."""
        return self.bind(programs, numbers)(stream, addresses)

    def bind(self, programs: int, numbers: tuple[int | float, ...]) -> BoundKernel:
        """The kernel with these numbers, cached."""
        found = self.bound.get((programs, numbers))
        if found is None:
            if len(self.bound) >= MOST:
                self.bound.clear()
            found = self.bound[programs, numbers] = BoundKernel(self, programs, numbers)
        return found


def direct_kernel(compiled: Any, present: Sequence[bool], num_numbers: int) -> DirectKernel | None:
    """A kernel that Triton compiled for tensors, then numbers, then constants; None if only Triton can launch it.

    ``present`` says which of the tensors are not None. The kernel does not read the others.
    """
    launch, num_tensors = cuda_launch(), len(present)
    metadata, source = getattr(compiled, "metadata", None), getattr(compiled, "src", None)
    kinds = list(getattr(source, "signature", {}).values())[: num_tensors + num_numbers]
    if launch is None or len(kinds) < num_tensors + num_numbers or getattr(metadata, "num_ctas", 1) != 1:
        return None
    if any(getattr(metadata, name, 0) for name in EXTRAS) or not all(kind.startswith("*") for kind in kinds[:num_tensors]):
        return None
    numbers = kinds[num_tensors:]
    if any(kind != "constexpr" and kind not in SLOTS for kind in numbers):
        return None
    return DirectKernel(compiled, present, [SLOTS.get(kind) for kind in numbers], launch)


@functools.cache
def cuda_launch() -> Callable[..., int] | None:
    """``cuLaunchKernelEx`` of the driver, untyped: all its arguments are pointers. None if there is no such function."""
    if torch.version.cuda is None:
        return None
    try:
        launch: Callable[..., int] = ctypes.CDLL("libcuda.so.1")["cuLaunchKernelEx"]
    except (OSError, AttributeError):
        return None
    return launch


@functools.cache
def copy_on_device() -> Callable[..., int] | None:
    """``cuMemcpyDtoDAsync`` of the driver: to, from, bytes, stream. None if there is no such function."""
    try:
        copy: Any = ctypes.CDLL("libcuda.so.1")["cuMemcpyDtoDAsync_v2"]
    except (OSError, AttributeError):
        return None
    copy.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
    found: Callable[..., int] = copy
    return found
