"""Replay of an earlier call with the same shapes, types and settings: only the addresses are new.

A small loss takes longer to launch than to compute, and nearly every call of a training run repeats the one before it.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton.calls import Call, chunk_memory, new_grad, new_rows, resident_programs
from manyhot.engines.triton.launch.direct import BoundKernel, DirectKernel
from manyhot.engines.triton.launch.gate import GATE, LaunchError
from manyhot.engines.triton.launch.launcher import Launched, stream_finder, stream_for
from manyhot.engines.triton.plans import COUNTER_STRIDE, FEW_SHORT

MOST = 4096
# Memory per device for calls in captured graphs, in int32: enough for 250 to two thousand of them.
ARENA = 1 << 21


class Replay:
    """A kernel bound to all its scalar arguments, and a kernel that sums the row values if the first one does not.

    With several ``chunks`` the programs of a row wait for each other. Each call then has its own memory for their partial sums,
    and checks that the current context still runs as many programs at once.
    """

    __slots__ = ("chunks", "counters", "kernel", "like", "total")

    def __init__(self, kernel: BoundKernel, total: BoundKernel | None, like: Tensor, chunks: int = 1) -> None:
        self.kernel, self.total, self.chunks = kernel, total, chunks
        self.like = like  # a scalar on the device
        self.counters: dict[int, int] = {}  # address of each stream's workspace

    def run(self, x: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
        """The reduced loss and its gradient; None if this call cannot be replayed."""
        value, grad = torch.empty_like(self.like), new_grad(x)
        return (value, grad) if self.run_into(x, inputs, value, grad, None if self.total is None else new_rows(x)) else None

    def run_into(self, x: Tensor, inputs: Sequence[Tensor], value: Tensor, grad: Tensor, rows: Tensor | None) -> bool:
        """Write the reduced loss to ``value`` and its gradient to ``grad``. If a second kernel does the sum, ``rows`` takes the
        row values. Returns False if this call cannot be replayed."""
        device = x.get_device()
        stream = stream_for(device)
        if stream is None:
            return False
        pointers = aligned(x, inputs)
        if pointers is None:
            return False
        shared = shared_memory(x, self.chunks) if self.chunks > 1 else ()
        if shared is None:
            return False
        parts = [each.data_ptr() for each in shared]
        if self.total is None:
            # The legacy default stream, number 0, cannot be captured.
            if stream and torch.cuda.is_current_stream_capturing():
                counter = workspace_for(x, self.kernel.sizes[0]).data_ptr()
            else:
                counter = self.counters.get(stream) or self._counter(device, stream)
            places = (counter + 4 * COUNTER_STRIDE, grad.data_ptr(), *parts, value.data_ptr(), counter)
            return self.kernel(stream, (*pointers, *places))
        assert rows is not None
        values = rows.data_ptr()
        done = self.kernel(stream, (*pointers, values, grad.data_ptr(), *parts))
        return done and self.total(stream, (values, value.data_ptr()))

    def repeater(self, *, lists: bool) -> Callable[[Tensor, Sequence[Tensor]], tuple[Tensor, Tensor] | None]:
        """``run`` as one short function, because a small loss takes as long as Python takes to launch it. The arguments are
        contiguous scores and labels, or scores, indices and offsets. A failure turns the engine off."""
        kernel, total, like, counters, chunks = self.kernel, self.total, self.like, self.counters, self.chunks
        find_stream, empty_like, capturing = stream_finder(), torch.empty_like, torch.cuda.is_current_stream_capturing

        def run(x: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
            if GATE.failure:
                return None
            try:
                device, first = x.get_device(), x.data_ptr()
                stream = find_stream(device)
                second = tensors[-1].data_ptr()
                if stream is None or (first if lists else first | second) % 16:
                    return None
                inputs = (first, second, tensors[0].data_ptr()) if lists else (first, second)
                value, grad = empty_like(like), empty_like(x)
                if chunks > 1:
                    apart = None if total is None else new_rows(x)
                    return (value, grad) if self.run_into(x, tensors[::-1], value, grad, apart) else None
                if total is not None:
                    rows = new_rows(x)
                    values = rows.data_ptr()
                    done = kernel(stream, (*inputs, values, grad.data_ptr())) and total(stream, (values, value.data_ptr()))
                else:
                    # The legacy default stream, number 0, cannot be captured.
                    own = workspace_for(x, kernel.sizes[0]) if stream and capturing() else None
                    counter = own.data_ptr() if own is not None else counters.get(stream) or self._counter(device, stream)
                    ends = (counter + 4 * COUNTER_STRIDE, grad.data_ptr(), value.data_ptr(), counter)
                    done = kernel(stream, (*inputs, *ends))
            except LaunchError as failure:
                GATE.close(failure)
                return None
            return (value, grad) if done else None

        return run

    def _counter(self, device: int, stream: int) -> int:
        found = self.counters[stream] = workspace_of(device, stream).data_ptr()
        return found


REPLAYS: dict[Any, Replay] = {}


def aligned(x: Tensor, inputs: Sequence[Tensor]) -> list[int] | None:
    """The addresses of all tensors; None if scores or dense labels are not aligned to 16 bytes, as the compiled kernels
    expect. Index lists, which are two tensors, may have any alignment."""
    pointers = [x.data_ptr(), *map(Tensor.data_ptr, inputs)]
    dense = len(inputs) == 1
    return None if (pointers[0] | (pointers[1] if dense else 0)) % 16 else pointers


def replay_key(
    x: Tensor, terms: DenseTerms | SparseTerms, form: str, offset: Tensor | float, scale: Tensor | float
) -> tuple[Any, list[Tensor]] | None:
    """The key that calls of one kind share, and the tensors besides ``x``. None for calls that are not replayed: those with a
    mask, weights, smoothing, an offset, or one scale per row (a negative scale is expanded to one per row)."""
    if form != "split" or type(offset) is not float or offset != 0 or type(scale) is not float or scale < 0:
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


def remember(key: Any, call: Call, inputs: list[Tensor], x: Tensor, launched: Launched, total: Launched | None) -> None:
    """Cache the launches for the loss and for the total, unless a tensor had to be copied for them."""
    first = bound(call.layout.programs, launched)
    last = None if total is None else bound(1, total)
    like = scalar_for(x) if as_given(call, x, inputs) and first and (last or not total) else None
    if first and like is not None:
        if len(REPLAYS) >= MOST:
            REPLAYS.clear()
        REPLAYS[key] = Replay(first, last, like, call.layout.plan.chunks)


def as_given(call: Call, x: Tensor, inputs: list[Tensor]) -> bool:
    """Whether the kernel of the call got the tensors themselves, none of them copied."""
    taken = [tensor for tensor in call.inputs if tensor is not None]
    return call.x is x and len(taken) == len(inputs) and all(map(operator.is_, taken, inputs))


def shared_memory(x: Tensor, chunks: int) -> tuple[Tensor, Tensor] | None:
    """Memory of the programs that share a row; None if too few of them can run at once now."""
    together = resident_programs(x)
    if together is not None and together < chunks:
        return None
    partial, arrived = chunk_memory(x, chunks)
    assert partial is not None
    assert arrived is not None
    return partial, arrived


def bound(programs: int, launched: Launched) -> BoundKernel | None:
    """The launched kernel bound to its scalar arguments; None if Triton launched it."""
    launcher, numbers = launched
    kernel = launcher.compiled.get(None)
    return kernel.bind(programs, numbers) if isinstance(kernel, DirectKernel) else None


def relaunch(key: Any, x: Tensor, inputs: list[Tensor]) -> tuple[Tensor, Tensor] | None:
    """The reduced loss and the gradient by replaying an earlier call; None if there was none."""
    replay = REPLAYS.get(key)
    if replay is None:
        return None
    return replay.run(x, inputs)


def workspace_for(x: Tensor, programs: int = FEW_SHORT) -> Tensor:
    """Workspace of a kernel that sums its own values: after one cache line, a slot of 64 bits per program, 0 before and after
    the launch (``rows.totals.add_up``).

    All kernels of a stream share one, because they run one after the other. Each call in a captured graph has its own: a part
    of memory that outlives all graphs and was zeroed once, or, when that is used up, memory that the graph zeroes.
    """
    if x.is_cuda and not torch.cuda.is_current_stream_capturing():
        return workspace_of(x.get_device(), torch.cuda.current_stream(x.device).cuda_stream)
    size = COUNTER_STRIDE + 2 * programs
    found = _ARENAS[x.get_device()].take(size) if x.is_cuda and x.get_device() in _ARENAS else None
    return x.new_zeros(size, dtype=torch.int32) if found is None else found


class _Arena:
    """Zeroed memory of a device, of which calls in captured graphs take parts and give none back."""

    __slots__ = ("lock", "memory", "used")

    def __init__(self, device: int) -> None:
        self.memory = kept_tensor(device, lambda: torch.zeros(ARENA, dtype=torch.int32, device=f"cuda:{device}"))
        self.used, self.lock = 0, threading.Lock()

    def take(self, size: int) -> Tensor | None:
        """The next part, from a cache line on; None if too little is left."""
        with self.lock:
            begin, end = self.used, self.used + -(-size // COUNTER_STRIDE) * COUNTER_STRIDE
            if end > len(self.memory):
                return None
            self.used = end
        return self.memory[begin : begin + size]


_ARENAS: dict[int, _Arena] = {}


@functools.cache
def workspace_of(device: int, stream: int) -> Tensor:
    """The workspace of a stream. The first one of a device also prepares the memory that captured graphs will use."""
    if device not in _ARENAS:
        _ARENAS[device] = _Arena(device)
    return kept_tensor(device, lambda: torch.zeros(COUNTER_STRIDE + 2 * FEW_SHORT, dtype=torch.int32, device=f"cuda:{device}"))


def scalar_for(x: Tensor) -> Tensor | None:
    """A float32 scalar on the device of ``x`` that outlives the call: the template of losses. None while a graph is captured,
    because nothing may be allocated outside its memory pool then."""
    if not x.is_cuda:
        return x.new_empty((), dtype=torch.float32)
    return None if torch.cuda.is_current_stream_capturing() else _scalar_of(x.get_device())


@functools.cache
def _scalar_of(device: int) -> Tensor:
    return kept_tensor(device, lambda: torch.empty((), dtype=torch.float32, device=f"cuda:{device}"))


def kept_tensor(device: int, make: Callable[[], Tensor]) -> Tensor:
    """A tensor that outlives the call, allocated by a thread of its own.

    Before ``torch.compile(mode="reduce-overhead")`` captures a CUDA graph, it runs the code once with allocations of the
    current thread in the memory pool of the graph, where no tensor may stay.
    """
    with ThreadPoolExecutor(1) as thread:
        made = thread.submit(make).result()
    current = torch.cuda.current_stream(device)
    current.wait_stream(torch.cuda.default_stream(device))
    made.record_stream(current)
    return made
