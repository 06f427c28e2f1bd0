"""Compiled kernels started through the driver itself (``cuLaunchKernelEx``), their parameters in memory that is kept for them.

Triton's own launcher looks for allocators, profilers and kinds of starts that the kernels here never need, in Python and for
every start, and that takes longer than the start. Whatever it knows and this does not is left to it.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

# How numbers lie in slots of eight bytes, by Triton's names of their types.
SLOTS = {"i32": "i4x", "i64": "q", "fp32": "f4x"}
# Triton adds pointers to memory for scratch at the end, which no kernel here uses.
SPARE = 4
# How many sets of numbers, and of streams, are kept.
MOST = 64
# What a kernel must not ask for.
EXTRAS = ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")


class _Config(ctypes.Structure):
    """How the driver takes the sizes and the stream of a start; it has no peculiarities."""

    _fields_ = [
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("num_attributes", ctypes.c_uint),
    ]


class Bound:
    """A compiled kernel with its numbers; called with a stream and the addresses of the tensors that are there, it says whether
    it was started."""

    __slots__ = ("calls", "launch", "lock", "memory", "pack", "params", "sizes", "start")

    def __init__(self, start: Start, programs: int, numbers: Sequence[int | float]) -> None:
        self.start = start  # What is compiled is unloaded with it.
        if start.kept is not None:
            numbers = [numbers[place] for place in start.kept]
        count = (start.addresses.size + start.numbers.size) // 8 + SPARE
        self.memory = (ctypes.c_char * (8 * count))()
        start.numbers.pack_into(self.memory, start.addresses.size, *numbers)
        first = ctypes.addressof(self.memory)
        self.params = (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))
        self.sizes = (programs, 1, 1, start.threads, 1, 1, start.shared)
        self.pack, self.launch, self.lock = start.addresses.pack_into, start.launch, threading.Lock()
        self.calls: dict[int, tuple[Any, ...]] = {}

    def __call__(self, stream: int, addresses: Sequence[int]) -> bool:
        """Start it. The driver copies the parameters before it returns."""
        call = self.calls.get(stream) or self._call_on(stream)
        with self.lock:
            self.pack(self.memory, 0, *addresses)
            return self.launch(*call) == 0

    def _call_on(self, stream: int) -> tuple[Any, ...]:
        """What the driver is called with, as ctypes passes it on without a look at the types, which takes thrice as long."""
        if len(self.calls) >= MOST:
            self.calls.clear()
        config = _Config(self.sizes, stream)
        found = self.calls[stream] = (ctypes.byref(config), ctypes.c_void_p(self.start.function), self.params, None)
        return found


class Start:
    """One compiled kernel; called with how many programs, the stream, addresses of the tensors that are there, and numbers, it
    says whether it was started."""

    __slots__ = ("addresses", "bound", "compiled", "function", "kept", "launch", "numbers", "shared", "threads")

    def __init__(self, compiled: Any, present: Sequence[bool], slots: Sequence[str | None], launch: Callable[..., int]) -> None:
        self.compiled = compiled  # What is compiled is unloaded with it.
        self.function, self.launch = compiled.function, launch
        self.threads, self.shared = 32 * compiled.metadata.num_warps, compiled.metadata.shared
        # Numbers that Triton made constants are no parameters.
        self.kept = None if None not in slots else [place for place, slot in enumerate(slots) if slot]
        # A tensor that is not there is a null pointer.
        self.addresses = struct.Struct("<" + "".join("Q" if there else "8x" for there in present))
        self.numbers = struct.Struct("<" + "".join(filter(None, slots)))
        self.bound: dict[Any, Bound] = {}

    def __call__(self, programs: int, stream: int, addresses: Sequence[int], numbers: tuple[int | float, ...]) -> bool:
        """Start it."""
        return self.bind(programs, numbers)(stream, addresses)

    def bind(self, programs: int, numbers: tuple[int | float, ...]) -> Bound:
        """The kernel with these numbers, kept for the next time."""
        found = self.bound.get((programs, numbers))
        if found is None:
            if len(self.bound) >= MOST:
                self.bound.clear()
            found = self.bound[programs, numbers] = Bound(self, programs, numbers)
        return found


def direct_start(compiled: Any, present: Sequence[bool], num_numbers: int) -> Start | None:
    """How to start what Triton compiled for tensors, then numbers, then constants; None where Triton has to.

    ``present`` says which of the tensors are there. The kernel does not look at the others.
    """
    launch, num_tensors = _cuda_launch(), len(present)
    metadata, source = getattr(compiled, "metadata", None), getattr(compiled, "src", None)
    kinds = list(getattr(source, "signature", {}).values())[: num_tensors + num_numbers]
    if launch is None or len(kinds) < num_tensors + num_numbers or getattr(metadata, "num_ctas", 1) != 1:
        return None
    if any(getattr(metadata, name, 0) for name in EXTRAS) or not all(kind.startswith("*") for kind in kinds[:num_tensors]):
        return None
    numbers = kinds[num_tensors:]
    if any(kind != "constexpr" and kind not in SLOTS for kind in numbers):
        return None
    return Start(compiled, present, [SLOTS.get(kind) for kind in numbers], launch)


@functools.cache
def _cuda_launch() -> Callable[..., int] | None:
    """``cuLaunchKernelEx`` without the types of its arguments, which are all given as pointers."""
    if torch.version.cuda is None:
        return None
    try:
        launch: Callable[..., int] = ctypes.CDLL("libcuda.so.1")["cuLaunchKernelEx"]
    except (OSError, AttributeError):
        return None
    return launch
