"""Memory that is used again: fresh pages from the system cost as much as some of the computations in them."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

# Buffers are made in multiples of this many numbers, so that batches of similar size use the same ones.
STEP = 1 << 18
# Bytes of unused buffers that are kept.
KEPT_BYTES = 256 << 20

# The garbage collector may end a lease while this thread holds the lock.
_LOCK = threading.RLock()
_FREE: list[Tensor] = []


class Lease:
    """A buffer of float32 numbers; it can be used again once this object is gone.

    Args:
        buffer: the numbers.
    """

    __slots__ = ("buffer",)

    def __init__(self, buffer: Tensor) -> None:
        self.buffer = buffer

    def data_ptr(self) -> int:
        """The address of the first number."""
        return self.buffer.data_ptr()

    def __del__(self) -> None:
        with _LOCK:
            if sum(each.nbytes for each in _FREE) + self.buffer.nbytes <= KEPT_BYTES:
                _FREE.append(self.buffer)


def lease(count: int) -> Lease:
    """At least ``count`` numbers, of any value."""
    with _LOCK:
        fitting = [place for place, each in enumerate(_FREE) if each.numel() >= count]
        if fitting:
            return Lease(_FREE.pop(min(fitting, key=lambda place: _FREE[place].numel())))
    with torch.inference_mode(False):
        return Lease(torch.empty(-(-max(count, 1) // STEP) * STEP))
