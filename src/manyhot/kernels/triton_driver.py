"""Compiled kernels started through the driver itself (``cuLaunchKernel``), their parameters in memory that is kept for them.

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
# What a kernel must not ask for.
EXTRAS = ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")


class Start:
    """One compiled kernel; called with how many programs, the stream, addresses of the tensors that are there, and numbers, it
    says whether it was started."""

    __slots__ = ("compiled", "function", "kept", "launch", "lock", "memory", "pack", "params", "shared", "threads")

    def __init__(self, compiled: Any, present: Sequence[bool], slots: Sequence[str | None], launch: Callable[..., int]) -> None:
        self.compiled = compiled  # What is compiled is unloaded with it.
        self.function, self.launch = compiled.function, launch
        self.threads, self.shared = 32 * compiled.metadata.num_warps, compiled.metadata.shared
        # Numbers that Triton made constants are no parameters.
        self.kept = None if None not in slots else [place for place, slot in enumerate(slots) if slot]
        # A tensor that is not there is a null pointer.
        layout = struct.Struct("<" + "".join("Q" if there else "8x" for there in present) + "".join(filter(None, slots)))
        count = layout.size // 8 + SPARE
        self.pack, self.memory = layout.pack_into, (ctypes.c_char * (8 * count))()
        first = ctypes.addressof(self.memory)
        self.params = (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))
        self.lock = threading.Lock()

    def __call__(self, programs: int, stream: int, addresses: Sequence[int], numbers: Sequence[int | float]) -> bool:
        """Start it. The driver copies the parameters before it returns."""
        if self.kept is not None:
            numbers = [numbers[place] for place in self.kept]
        with self.lock:
            self.pack(self.memory, 0, *addresses, *numbers)
            about = (programs, 1, 1, self.threads, 1, 1, self.shared, stream, self.params, None)
            return self.launch(self.function, *about) == 0


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
    if torch.version.cuda is None:
        return None
    try:
        launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    except (OSError, AttributeError):
        return None
    launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    launch.restype = ctypes.c_int
    found: Callable[..., int] = launch
    return found
