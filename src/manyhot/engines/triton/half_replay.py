"""Replay of an earlier float16 call: its kernels, and the gradient that backward may have to rewrite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.engines.triton.calls import new_rows
from manyhot.engines.triton.launch.direct import BoundKernel
from manyhot.engines.triton.plans import COUNTER_STRIDE
from manyhot.engines.triton.replay import shared_memory, workspace_for, workspace_of


class Held(NamedTuple):
    """A gradient that backward may have to rewrite."""

    grad: Tensor
    used: Tensor  # float32 []: the factor it was written with
    expected: Tensor  # float32 []: the factor of the last backward
    # The kernel that rewrites it, and the addresses of scores and labels; None if backward has to look them up.
    writer: tuple[Writer, list[int]] | None = None


class Writer(NamedTuple):
    """A kernel that rewrites gradients, bound to its scalar arguments."""

    kernel: BoundKernel
    chunks: int = 1

    def run(self, stream: int, pointers: Sequence[int], factor: int, held: Held) -> bool:
        """Rewrite the gradient if the number at the address ``factor`` is not the expected one; False if this is declined."""
        shared = shared_memory(held.grad, self.chunks) if self.chunks > 1 else ()
        if shared is None:
            return False
        parts = [each.data_ptr() for each in (held.expected, held.grad, held.used, *shared)]
        return self.kernel(stream, (*pointers, factor, *parts))


class HalfReplay(NamedTuple):
    """Kernels of an earlier call, bound to their scalar arguments: the loss, and the sum of its rows if that is separate."""

    loss: BoundKernel
    total: BoundKernel | None
    chunks: int = 1

    def run(self, x: Tensor, pointers: list[int], stream: int, held: Held) -> Tensor | None:
        """The reduced loss, with the gradient written; None if the driver declines."""
        value = torch.empty_like(held.used)
        shared = shared_memory(x, self.chunks) if self.chunks > 1 else ()
        if shared is None:
            return None
        if self.total is None:
            capturing = torch.cuda.is_current_stream_capturing()
            workspace = workspace_for(x, self.loss.sizes[0]) if capturing else workspace_of(x.get_device(), stream)
            counter = workspace.data_ptr()
            rows = counter + 4 * COUNTER_STRIDE
            ends: tuple[int, ...] = (value.data_ptr(), counter)
        else:
            values = new_rows(x)
            rows, ends = values.data_ptr(), ()
        parts = [each.data_ptr() for each in (held.grad, held.used, *shared)]
        done = self.loss(stream, (*pointers, held.expected.data_ptr(), rows, *parts, *ends))
        if done and self.total is not None:
            done = self.total(stream, (rows, value.data_ptr()))
        return value if done else None
