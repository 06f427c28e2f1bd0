"""Calls of the Triton kernels like one before: of the same shapes and kinds, they are started with nothing but addresses.

A small loss takes longer to be started than to be computed, and nearly every call of a training run is like the one before it.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.kernels.terms import DenseTerms, SparseTerms
from manyhot.kernels.triton_calls import Call, new_grad, new_rows
from manyhot.kernels.triton_driver import Start
from manyhot.kernels.triton_launch import Launcher, Numbers, stream_for

MOST = 4096


class Ready(NamedTuple):
    """A kernel with all its numbers; ``summed`` says whether it adds up the values of the rows too."""

    start: Start
    programs: int
    numbers: Numbers
    summed: bool

    def run(self, x: Tensor, inputs: list[Tensor], outs: list[Tensor]) -> bool:
        """Start it on ``x``, its inputs and outputs; False where that needs somebody else."""
        stream = stream_for(x.get_device())
        if stream is None:
            return False
        pointers = [x.data_ptr(), *[tensor.data_ptr() for tensor in inputs]]
        bits = 0
        for pointer in pointers:
            bits |= pointer
        if bits % 16:
            return False
        pointers += [tensor.data_ptr() for tensor in outs]
        if self.summed:
            pointers.append(zero_for(x, stream).data_ptr())
        return self.start(self.programs, stream, pointers, self.numbers)


READY: dict[Any, Ready] = {}


def kind_of_call(
    x: Tensor, terms: DenseTerms | SparseTerms, form: str, offset: Tensor | float, scale: Tensor | float
) -> tuple[Any, list[Tensor]] | None:
    """What tells calls apart, and the tensors beside ``x``; None for calls with a mask, weights, smoothing, an offset, or
    scales that are a tensor, as a negative one is made to be."""
    if not x.is_cuda or form != "split" or isinstance(offset, Tensor) or offset != 0 or isinstance(scale, Tensor) or scale < 0:
        return None
    about: tuple[Any, ...]
    if isinstance(terms, SparseTerms):
        indices, offsets, values, where, pos, neg, smoothing = terms
        inputs, about = [offsets, indices], (offsets.dtype, indices.dtype)
        if values is not None:
            return None
    else:
        labels, where, pos, neg, smoothing = terms
        inputs, about = [labels], (labels.dtype, labels.shape, labels.stride())
    if where is not None or pos is not None or neg is not None or smoothing:
        return None
    return (x.get_device(), x.dtype, x.shape, x.stride(), scale, about), inputs


def remember(key: Any, call: Call, inputs: list[Tensor], x: Tensor, started: tuple[Launcher, Numbers], *, summed: bool) -> None:
    """Keep what was started for calls like this one, provided that it took the tensors as they are."""
    launcher, numbers = started
    start = launcher.compiled.get(None)
    taken = [tensor for tensor in call.inputs if tensor is not None]
    as_they_are = call.x is x and len(taken) == len(inputs) and all(map(operator.is_, taken, inputs))
    if isinstance(start, Start) and as_they_are and call.layout.plan.chunks == 1:
        if len(READY) >= MOST:
            READY.clear()
        READY[key] = Ready(start, call.layout.programs, numbers, summed)


def start_again(key: Any, x: Tensor, inputs: list[Tensor]) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Values, gradient and, where it was added up, the total of a call like one before; None where there was none."""
    ready = READY.get(key)
    if ready is None:
        return None
    values, grad = new_rows(x), new_grad(x)
    total = values.new_empty(()) if ready.summed else None
    done = ready.run(x, inputs, [values, grad] if total is None else [values, grad, total])
    return (values, grad, total) if done else None


def zero_for(x: Tensor, stream: int | None = None) -> Tensor:
    """An integer 0 on the device, which the kernel that takes it leaves as 0.

    Every stream has one, as its kernels run one after the other. What a graph captures has one of its own, and sets it.
    """
    if not x.is_cuda or torch.cuda.is_current_stream_capturing():
        return x.new_zeros(1, dtype=torch.int32)
    device = x.get_device()
    return _zero(device, torch.cuda.current_stream(device).cuda_stream if stream is None else stream)


@functools.cache
def _zero(device: int, stream: int) -> Tensor:
    return torch.zeros(1, dtype=torch.int32, device=f"cuda:{device}")
