"""The Triton engine for span scores: host side. Three launches compute the sums (one of them for the lists), one computes the
gradient.

Parts are float32, bfloat16 or float16 on a CUDA device (or, with TRITON_INTERPRET=1 set before the first import, float32 on
the CPU). Nothing waits for the device, no ``[B, H, T, T]`` or ``[B, T, T]`` tensor is made, and every output has one writer.
Float32 products are computed as three tf32 products each, which keeps the precision of float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.plain_spans.terms import SpanParts
from manyhot.engines.readable import is_readable
from manyhot.engines.terms import LogSum
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton.launch.gate import falls_back_to, interpreted
from manyhot.engines.triton.reductions import launch_sum
from manyhot.engines.triton.spans import fallback
from manyhot.engines.triton.spans.plans import SpanPlan, planned
from manyhot.engines.triton.spans.replay import Block, remember_loss, remember_pulls
from manyhot.engines.triton.spans.workspace import Kept, Memory, SpanCells

HEAD_SIZES = 128
# The most pairs of threshold and reduction that are replayed per layout.
MOST_KINDS = 64


def available(device: int | None = None) -> tuple[bool, str]:
    """Whether the engine can be used (on CUDA device number ``device``, if given), and if not, why."""
    return triton_engine.available(device)


def supports(parts: SpanParts, *others: Tensor) -> bool:
    """Whether this engine can serve these parts, labels and lengths."""
    place = "cpu" if interpreted() else "cuda"
    tensors = [part for part in parts[:4] if part is not None]
    return (
        all(part.dtype in triton_engine.SCORES and part.numel() > 0 for part in tensors)
        and all(tensor.device.type == place for tensor in (*tensors, *others))
        and parts.q.shape[-1] <= HEAD_SIZES
        and parts.num_tokens < 1 << 15
    )


@falls_back_to(fallback.sides)
def sides(parts: SpanParts, cells: SpanCells, *, clear: bool = False) -> tuple[LogSum, LogSum, Memory]:
    """``(pos, neg)``, float32 ``[B, H]``, and the memory to save for backward; ``clear`` zeroes it first."""
    plan, parts = planned(parts, cells)
    out = torch.empty((4, *plan.shape), dtype=torch.float32, device=parts.q.device)
    memory, _ = plan.fill(parts, cells, out, clear=clear)
    pos_shift, pos_rest, neg_shift, neg_rest = out.unbind()
    return LogSum(pos_shift, pos_rest), LogSum(neg_shift, neg_rest), memory


@falls_back_to(fallback.loss)
def loss(parts: SpanParts, cells: SpanCells, threshold: float, reduction: str) -> tuple[Tensor, Memory]:
    """The sum or mean over rows and types of ``log(1 + e^{pos + s0}) + log(1 + e^{neg - s0})``, a float32 scalar, and what to
    save for ``loss_gradient``."""
    plan, parts = planned(parts, cells)
    share = 1.0 if reduction == "sum" else 1.0 / plan.problems
    kind = (threshold, share, cells.indices.shape[0] > 0)
    replay = plan.losses.get(kind)
    again = None if replay is None else replay.run(plan, parts, cells)
    if again is not None:
        return again[0], (again[1],)
    state = torch.empty((8, plan.problems), dtype=torch.float32, device=parts.q.device)
    _, kept = plan.fill(parts, cells, state, threshold, share)
    value, summed = launch_sum(state[7], 1.0)
    if kind not in plan.losses:
        if len(plan.losses) >= MOST_KINDS:
            plan.losses.clear()
        plan.losses[kind] = remember_loss(plan, parts, cells, state, kept, (threshold, share), summed)
    return value, (state, *kept)


def memory_sizes(parts: SpanParts, cells: SpanCells) -> tuple[int, int]:
    """How many int32 and float32 ``sides`` keeps for ``gradient``."""
    return SpanPlan(parts, cells).memory_sizes(cells.indices.shape[0])


@falls_back_to(fallback.gradient)
def gradient(
    parts: SpanParts, cells: SpanCells, sums: tuple[LogSum, LogSum], grads: tuple[Tensor, Tensor], memory: Memory
) -> SpanParts:
    """Gradients of the parts, in their types, given the sums ``[B, H]`` and their gradients."""
    plan, parts = planned(parts, cells)
    state = torch.stack([*sums[0], *sums[1], *grads, torch.ones_like(grads[0])])
    return plan.pulls(parts, cells, state, plan.cut(memory, cells))


@falls_back_to(fallback.loss_gradient)
def loss_gradient(parts: SpanParts, cells: SpanCells, grad: Tensor, memory: Memory) -> SpanParts:
    """Gradients of the parts, in their types, given the gradient of the loss."""
    plan, parts = planned(parts, cells)
    listed = cells.indices.shape[0]
    replay = plan.gradients.get(listed > 0)
    if len(memory) > 1:
        state, kept = memory[0], Kept(*memory[1:])
    else:
        made: SpanParts | None = None
        if replay is not None and is_readable(grad) and grad.get_device() == parts.q.get_device():
            made = replay.run(plan, parts, cells, grad, memory[0])
        if made is not None:
            return made
        state, kept = Block(plan).views(plan, memory[0], listed)
    # Through ``data``, so that autograd does not see a change of a saved tensor; another backward overwrites it.
    state.data[6, :1].copy_(grad)
    outs = plan.pulls(parts, cells, state, kept)
    if (listed > 0) not in plan.gradients:
        plan.gradients[listed > 0] = remember_pulls(plan, parts, cells, state, kept, outs)
    return outs
