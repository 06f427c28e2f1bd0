"""Kernels whose first tensors are tensor descriptors, launched through the CUDA driver.

A descriptor is a map of a matrix, encoded by the driver, through which the copy engine of Hopper and later devices loads and
stores whole blocks. The map is a parameter of the kernel, followed by the sizes and strides of the matrix.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.engines.triton.launch.direct import SLOTS, SPARE, Config, cuda_launch

# The driver's ``CUtensorMap``: its bytes, and the alignment of a parameter.
MAP_BYTES, MAP_ALIGNED = 128, 64
# The driver's ``CUtensorMapDataType``.
TYPES = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}
# ``CU_TENSOR_MAP_L2_PROMOTION_L2_128B``, as Triton encodes maps.
PROMOTION = 2
# The parameters that Triton makes of a descriptor, as PTX declares them: the map, two sizes, two strides.
DESCRIPTOR = ("b8[128]", "u32", "u32", "u64", "u64")
# Maps that are kept: of the matrices of some hundred problems.
MOST_MAPS = 1024


class Map(NamedTuple):
    """How a kernel reads a matrix: the arrangement in shared memory, and the rows and columns of a copy."""

    swizzle: int
    rows: int
    columns: int


def maps_of(compiled: Any) -> list[Map] | None:
    """The maps that a kernel compiled by Triton expects; None if its parameters are not those of this module."""
    about = getattr(compiled.metadata, "tensordesc_meta", None) or []
    given = sum(kind.startswith("tensordesc") for kind in compiled.src.signature.values())
    entry = compiled.asm["ptx"].partition(".entry")[2].partition("\n)")[0]
    declared = [
        kind + (size or "") for kind, size in re.findall(r"\.param (?:\.align \d+ )?\.(\w+)[^\[\n]*?(\[\d+\])?,?\n", entry)
    ]
    if given != len(about) or declared[: 5 * given] != list(DESCRIPTOR) * given:
        return None
    return [Map(int(each["swizzle"]), *map(int, each["block_size"])) for each in about]


@functools.lru_cache(MOST_MAPS)
def encoded(address: int, rows: int, columns: int, stride: int, dtype: torch.dtype, how: Map) -> bytes | None:
    """The map of a matrix whose rows start ``stride`` entries apart; None if the driver refuses it."""
    size = dtype.itemsize
    made = (ctypes.c_char * (MAP_BYTES + MAP_ALIGNED))()
    shift = -ctypes.addressof(made) % MAP_ALIGNED
    sizes, strides = (ctypes.c_uint64 * 2)(columns, rows), (ctypes.c_uint64 * 1)(stride * size)
    box, steps = (ctypes.c_uint32 * 2)(how.columns, how.rows), (ctypes.c_uint32 * 2)(1, 1)
    refused = ctypes.CDLL("libcuda.so.1")["cuTensorMapEncodeTiled"](
        ctypes.c_void_p(ctypes.addressof(made) + shift), TYPES[dtype], 2, ctypes.c_void_p(address), sizes, strides, box, steps,
        0, how.swizzle, PROMOTION, 0,
    )  # fmt: skip
    return None if refused else made.raw[shift : shift + MAP_BYTES]


class DescribedKernel:
    """One compiled kernel. A call takes the number of programs, the stream, the described matrices and the addresses of the
    other tensors that are not None, and the scalar arguments; it returns whether the driver accepted the launch."""

    __slots__ = ("base", "compiled", "kept", "launch", "lock", "maps", "memory", "pack", "params")

    def __init__(self, compiled: Any, maps: Sequence[Map], present: Sequence[bool], slots: Sequence[str | None]) -> None:
        self.compiled, self.maps, self.launch, self.lock = compiled, maps, cuda_launch(), threading.Lock()
        self.kept = [place for place, slot in enumerate(slots) if slot]
        numbers = [slot for slot in slots if slot]
        self.pack = struct.Struct(
            "<" + "i4xi4xqq" * len(maps) + "".join("Q" if there else "8x" for there in present) + "".join(numbers)
        ).pack_into
        # First the maps, then everything else, eight bytes each.
        rest = 4 * len(maps) + len(present) + len(numbers) + SPARE
        self.memory = (ctypes.c_char * (MAP_ALIGNED + MAP_BYTES * len(maps) + 8 * rest))()
        first = ctypes.addressof(self.memory)
        self.base = -first % MAP_ALIGNED
        slot = first + self.base + MAP_BYTES * len(maps)
        places = []
        for number in range(len(maps)):
            places += [first + self.base + MAP_BYTES * number, *range(slot + 32 * number, slot + 32 * number + 32, 8)]
        places += range(slot + 32 * len(maps), slot + 8 * rest, 8)
        self.params = (ctypes.c_void_p * len(places))(*places)

    def __call__(self, programs: int, stream: int, given: Sequence[Any], numbers: Sequence[int | float]) -> bool:
        """Launch. The driver copies the parameters before it returns."""
        matrices: Sequence[Tensor] = given[: len(self.maps)]
        launch = self.launch
        made: list[bytes] = []
        about: list[int] = []
        for matrix, how in zip(matrices, self.maps, strict=True):
            (rows, columns), (stride, step) = matrix.shape, matrix.stride()
            own = encoded(matrix.data_ptr(), rows, columns, stride, matrix.dtype, how)
            if own is None:
                return False
            made.append(own)
            about += [rows, columns, stride, step]
        if launch is None:
            return False
        metadata, after = self.compiled.metadata, self.base + MAP_BYTES * len(made)
        config = Config((programs, 1, 1, 32 * metadata.num_warps, 1, 1, metadata.shared), stream)
        with self.lock:
            ctypes.memmove(ctypes.addressof(self.memory) + self.base, b"".join(made), MAP_BYTES * len(made))
            self.pack(self.memory, after, *about, *given[len(made) :], *[numbers[place] for place in self.kept])
            function = ctypes.c_void_p(self.compiled.function)
            return launch(ctypes.byref(config), function, self.params, None) == 0


def described_kernel(compiled: Any, present: Sequence[bool], num_numbers: int) -> DescribedKernel | None:
    """Wrap a loaded kernel with descriptors, then tensors, then scalars; None if only Triton can launch it.

    ``present`` says which of the tensors are not None.
    """
    maps, num_tensors = compiled.metadata.maps, len(present)
    kinds = list(compiled.src.signature.values())[: num_tensors + num_numbers]
    pointers, numbers = kinds[len(maps) : num_tensors], kinds[num_tensors:]
    known = all(kind.startswith("*") for kind in pointers) and all(kind == "constexpr" or kind in SLOTS for kind in numbers)
    if not maps or not known or len(kinds) < num_tensors + num_numbers or cuda_launch() is None:
        return None
    return DescribedKernel(compiled, maps, present[len(maps) :], [SLOTS.get(kind) for kind in numbers])
