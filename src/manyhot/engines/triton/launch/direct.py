"""Compiled kernels launched through the CUDA driver (``cuLaunchKernelEx``), with their parameters in preallocated memory.

Triton's own launcher looks for allocators, profilers and launch modes that the kernels here never use. It does so in Python,
for every launch, and that takes longer than the launch itself. Kernels that need any of these features are left to Triton.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

# ``struct`` format of a scalar argument in its 8-byte slot, by Triton's name of its type.
SLOTS = {"i32": "i4x", "i64": "q", "fp32": "f4x"}
# Slots for the scratch-memory pointers that Triton appends; no kernel here uses them.
SPARE = 4
# Cache limit: sets of scalar arguments per kernel, and streams per set.
MOST = 64
# Features that only Triton's launcher supports.
EXTRAS = ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")


# The driver's ``CUlaunchAttribute`` by which programs may start before the kernel before has ended: its number, padding, then
# the value, a union of 64 bytes. Only for kernels that wait by themselves (``rows.early``).
EARLY = (ctypes.c_uint * 18)(6, 0, 1)


class Config(ctypes.Structure):
    """The driver's ``CUlaunchConfig``: grid, block and shared memory, the stream, and attributes."""

    _fields_ = [
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("num_attributes", ctypes.c_uint),
    ]


class BoundKernel:
    """A compiled kernel with its grid and scalar arguments. A call takes a stream and the addresses of the tensors that are not
    None, and returns whether the driver accepted the launch."""

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
        """The driver's arguments for a stream as cached ctypes objects: converting them per call takes three times as long."""
        if len(self.calls) >= MOST:
            self.calls.clear()
        config = Config(self.sizes, stream)
        if self.kernel.early:
            config.attributes, config.num_attributes = ctypes.addressof(EARLY), 1
        found = self.calls[stream] = (ctypes.byref(config), ctypes.c_void_p(self.kernel.function), self.params, None)
        return found


class TableStep(NamedTuple):
    """One kernel of a ``KernelTable``.

    ``places`` has the table slot of each tensor argument, None for a missing tensor. ``varying`` maps the position of a scalar
    argument to the scalar of the table that replaces it; all other scalars are fixed in ``numbers``.
    """

    kernel: DirectKernel
    programs: int
    numbers: Sequence[int | float]
    places: Sequence[int | None]
    varying: dict[int, int]


class KernelTable:
    """Kernels that are launched one after the other, with their parameters in one table: addresses, then int32 scalars. A call
    writes the values that change into the table once, for all kernels."""

    __slots__ = ("calls", "kept", "lock", "memory", "pack", "params", "steps")

    def __init__(self, addresses: int, numbers: int, steps: Sequence[TableStep]) -> None:
        self.memory = (ctypes.c_char * (8 * (addresses + numbers)))()
        self.pack, self.lock = struct.Struct("<" + "Q" * addresses + "i4x" * numbers).pack_into, threading.Lock()
        self.steps, self.kept, self.params = steps, [(ctypes.c_char * 8)()], []
        self.calls: dict[int, tuple[Config, list[tuple[Any, ...]]]] = {}
        table, nothing = ctypes.addressof(self.memory), ctypes.addressof(self.kept[0])
        for kernel, _, given, places, varying in steps:
            kept = range(len(given)) if kernel.kept is None else kernel.kept
            if not set(varying) <= set(kept):
                raise ValueError("Triton specialised a varying number to a constant")
            own = (ctypes.c_char * max(8, kernel.numbers.size))()
            kernel.numbers.pack_into(own, 0, *[given[place] for place in kept])
            self.kept.append(own)
            first = ctypes.addressof(own)
            pointers = [nothing if place is None else table + 8 * place for place in places]
            for index, place in enumerate(kept):
                shared = varying.get(place)
                pointers.append(first + 8 * index if shared is None else table + 8 * (addresses + shared))
            pointers += [nothing] * SPARE
            self.params.append((ctypes.c_void_p * len(pointers))(*pointers))

    def start(self, stream: int, addresses: Sequence[int], numbers: Sequence[int], programs: int) -> bool:
        """Launch all kernels, the first with ``programs`` programs. Returns whether the driver accepted every launch."""
        first, calls = self.calls.get(stream) or self._calls_on(stream)
        with self.lock:
            self.pack(self.memory, 0, *addresses, *numbers)
            first.sizes[0] = programs
            for launch, *call in calls:
                if launch(*call):
                    return False
        return True

    def _calls_on(self, stream: int) -> tuple[Config, list[tuple[Any, ...]]]:
        if len(self.calls) >= MOST:
            self.calls.clear()
        configs = [Config((step.programs, 1, 1, step.kernel.threads, 1, 1, step.kernel.shared), stream) for step in self.steps]
        calls = [
            (step.kernel.launch, ctypes.byref(config), ctypes.c_void_p(step.kernel.function), params, None)
            for step, config, params in zip(self.steps, configs, self.params, strict=True)
        ]
        found = self.calls[stream] = configs[0], calls
        return found


class DirectKernel:
    """One compiled kernel. A call takes the number of programs, the stream, the addresses of the tensors that are not None and
    the scalar arguments, and returns whether the driver accepted the launch."""

    __slots__ = ("addresses", "bound", "compiled", "early", "function", "kept", "launch", "numbers", "shared", "threads")

    def __init__(self, compiled: Any, present: Sequence[bool], slots: Sequence[str | None], launch: Callable[..., int]) -> None:
        self.compiled = compiled  # Keeps the compiled code loaded.
        self.function, self.launch = compiled.function, launch
        self.early: bool = getattr(compiled.metadata, "early", False)
        self.threads, self.shared = 32 * compiled.metadata.num_warps, compiled.metadata.shared
        # Scalars that Triton specialised to constants are not parameters.
        self.kept = None if None not in slots else [place for place, slot in enumerate(slots) if slot]
        # A missing tensor is a null pointer.
        self.addresses = struct.Struct("<" + "".join("Q" if there else "8x" for there in present))
        self.numbers = struct.Struct("<" + "".join(filter(None, slots)))
        self.bound: dict[Any, BoundKernel] = {}

    def __call__(self, programs: int, stream: int, addresses: Sequence[int], numbers: tuple[int | float, ...]) -> bool:
        """Launch."""
        return self.bind(programs, numbers)(stream, addresses)

    def bind(self, programs: int, numbers: tuple[int | float, ...]) -> BoundKernel:
        """The kernel bound to these scalar arguments, cached."""
        found = self.bound.get((programs, numbers))
        if found is None:
            if len(self.bound) >= MOST:
                self.bound.clear()
            found = self.bound[programs, numbers] = BoundKernel(self, programs, numbers)
        return found


def direct_kernel(compiled: Any, present: Sequence[bool], num_numbers: int) -> DirectKernel | None:
    """Wrap a kernel that Triton compiled for tensors, then scalars, then constants; None if only Triton can launch it.

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
    """``cuMemcpyDtoDAsync(destination, source, bytes, stream)`` of the driver. None if there is no such function."""
    try:
        copy: Any = ctypes.CDLL("libcuda.so.1")["cuMemcpyDtoDAsync_v2"]
    except (OSError, AttributeError):
        return None
    copy.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
    found: Callable[..., int] = copy
    return found
