"""How the Triton kernels of the losses are started: what Triton compiled is kept, and started again without asking Triton.

Asking costs more than a small loss does on the device: Triton binds the arguments to names, looks at each, writes the answers
into a key, and has the driver confirm every pointer. A ``Launcher`` knows all but the alignment of the pointers beforehand.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from manyhot.engines.triton.launch.driver import direct_start

Numbers = tuple[int | float, ...]
_INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"


def interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on the CPU."""
    return _INTERPRETED


class Launcher:
    """One kernel with its constants, for tensors of the same types on one device and numbers of the same kinds.

    The numbers may differ in what Triton does not look at: floats, and integers of the same ``kind_of``. Which tensors are None
    may differ too, but where ``settled`` says that it never does.
    """

    __slots__ = ("compiled", "constants", "kernel", "options", "settled")

    def __init__(
        self, kernel: Any, constants: tuple[Any, ...], warps: int, registers: int | None = None, *, settled: bool = False
    ) -> None:
        self.kernel, self.constants, self.settled = kernel, constants, settled
        # Threads of a large program may use all registers there are; left alone, the assembler keeps some back and spills.
        most = registers or (min(255, 65536 // (32 * warps)) if warps >= 16 else None)
        self.options = {"num_warps": warps} if most is None else {"num_warps": warps, "maxnreg": most}
        self.compiled: dict[Any, Callable[..., bool]] = {}

    def __call__(self, programs: int, x: Tensor, others: Sequence[Tensor | None], numbers: Numbers) -> None:
        """Run ``programs`` programs on ``x``, other tensors, and numbers. A kernel does not look where a tensor is None."""
        if not programs:
            return
        if not x.is_cuda:
            self._ask(programs, x, others, numbers)
            return
        device = x.get_device()
        if _one_device() or device == torch.cuda.current_device():
            self._start(programs, device, x, others, numbers)
        else:
            with torch.cuda.device(device):
                self._start(programs, device, x, others, numbers)

    def _start(self, programs: int, device: int, x: Tensor, others: Sequence[Tensor | None], numbers: Numbers) -> None:
        bits = x.data_ptr()
        pointers = [bits, *[tensor.data_ptr() for tensor in others if tensor is not None]]
        for pointer in pointers:
            bits |= pointer
        # None is the usual case: all pointers are round, and nothing is missing that is not always missing.
        usual = bits % 16 == 0 and (self.settled or len(pointers) > len(others))
        key = None if usual else _kinds_of(pointers, others)
        known = self.compiled.get(key)
        if known is None or _hooked():
            compiled = self._ask(programs, x, others, numbers)
            present = [True, *[tensor is not None for tensor in others]]
            self.compiled[key] = direct_start(compiled, present, len(numbers)) or _never
        elif not known(programs, _stream_of()(device), pointers, numbers):
            self._ask(programs, x, others, numbers)

    def _ask(self, programs: int, x: Tensor, others: Sequence[Tensor | None], numbers: Numbers) -> Any:
        """The way through Triton, which compiles what it has not met. Booleans are bytes to the kernels."""
        given = [x if tensor is None else tensor for tensor in (x, *others)]
        given = [tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor for tensor in given]
        if interpreted():
            return self.kernel[(programs,)](*given, *numbers, *self.constants)
        return self.kernel[(programs,)](*given, *numbers, *self.constants, **self.options)


def _kinds_of(pointers: Sequence[int], others: Sequence[Tensor | None]) -> Any:
    """Which tensors are missing, and which of the others start where Triton can read many numbers at once."""
    return tuple([tensor is None for tensor in others]), tuple([pointer % 16 == 0 for pointer in pointers])


def _never(*_: Any) -> bool:
    """The start of a kernel that only Triton can start."""
    return False


# What was started, and with which numbers.
Started = tuple[Launcher, Numbers]
_LAUNCHERS: dict[tuple[Any, ...], Launcher] = {}


def launcher(
    kernel: Any,
    constants: tuple[Any, ...],
    warps: int,
    types: tuple[Any, ...],
    numbers: Numbers,
    registers: int | None = None,
) -> Launcher:
    """The launcher for arguments of these kinds.

    ``types`` are those of the tensors, None where there is none, and their device; ``registers`` is how many a thread may use,
    where the assembler would take too many.
    """
    key = (id(kernel), constants, warps, registers, types, *map(kind_of, numbers))
    found = _LAUNCHERS.get(key)
    if found is None:
        found = _LAUNCHERS[key] = Launcher(kernel, constants, warps, registers, settled=True)
    return found


def kind_of(number: int | float) -> Any:
    """What Triton looks at in a number: size and divisibility of an integer, nothing in a float."""
    return (number == 1, number % 16 == 0, number.bit_length() > 31) if isinstance(number, int) else None


def stream_for(device: int) -> int | None:
    """The stream of a device for kernels that are started without asking anybody; None where somebody has to be asked."""
    if _hooked() or not (_one_device() or device == torch.cuda.current_device()):
        return None
    return _stream_of()(device)


@functools.cache
def _one_device() -> bool:
    return torch.cuda.device_count() == 1


@functools.cache
def _stream_of() -> Callable[[int], int]:
    from triton.runtime import driver

    found: Callable[[int], int] = driver.active.get_current_stream
    return found


@functools.cache
def _hooks() -> Any:
    from triton import knobs

    return knobs.runtime


def _hooked() -> bool:
    """Whether somebody (a profiler) wants to hear of launches."""
    runtime = _hooks()
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))
