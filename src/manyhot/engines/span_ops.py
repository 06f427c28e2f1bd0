"""The Triton engine for spans as registered torch operators, which ``torch.compile`` does not trace into.

In eager mode the engine is called directly, which is cheaper.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines.plain_spans.terms import SpanParts
from manyhot.engines.terms import LogSum
from manyhot.engines.triton.spans import engine as triton_span_engine
from manyhot.engines.triton.spans.plans import empty_gradients
from manyhot.engines.triton.spans.workspace import Memory, SpanCells

_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor? u, Tensor? v, float scale,"
    " Tensor lengths, bool triangle, Tensor indices, Tensor offsets, Tensor? values, float smoothing"
)
_LIBRARY: Any = torch.library.Library("manyhot", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(f"span_sides({_ARGUMENTS}) -> Tensor[]")
_LIBRARY.define(f"span_gradient({_ARGUMENTS}, Tensor[] sums, Tensor[] memory) -> Tensor[]")


def sides(parts: SpanParts, cells: SpanCells) -> tuple[LogSum, LogSum, Memory]:
    """``triton_span_engine.sides`` as an operator."""
    out = torch.ops.manyhot.span_sides(*parts, *cells)
    return LogSum(*out[:2]), LogSum(*out[2:4]), tuple(out[4:])


def gradient(
    parts: SpanParts, cells: SpanCells, sums: tuple[LogSum, LogSum], grads: tuple[Tensor, Tensor], memory: Memory
) -> SpanParts:
    """``triton_span_engine.gradient`` as an operator."""
    out = torch.ops.manyhot.span_gradient(*parts, *cells, [*sums[0], *sums[1], *grads], list(memory))
    u, v = (out[2], out[3]) if parts.u is not None else (None, None)
    return SpanParts(out[0], out[1], u, v, parts.scale)


def _run_sides(*arguments: Any) -> list[Tensor]:
    pos, neg, memory = triton_span_engine.sides(SpanParts(*arguments[:5]), SpanCells(*arguments[5:]), clear=True)
    # The results of an operator may not share memory, and must be reproducible.
    return [part.clone() for part in (*pos, *neg)] + list(memory)


def _run_gradient(*arguments: Any) -> list[Tensor]:
    *inputs, sums, memory = arguments
    pair, grads = (LogSum(*sums[:2]), LogSum(*sums[2:4])), (sums[4], sums[5])
    made = triton_span_engine.gradient(SpanParts(*inputs[:5]), SpanCells(*inputs[5:]), pair, grads, tuple(memory))
    return [part for part in made[:4] if part is not None]


def _fake_sides(*arguments: Any) -> list[Tensor]:
    parts, cells = SpanParts(*arguments[:5]), SpanCells(*arguments[5:])
    sizes = zip(triton_span_engine.memory_sizes(parts, cells), (torch.int32, torch.float32), strict=True)
    sums = [parts.q.new_empty((parts.q.shape[0], parts.num_types), dtype=torch.float32) for _ in range(4)]
    return sums + [parts.q.new_empty(size, dtype=dtype) for size, dtype in sizes]


def _fake_gradient(*arguments: Any) -> list[Tensor]:
    parts, cells = SpanParts(*arguments[:5]), SpanCells(*arguments[5:11])
    return [part for part in empty_gradients(parts, cells)[:4] if part is not None]


for _key in ("CUDA", "CPU"):
    _LIBRARY.impl("span_sides", _run_sides, _key)
    _LIBRARY.impl("span_gradient", _run_gradient, _key)
torch.library.register_fake("manyhot::span_sides", _fake_sides, lib=_LIBRARY)
torch.library.register_fake("manyhot::span_gradient", _fake_gradient, lib=_LIBRARY)
