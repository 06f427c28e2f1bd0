"""A bidirectional LSTM layer over packed rows by the native engine, with its gradients, on one thread.

Rows are packed as ``torch.nn.utils.rnn.PackedSequence`` packs them: token by token, the longest rows first. Nothing is computed
for padding, and no row is reversed. The formulas are in lstm.h. Dropout that drops the same inputs at all tokens of a row is a
part of the layer, because the products with dropped inputs need not be computed.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.engines.native import library
from manyhot.engines.native.engine import available as available
from manyhot.engines.native.workspace import Lease, lease

Array = np.ndarray[Any, Any]
# As in lstm_types.h.
PAD = 16
# Sizes must be multiples of this: the widest vector.
STEP = 16
_INTEGERS = "rows steps tokens inputs hidden reverse adding out_stride variant"
_POINTERS = "starts x by_input by_state bias kept_starts kept x_kept out gates cells out_grad"
_RESULTS = "x_grad by_input_grad by_state_grad bias_grad room"


class Layer(ctypes.Structure):
    """``lstm_layer`` in lstm_types.h; ``held`` keeps memory alive that only this call has."""

    held: Tensor

    _fields_ = [
        *((name, ctypes.c_int64) for name in _INTEGERS.split()),
        *((name, ctypes.c_void_p) for name in (*_POINTERS.split(), *_RESULTS.split())),
        ("scale", ctypes.c_float),
    ]


class PackedRows(NamedTuple):
    """How rows are packed: step t of row r is token ``starts[t] + r``. With dropout, ``kept`` lists the inputs of each row that
    are kept, int32, and ``kept_starts [B + 1]`` where those of each row start; they are multiplied by ``scale``."""

    starts: Array
    kept: Array | None = None
    kept_starts: Array | None = None
    scale: float = 1.0

    @classmethod
    def of(cls, counts: Array) -> PackedRows:
        """From the number of rows at each step."""
        return cls(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def keeping(self, kept: Array | None, scale: float) -> PackedRows:
        """The same rows, of which the inputs ``kept``, bool ``[B, D]`` in packed order, are kept and scaled."""
        if kept is None:
            return PackedRows(self.starts)
        ends = np.cumsum(np.count_nonzero(kept, axis=1))
        return PackedRows(self.starts, kept.nonzero()[1].astype(np.int32), np.concatenate([[0], ends]).astype(np.int64), scale)


def serves(x: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether ``bilstm_layer`` supports the call: float32 on the CPU, one thread, and sizes in whole vectors."""
    plain = all(part.dtype == torch.float32 and part.is_cpu for part in (x, *weights))
    return plain and torch.get_num_threads() == 1 and x.shape[-1] % STEP == 0 and weights[1].shape[1] % STEP == 0


def bilstm_layer(x: Tensor, rows: PackedRows, weights: Sequence[Tensor], *, variant: str | None = None) -> Tensor:
    """``[N, 2 H]``: both directions of one layer over packed tokens ``x [N, D]``.

    Args:
        x: the inputs of the tokens.
        rows: how they are packed.
        weights: ``weight_ih, weight_hh, bias_ih, bias_hh`` of the forward direction, then of the backward one.
        variant: an instruction set other than the widest one.
    """
    out: Tensor = _BiLayer.apply(x, rows, variant, *weights)  # type: ignore[no-untyped-call]
    return out


class _BiLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: PackedRows, variant: str | None, *weights: Tensor) -> Tensor:
        x, weights = x.contiguous(), tuple(each.contiguous() for each in weights)
        size = weights[1].shape[1]
        out = x.new_empty(len(x), 2 * size)
        # The kept inputs, and gates and cells of both directions.
        inputs = 0 if rows.kept is None else x.numel()
        leases = [lease(count) for count in (inputs, *2 * [len(x) * (4 * size + PAD), len(x) * size])]
        for side in (0, 1):
            _run(_direction(x, rows, weights, out, side, leases, variant))
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(x, out, *weights)
            ctx.rows, ctx.leases, ctx.variant = rows, leases, variant
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, out, *weights = ctx.saved_tensors
        grad = grad.contiguous()
        x_grad = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        wanted = any(ctx.needs_input_grad[3:])
        found: list[Tensor | None] = []
        for side in (0, 1):
            call = _direction(x, ctx.rows, weights, out, side, ctx.leases, ctx.variant)
            call.out_grad = grad.data_ptr() + 4 * side * weights[1].shape[1]
            call.x_grad, call.adding = None if x_grad is None else x_grad.data_ptr(), side
            made = [torch.empty_like(each) for each in weights[4 * side : 4 * side + 3]] if wanted else [None] * 3
            call.by_input_grad, call.by_state_grad, call.bias_grad = (
                None if each is None else each.data_ptr() for each in made
            )
            _run(call)
            # The two biases are added, so their gradients are equal; they must not share memory.
            found += [*made, None if made[2] is None else made[2].clone()]
        return x_grad, None, None, *found


def _direction(
    x: Tensor,
    rows: PackedRows,
    weights: Sequence[Tensor],
    out: Tensor,
    side: int,
    leases: Sequence[Lease],
    variant: str | None,
) -> Layer:
    """The call of one direction, forward."""
    by_input, by_state, bias_ih, bias_hh = (each.detach() for each in weights[4 * side : 4 * side + 4])
    names, size = library.variants(), by_state.shape[1]
    call = Layer(
        rows=int(rows.starts[1]) if len(rows.starts) > 1 else 0,
        steps=len(rows.starts) - 1,
        tokens=len(x),
        inputs=x.shape[1],
        hidden=size,
        reverse=side,
        out_stride=2 * size,
        variant=len(names) - 1 if variant is None else names.index(variant),
        starts=rows.starts.ctypes.data,
        x=x.data_ptr(),
        by_input=by_input.data_ptr(),
        by_state=by_state.data_ptr(),
        kept_starts=None if rows.kept_starts is None else rows.kept_starts.ctypes.data,
        kept=None if rows.kept is None else rows.kept.ctypes.data,
        out=out.data_ptr() + 4 * side * size,
        x_kept=leases[0].data_ptr(),
        gates=leases[1 + 2 * side].data_ptr(),
        cells=leases[2 + 2 * side].data_ptr(),
        scale=rows.scale,
    )
    # The structure holds addresses alone: what is made here must live as long as it does.
    call.held = bias_ih + bias_hh
    call.bias = call.held.data_ptr()
    return call


def _run(call: Layer) -> None:
    found = _library()
    room = lease(found.manyhot_lstm_room(ctypes.byref(call)))
    call.room = room.data_ptr()
    found.manyhot_lstm(ctypes.byref(call))


@functools.cache
def _library() -> Any:
    found = library.load_for("LSTM")
    found.manyhot_lstm.argtypes = found.manyhot_lstm_room.argtypes = [ctypes.POINTER(Layer)]
    found.manyhot_lstm.restype = None
    found.manyhot_lstm_room.restype = found.manyhot_lstm_size.restype = ctypes.c_int64
    if found.manyhot_lstm_size() != ctypes.sizeof(Layer):
        raise RuntimeError("LSTM: the native engine is of another version; build it with `python hatch_build.py`.")
    return found
