"""The Triton engine: host side. It computes what ``manyhot.engines.terms`` defines.

A call goes through these stages: this file (what to compute) -> ``replay`` (a call like an earlier one?) -> ``calls`` (tensors
and layout) -> ``plans`` (how rows are divided) -> ``launch`` (Triton and the driver, behind a gate). If a launch fails, the
function that was called uses its plain form.

Scores are ``x [R, L]`` in float32, bfloat16 or float16 on a CUDA device (or, with TRITON_INTERPRET=1 set before the first
import, in float32 on the CPU). No call waits for the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines import plain
from manyhot.engines.again import Again
from manyhot.engines.terms import INF, DenseTerms, LogSum, SparseTerms
from manyhot.engines.triton import plans
from manyhot.engines.triton.calls import Call, chunk_memory, new_grad, new_rows
from manyhot.engines.triton.half import half_finish as half_finish
from manyhot.engines.triton.half import half_fused as half_fused
from manyhot.engines.triton.half import half_repeats as half_repeats
from manyhot.engines.triton.half import half_rewrite as half_rewrite
from manyhot.engines.triton.labelwise import labelwise as labelwise
from manyhot.engines.triton.launch.gate import falls_back_to, refusal
from manyhot.engines.triton.launch.gate import interpreted as interpreted
from manyhot.engines.triton.overlap import dice as dice
from manyhot.engines.triton.overlap import overlap as overlap
from manyhot.engines.triton.overlap import overlap_gradient as overlap_gradient
from manyhot.engines.triton.pairs import rdrop as rdrop
from manyhot.engines.triton.plans import COUNTER_STRIDE, adds_up
from manyhot.engines.triton.reductions import SMALL, launch_sum
from manyhot.engines.triton.reductions import scale_ as scale_
from manyhot.engines.triton.reductions import total as total
from manyhot.engines.triton.replay import REPLAYS, relaunch, remember, replay_key, workspace_for

SCORES = (torch.float32, torch.bfloat16, torch.float16)
# Float16 gradients are finished by ``half_fused`` and ``half_finish``.
FINISHES_HALF = True
# Dice loss is computed by ``overlap``, ``overlap_gradient`` and ``dice``.
SUMS_OVERLAP = True


def available(device: int | None = None) -> tuple[bool, str]:
    """Whether the engine can be used (on CUDA device number ``device``, if given), and if not, why."""
    reason = refusal(device)
    return not reason, reason


def supports(x: Tensor, terms: DenseTerms | SparseTerms) -> bool:
    """Whether this engine can serve scores ``x`` with ``terms``."""
    cuda = x.is_cuda
    if x.dtype not in SCORES or cuda == interpreted():
        return False
    for field in terms:
        if field is not None and type(field) is not float and isinstance(field, Tensor) and field.is_cuda != cuda:
            return False
    return True


@falls_back_to(plain.sides)
def sides(x: Tensor, terms: DenseTerms | SparseTerms) -> tuple[LogSum, LogSum]:
    """``terms.sides(x)``: ``(pos, neg)``, float32 ``[R]``."""
    call = Call(x, terms, "sides")
    partial = x.new_empty((x.shape[0], call.layout.plan.chunks, 4), dtype=torch.float32)
    call.launch("none", partial=partial)
    return _merge(partial[..., 0], partial[..., 1]), _merge(partial[..., 2], partial[..., 3])


def _merge(top: Tensor, total: Tensor) -> LogSum:
    """Merge the log-sums of a row's chunks."""
    if top.shape[1] == 1:
        return _log_sum(top[:, 0], total[:, 0])
    highest = torch.where(total == 0, -INF, top).amax(dim=1)
    highest = torch.where(highest == -INF, 0.0, highest)
    apart = torch.where(top == highest.unsqueeze(1), 0.0, top - highest.unsqueeze(1))
    return _log_sum(highest, torch.where(total == 0, 0.0, total * torch.exp(apart)).sum(dim=1))


def _log_sum(top: Tensor, total: Tensor) -> LogSum:
    infinite = top == INF
    return LogSum(torch.where(infinite, 0.0, top), torch.where(infinite, INF, total.log()))


@falls_back_to(plain.gradient)
def gradient(
    x: Tensor, terms: DenseTerms | SparseTerms, pos: LogSum, neg: LogSum, grad_pos: Tensor, grad_neg: Tensor
) -> Tensor:
    """``terms.gradient(x, pos, neg, grad_pos, grad_neg)`` in the type of ``x``."""
    call = Call(x, terms, "gradient")
    parts = []
    for side in (pos, neg):
        infinite = side.rest == INF
        parts += [torch.where(infinite, INF, side.shift), torch.where(infinite, 1.0, side.rest.exp())]
    grad = new_grad(x)
    pulls = grad_pos.contiguous(), grad_neg.contiguous()
    call.launch("none", grad_pos=pulls[0], grad_neg=pulls[1], out_grad=grad, state=torch.stack(parts))
    return grad


@falls_back_to(plain.fused)
def fused(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    form: str = "split",
    offset: Tensor | float = 0.0,
    row_scale: Tensor | float = 1.0,
    *,
    whole: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """``(values, grad, offset_grad)`` in one pass; see ``manyhot.engines.native.engine.fused``."""
    kind = replay_key(x, terms, form, offset, row_scale) if whole else None
    again = None if kind is None else relaunch(kind[0], x, kind[1])
    return _fuse(x, terms, form, offset, row_scale, kind, whole=whole) if again is None else (*again, None)


def _fuse(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    form: str,
    offset: Tensor | float,
    row_scale: Tensor | float,
    kind: tuple[Any, list[Tensor]] | None,
    *,
    whole: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """``fused`` for the first call of a kind, and for calls that are not replayed."""
    plainly = form == "split" and not isinstance(offset, Tensor) and offset == 0
    if not isinstance(row_scale, Tensor) and row_scale < 0:
        row_scale = x.new_full((x.shape[0],), row_scale, dtype=torch.float32)
    call = Call(x, terms, "fused", wordwise=True, plainly=plainly)
    num_rows, chunks, programs = x.shape[0], call.layout.plan.chunks, call.layout.programs
    slope = new_rows(x) if isinstance(offset, Tensor) else None
    added = ended = None
    how = "none"
    if whole and adds_up(call.layout.plan, programs):
        ended = workspace_for(x, programs // chunks)
        values = ended[COUNTER_STRIDE : COUNTER_STRIDE + programs // chunks].view(torch.float32)
        added = x.new_empty((), dtype=torch.float32)
        how = "mean" if not isinstance(row_scale, Tensor) and row_scale == 1.0 / num_rows else "sum"
    else:
        values = new_rows(x)
    grad = new_grad(x)
    partial, arrived = chunk_memory(x, chunks)
    launched = call.launch(
        form,
        offset=offset,
        row_scale=row_scale,
        out_value=values,
        out_slope=slope,
        out_grad=grad,
        partial=partial,
        arrived=arrived,
        out_total=added,
        ended=ended,
        total=how,
    )
    if not whole:
        return values, grad, slope
    summing = None
    if added is None:
        added, summing = launch_sum(values, row_scale)
    if kind is not None and (how != "none" or summing is not None):
        remember(kind[0], call, kind[1], x, launched, summing)
    return added, grad, slope


def repeats(x: Tensor, terms: DenseTerms | SparseTerms, form: str, offset: float, scale: Tensor | float) -> Again | None:
    """``fused`` with ``whole`` for other tensors of the same kind; see ``manyhot.engines.registry.Engine``."""
    kind = replay_key(x, terms, form, offset, scale)
    replay = None if kind is None or not x.is_contiguous() else REPLAYS.get(kind[0])
    if replay is None:
        return None
    if isinstance(terms, DenseTerms) and not terms.labels.is_contiguous():
        return None
    return Again(replay.repeater(lists=isinstance(terms, SparseTerms)), None if x.numel() <= SMALL else scale_)


def can_fuse(x: Tensor) -> bool:
    """Whether ``fused`` can serve ``x``: programs that wait for each other need a device that runs them at once."""
    return not (interpreted() and x.shape[1] > plans.SEGMENT)
