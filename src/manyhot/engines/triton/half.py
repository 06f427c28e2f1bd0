"""The loss and its gradient in float16: host side.

The range of float16 is too small for some gradients, so the loss is scaled (by 2^16 at first), and the factor of the gradient
is known only in backward. It seldom changes. So forward writes the gradient with the factor of the last backward, and backward
rewrites it if the factor has changed. The device makes this decision, so the host never waits. The gradient has the same bits
either way. In a captured graph, every replay starts from the initial factor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from manyhot.engines import plain
from manyhot.engines.again import Again
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton.calls import Call, chunk_memory, new_grad, new_rows
from manyhot.engines.triton.half_replay import HalfReplay, Held, Writer
from manyhot.engines.triton.launch.gate import GATE, LaunchError, falls_back_to
from manyhot.engines.triton.launch.launcher import stream_finder, stream_for
from manyhot.engines.triton.plans import COUNTER_STRIDE, adds_up
from manyhot.engines.triton.reductions import launch_sum
from manyhot.engines.triton.replay import (
    MOST,
    aligned,
    as_given,
    bound,
    kept_tensor,
    replay_key,
    workspace_for,
    workspace_of,
)

Terms = DenseTerms | SparseTerms
# The loss scale that torch's GradScaler starts with.
FIRST_LOSS_SCALE = 65536.0


# Scores, terms, form, offset and scale of a call.
Problem = tuple[Tensor, Terms, str, float, float]
_STARTS: dict[Any, HalfReplay] = {}
_WRITERS: dict[Any, Writer] = {}
_EXPECTED: dict[Any, Tensor] = {}


def _start_in_torch(x: Tensor, terms: Terms, form: str, offset: float, scale: float) -> tuple[Tensor, None]:
    return plain.fused(x, terms, form, offset, scale, whole=True)[0], None


def _finish_in_torch(_: Held | None, factor: Tensor, problem: Callable[[], Problem]) -> Tensor:
    x, terms, form, offset, scale = problem()
    grad: Tensor = plain.fused(x, terms, form, offset, (factor * scale).expand(x.shape[0]))[1]
    return grad


@falls_back_to(_start_in_torch)
def half_fused(x: Tensor, terms: Terms, form: str, offset: float, scale: float) -> tuple[Tensor, Held | None]:
    """``scale`` times the sum of the rows' losses, and the gradient, to be finished by ``half_finish``.

    ``x [R, L]`` is float16, and ``scale`` and ``offset`` are the same for all rows.
    """
    kind = replay_key(x, terms, form, offset, scale)
    stream = stream_for(x.get_device()) if x.is_cuda else None
    expected = _expected(x, scale, stream, (x.shape, form) if kind is None else kind[0])
    held = Held(new_grad(x), torch.empty_like(expected), expected)
    if kind is None:
        return _start(x, terms, form, offset, scale, held, None), held
    key, inputs = kind
    replay, writer = _STARTS.get(key), _WRITERS.get(key)
    pointers = aligned(x, inputs) if stream is not None else None
    if pointers is not None and writer is not None:
        held = held._replace(writer=(writer, pointers))
    value = None
    if replay is not None and stream is not None and pointers is not None:
        value = replay.run(x, pointers, stream, held)
    return _start(x, terms, form, offset, scale, held, kind) if value is None else value, held


def half_repeats(x: Tensor, terms: Terms, form: str, offset: float, scale: float) -> Again | None:
    """``half_fused`` for other tensors of the same kind; see ``manyhot.engines.registry.Engine``."""
    kind = replay_key(x, terms, form, offset, scale)
    replay = None if kind is None or not x.is_contiguous() else _STARTS.get(kind[0])
    if kind is None or replay is None or (isinstance(terms, DenseTerms) and not terms.labels.is_contiguous()):
        return None
    return Again(_repeater(replay, kind[0], scale, lists=isinstance(terms, SparseTerms)), _finisher())


def _repeater(
    replay: HalfReplay, key: Any, scale: float, *, lists: bool
) -> Callable[[Tensor, Sequence[Tensor]], tuple[Tensor, Held] | None]:
    """As ``manyhot.engines.triton.replay.Replay.repeater``, in float16."""
    (loss, total, chunks), find_stream = replay, stream_finder()
    empty_like, capturing = torch.empty_like, torch.cuda.is_current_stream_capturing
    # By stream: the tensor that holds the factor of the last backward, its address, and the address of the workspace.
    known: dict[int, tuple[Tensor, int, int]] = {}
    writers: list[Writer] = []

    def run(x: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, Held] | None:
        if GATE.failure:
            return None
        try:
            first, second = x.data_ptr(), tensors[-1].data_ptr()
            stream = find_stream(x.get_device())
            if stream is None or (first if lists else first | second) % 16 or (stream and capturing()):
                return None
            inputs = [first, second, tensors[0].data_ptr()] if lists else [first, second]
            found = known.get(stream)
            if found is None:
                expected = _expected(x, scale, stream, key)
                found = known[stream] = expected, expected.data_ptr(), workspace_of(x.get_device(), stream).data_ptr()
            expected, address, counter = found
            if not writers and key in _WRITERS:
                writers.append(_WRITERS[key])
            grad, used, value = empty_like(x), empty_like(expected), empty_like(expected)
            if chunks > 1:
                held = Held(grad, used, expected, (writers[0], inputs) if writers else None)
                found_value = replay.run(x, inputs, stream, held)
                return None if found_value is None else (found_value, held)
            values = None if total is None else new_rows(x)
            rows = counter + 4 * COUNTER_STRIDE if values is None else values.data_ptr()
            ends = (value.data_ptr(), counter) if values is None else ()
            done = loss(stream, (*inputs, address, rows, grad.data_ptr(), used.data_ptr(), *ends))
            done = done and (total is None or total(stream, (rows, value.data_ptr())))
        except LaunchError as failure:
            GATE.close(failure)
            return None
        return (value, Held(grad, used, expected, (writers[0], inputs) if writers else None)) if done else None

    return run


def _finisher() -> Callable[[Held, Tensor], Tensor | None]:
    """A fast ``half_finish`` for an aligned factor and a known kernel that rewrites the gradient; it returns None otherwise."""
    find_stream = stream_finder()

    def finish(held: Held, factor: Tensor) -> Tensor | None:
        address, writer = factor.data_ptr(), held.writer
        if writer is None or address % 16 or GATE.failure:
            return None
        try:
            stream = find_stream(factor.get_device())
            return held.grad if stream is not None and writer[0].run(stream, writer[1], address, held) else None
        except LaunchError as failure:
            GATE.close(failure)
            return None

    return finish


def _expected(x: Tensor, scale: float, stream: int | None, key: Any) -> Tensor:
    """The tensor that holds the factor of the last backward: one for each kind of call and each stream."""
    if stream is None or torch.cuda.is_current_stream_capturing():
        return x.new_full((), FIRST_LOSS_SCALE * scale, dtype=torch.float32)
    found = _EXPECTED.get((stream, key))
    if found is None:
        if len(_EXPECTED) >= MOST:
            _EXPECTED.clear()
        first = functools.partial(x.new_full, (), FIRST_LOSS_SCALE * scale, dtype=torch.float32)
        found = _EXPECTED[stream, key] = kept_tensor(x.get_device(), first)
    return found


def _start(x: Tensor, terms: Terms, form: str, offset: float, scale: float, held: Held, kind: Any) -> Tensor:
    """The reduced loss of the first call of a kind, and of calls that are not replayed."""
    call = Call(x, terms, "fused", wordwise=True, plainly=form == "split" and offset == 0)
    plan, programs, mean = call.layout.plan, call.layout.programs, scale == 1.0 / x.shape[0]
    added = ended = None
    how = "none"
    if adds_up(plan, programs) and (mean or scale == 1.0):
        ended, how = workspace_for(x, programs // plan.chunks), "mean" if mean else "sum"
        values = ended[COUNTER_STRIDE : COUNTER_STRIDE + programs // plan.chunks].view(torch.float32)
        added = torch.empty_like(held.used)
    else:
        values = new_rows(x)
    partial, arrived = chunk_memory(x, plan.chunks)
    launched = call.launch(
        form,
        offset=offset,
        factor=held.expected,
        out_value=values,
        out_grad=held.grad,
        state=held.used,
        partial=partial,
        arrived=arrived,
        out_total=added,
        ended=ended,
        total=how,
    )
    summing = None
    if added is None:
        added, summing = launch_sum(values, scale)
    loss, last = bound(programs, launched), None if summing is None else bound(1, summing)
    if kind is not None and as_given(call, x, kind[1]) and loss and (how != "none" or last):
        if len(_STARTS) >= MOST:
            _STARTS.clear()
        _STARTS[kind[0]] = HalfReplay(loss, last, plan.chunks)
    return added


@falls_back_to(_finish_in_torch)
def half_finish(held: Held | None, factor: Tensor, problem: Callable[[], Problem]) -> Tensor:
    """The gradient times ``factor``, a float32 scalar on the device: ``held.grad``, rewritten if necessary.

    ``problem`` returns the arguments of ``half_fused`` again; it is called only if they are needed.
    """
    if held is None:
        return _finish_in_torch(held, factor, problem)
    grad, used, expected, writer = held
    address = factor.data_ptr()
    if writer is not None and address % 16 == 0:
        stream = stream_for(factor.get_device())
        if stream is not None and writer[0].run(stream, writer[1], address, held):
            return grad
    x, terms, form, offset, scale = problem()
    call = Call(x, terms, "fused", wordwise=True, plainly=form == "split" and offset == 0)
    partial, arrived = chunk_memory(x, call.layout.plan.chunks)
    launched = call.launch(
        form,
        offset=offset,
        row_scale=scale,
        factor=factor,
        grad_neg=expected,
        out_grad=grad,
        state=used,
        partial=partial,
        arrived=arrived,
        total="again",
    )
    kind, again = replay_key(x, terms, form, offset, scale), bound(call.layout.programs, launched)
    if kind is not None and as_given(call, x, kind[1]) and again:
        if len(_WRITERS) >= MOST:
            _WRITERS.clear()
        _WRITERS[kind[0]] = Writer(again, call.layout.plan.chunks)
    return grad


def half_rewrite(grad: Tensor, used: Tensor, factor: Tensor, problem: Problem) -> None:
    """``half_finish`` in place, for a compiled graph, which saves the gradient and the factor it was written with."""
    x, terms, form, offset, scale = problem
    kind, stream, writer = replay_key(x, terms, form, offset, scale), None, None
    if x.is_cuda and not torch.cuda.is_current_stream_capturing():
        stream = stream_for(x.get_device())
    key = (x.shape, form) if kind is None else kind[0]
    expected = torch.empty_like(used) if stream is None else _expected(x, scale, stream, key)
    kernel, pointers = _WRITERS.get(key), None if kind is None or stream is None else aligned(x, kind[1])
    if kernel is not None and pointers is not None:
        writer = (kernel, pointers)
    made = half_finish(Held(grad, used, expected, writer), factor, lambda: problem)
    if made is not grad:
        grad.copy_(made)
