"""Launches of the Triton kernels: Triton compiles a kernel once, and later launches bypass it.

A launch by Triton costs more than a small loss does on the device: Triton binds the arguments to names, inspects each, builds
a cache key, and has the driver confirm every pointer. A ``Launcher`` knows all of this in advance, except the alignment of the
pointers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.engines.triton.launch.described import DescribedKernel, described_kernel
from manyhot.engines.triton.launch.direct import EXTRAS, DirectKernel, direct_kernel
from manyhot.engines.triton.launch.gate import LaunchError
from manyhot.engines.triton.launch.gate import interpreted as interpreted
from manyhot.engines.triton.launch.loading import load_kernel
from manyhot.engines.triton.launch.modules import raw_stream

Numbers = tuple[int | float, ...]
# The block of each tensor descriptor: rows and columns that a kernel loads or stores at once.
Blocks = tuple[tuple[int, int], ...]


class Launcher:
    """One kernel with its constants, for tensors of fixed types on one device.

    Scalar arguments may change from call to call as long as Triton compiles the same code for them: any float, and integers of
    the same ``kind_of``. Unless ``settled`` is set, a tensor may be None in one call and present in the next. Every error is
    raised as a ``LaunchError``.

    The first tensors are passed as tensor descriptors with ``blocks``; they must be there.
    """

    __slots__ = ("anywhere", "blocks", "compiled", "constants", "kernel", "options", "settled")

    def __init__(
        self,
        kernel: Any,
        constants: tuple[Any, ...],
        warps: int,
        registers: int | None = None,
        *,
        settled: bool = False,
        blocks: Blocks = (),
    ) -> None:
        self.kernel, self.constants, self.settled, self.blocks = kernel, constants, settled, blocks
        # Let the threads of a large program use all registers: by default the assembler holds some back and spills.
        most = registers or (min(255, 65536 // (32 * warps)) if warps >= 16 else None)
        self.options = {"num_warps": warps} if most is None else {"num_warps": warps, "maxnreg": most}
        self.compiled: dict[Any, Callable[..., bool]] = {}
        # Tensors after the first that may have any alignment: the compiled code does not depend on it.
        free = getattr(kernel, "do_not_specialize_on_alignment", None) or ()
        self.anywhere = frozenset(kernel.arg_names.index(name) - 1 for name in free)

    def __call__(self, programs: int, x: Tensor, others: Sequence[Tensor | None], numbers: Numbers) -> None:
        """Run ``programs`` programs on ``x``, other tensors, and scalars. The kernel does not read a tensor that is None."""
        if not programs:
            return
        try:
            if not x.is_cuda:
                self._launch_with_triton(programs, x, others, numbers)
            else:
                device = x.get_device()
                if _one_device() or device == torch.cuda.current_device():
                    self._launch(programs, device, x, others, numbers)
                else:
                    with torch.cuda.device(device):
                        self._launch(programs, device, x, others, numbers)
        except Exception as error:
            raise LaunchError("a Triton kernel could not be launched") from error

    def _launch(self, programs: int, device: int, x: Tensor, others: Sequence[Tensor | None], numbers: Numbers) -> None:
        key, pointers = self._key(x, others)
        if self.blocks:
            pointers[: len(self.blocks)] = [x, *others[: len(self.blocks) - 1]]
        known = self.compiled.get(key)
        if known is None and not _hooked():
            known = self._load(device, programs, x, others, numbers)
            if known is not None:
                self.compiled[key] = known
        if known is None or _hooked():
            compiled = self._launch_with_triton(programs, x, others, numbers)
            present = [True, *[tensor is not None for tensor in others]]
            direct = None if self.blocks else direct_kernel(compiled, present, len(numbers))
            self.compiled[key] = direct or _always_decline
        elif not known(programs, _stream_of()(device), pointers, numbers):
            self._launch_with_triton(programs, x, others, numbers)

    def _load(
        self, device: int, programs: int, x: Tensor, others: Sequence[Tensor | None], numbers: Numbers
    ) -> DirectKernel | DescribedKernel | None:
        """The kernel for these arguments, compiled and loaded without Triton's launcher; None if it needs that launcher."""
        given = [x, *others]
        present = [tensor is not None for tensor in given]
        about = [None if each is None else (str(each.dtype), each.data_ptr() % 16 == 0) for each in given]
        kinds = kinds_of(self.kernel, numbers, len(given)), [type(number).__name__ for number in numbers]
        options = (sorted(self.options.items()), self.blocks)
        identity = (self.kernel.__module__, self.kernel.__name__, self.constants, options, about, kinds)
        try:
            loaded = load_kernel(device, identity, lambda: self._compile(programs, x, others, numbers), EXTRAS)
        except Exception:
            return None  # Triton then launches it, which works or raises the actual error.
        wrap: Any = described_kernel if self.blocks else direct_kernel
        found: DirectKernel | DescribedKernel | None = None if loaded is None else wrap(loaded, present, len(numbers))
        return found

    def _compile(self, programs: int, x: Tensor, others: Sequence[Tensor | None], numbers: Numbers) -> Any:
        """Let Triton compile the kernel for these arguments."""
        return self.kernel.warmup(*self.given(x, others), *numbers, *self.constants, grid=(programs,), **self.options)

    def _key(self, x: Tensor, others: Sequence[Tensor | None]) -> tuple[Any, list[Any]]:
        """The cache key of the compiled code, and the addresses of the tensors that are not None."""
        bits = x.data_ptr()
        pointers: list[Any] = [bits]
        for place, tensor in enumerate(others):
            if tensor is not None:
                pointer = tensor.data_ptr()
                pointers.append(pointer)
                if place not in self.anywhere:
                    bits |= pointer
        # In the usual case the key is None: all pointers are aligned, and no tensor is missing, or always the same ones are.
        usual = bits % 16 == 0 and (self.settled or len(pointers) > len(others))
        return None if usual else (x.data_ptr() % 16 == 0, *_kinds_of(others, self.anywhere)), pointers

    def kernel_for(self, x: Tensor, others: Sequence[Tensor | None]) -> DirectKernel | None:
        """The compiled kernel for tensors like these; None if none was launched yet, or if only Triton can launch it."""
        found = self.compiled.get(self._key(x, others)[0])
        return found if isinstance(found, DirectKernel) else None

    def _launch_with_triton(self, programs: int, x: Tensor, others: Sequence[Tensor | None], numbers: Numbers) -> Any:
        """Launch through Triton, which compiles the kernel if it is new."""
        given = self.given(x, others)
        if interpreted():
            return self.kernel[(programs,)](*given, *numbers, *self.constants)
        return self.kernel[(programs,)](*given, *numbers, *self.constants, **self.options)

    def given(self, x: Tensor, others: Sequence[Tensor | None]) -> list[Any]:
        """What Triton gets for the tensors: ``x`` in place of a missing one, which is not read, booleans as bytes, and
        descriptors."""
        tensors = [x if tensor is None else tensor for tensor in (x, *others)]
        tensors = [tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor for tensor in tensors]
        if not self.blocks:
            return tensors
        from triton.tools.tensor_descriptor import TensorDescriptor

        described = zip(tensors, self.blocks, strict=False)
        return [*[TensorDescriptor.from_tensor(*each) for each in described], *tensors[len(self.blocks) :]]


def _kinds_of(tensors: Sequence[Tensor | None], anywhere: frozenset[int]) -> list[bool | None]:
    """For each tensor: None if it is missing, else whether it is aligned to 16 bytes for vector loads, or need not be."""
    return [
        None if tensor is None else place in anywhere or tensor.data_ptr() % 16 == 0 for place, tensor in enumerate(tensors)
    ]


def _always_decline(*_: Any) -> bool:
    """Stands for a kernel that only Triton can launch."""
    return False


class Launch(NamedTuple):
    """A launch that is ready to run. ``listed`` has the positions of the scalars that hold the number of listed entries, and
    ``steps`` of those that hold the bit length of that number."""

    start: Launcher
    programs: int
    x: Tensor
    others: tuple[Tensor | None, ...]
    numbers: Numbers
    listed: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    def run(self) -> None:
        """Launch."""
        self.start(self.programs, self.x, self.others, self.numbers)


# A launcher, and the scalar arguments of its launch.
Launched = tuple[Launcher, Numbers]
_LAUNCHERS: dict[tuple[Any, ...], Launcher] = {}


def launcher(
    kernel: Any,
    constants: tuple[Any, ...],
    warps: int,
    types: tuple[Any, ...],
    numbers: Numbers,
    registers: int | None = None,
    blocks: Blocks = (),
) -> Launcher:
    """The launcher for arguments of these kinds.

    ``types`` are the types of the tensors, None for a missing one, and their device. ``registers`` is a limit per thread.
    ``blocks`` are those of the first tensors, if they are passed as descriptors.
    """
    key = (id(kernel), constants, warps, registers, blocks, types, *kinds_of(kernel, numbers, len(types) - 1))
    found = _LAUNCHERS.get(key)
    if found is None:
        found = _LAUNCHERS[key] = Launcher(kernel, constants, warps, registers, settled=True, blocks=blocks)
    return found


def kinds_of(kernel: Any, numbers: Numbers, first: int) -> list[Any]:
    """What Triton specialises each scalar on. The scalars are the kernel's arguments from number ``first`` on."""
    free = getattr(kernel, "do_not_specialize", None) or ()
    names = kernel.arg_names[first : first + len(numbers)] if free else [""] * len(numbers)
    return [
        kind_of(number) if name not in free else int(number).bit_length() > 31
        for name, number in zip(names, numbers, strict=True)
    ]  # fmt: skip


def kind_of(number: int | float) -> Any:
    """What Triton specialises an integer on: whether it is 1, its divisibility and its size. It does not specialise on
    floats."""
    return (number == 1, number % 16 == 0, number.bit_length() > 31) if isinstance(number, int) else None


def stream_for(device: int) -> int | None:
    """The current stream of a device, for a direct launch; None if a profiler is attached or another device is current."""
    try:
        if _hooked() or not (_one_device() or device == torch.cuda.current_device()):
            return None
        return _stream_of()(device)
    except Exception as error:
        raise LaunchError("the current CUDA stream could not be found") from error


def stream_finder() -> Callable[[int], int | None]:
    """A faster ``stream_for`` for repeated calls: constant lookups are done once."""
    if not _one_device():
        return stream_for
    runtime, stream_of = _hooks(), _stream_of()

    def find(device: int) -> int | None:
        try:
            enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
            if getattr(enter, "calls", enter) or getattr(leave, "calls", leave):
                return None
            return stream_of(device)
        except Exception as error:
            raise LaunchError("the current CUDA stream could not be found") from error

    return find


@functools.cache
def _one_device() -> bool:
    return torch.cuda.device_count() == 1


@functools.cache
def _stream_of() -> Callable[[int], int]:
    return raw_stream()


@functools.cache
def _hooks() -> Any:
    from triton import knobs

    return knobs.runtime


def _hooked() -> bool:
    """Whether a profiler has hooked launches."""
    runtime = _hooks()
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))
