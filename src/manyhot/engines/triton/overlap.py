"""The overlap of probabilities and labels, from which dice loss is computed: host side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines import plain
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton.bitmask import can_use_bitmask, use_bitmask
from manyhot.engines.triton.calls import Call, Kernel, is_ragged, new_grad, new_rows, per_row, type_of
from manyhot.engines.triton.launch.gate import falls_back_to
from manyhot.engines.triton.plans import COUNTER_STRIDE, adds_up
from manyhot.engines.triton.reductions import total
from manyhot.engines.triton.replay import workspace_for

Terms = DenseTerms | SparseTerms


@falls_back_to(plain.overlap)
def overlap(x: Tensor, terms: Terms, *, squared: bool) -> tuple[Tensor, Tensor]:
    """``(apart, size)``, float32 ``[R]``: the distance of probabilities from labels, and the sum of their sizes."""
    call = Call(x, terms, _stage(squared))
    sums = x.new_empty((x.shape[0], call.layout.plan.chunks, 2), dtype=torch.float32)
    _launch(call, "sums", squared, state=sums)
    apart, size = sums.sum(dim=1).unbind(1) if sums.shape[1] > 1 else sums[:, 0].unbind(1)
    return apart, size


@falls_back_to(plain.overlap_gradient)
def overlap_gradient(x: Tensor, terms: Terms, by_apart: Tensor, by_size: Tensor, *, squared: bool) -> Tensor:
    """The gradient by ``x`` in its type, from the derivatives by both sums of each row."""
    grad = new_grad(x)
    state = torch.stack((by_apart, by_size)).to(torch.float32)
    _launch(Call(x, terms, _stage(squared)), "gradient", squared, state=state, grad=grad)
    return grad


@falls_back_to(plain.dice)
def dice(
    x: Tensor, terms: Terms, *, squared: bool, epsilon: float, row_scale: Tensor | float = 1.0, whole: bool = False
) -> tuple[Tensor, Tensor]:
    """``(values, grad)`` of dice loss in one pass: float32 ``[R]``, not scaled, or with ``whole`` their sum times
    ``row_scale``; and ``row_scale d values / d x`` in the type of ``x``."""
    call = Call(x, terms, _stage(squared))
    plan, programs = call.layout.plan, call.layout.programs
    if plan.chunks > 1 and plan.kernel != "waiting":
        apart, size = overlap(x, terms, squared=squared)
        share = 1.0 / (size + epsilon)
        values = apart * share
        by_apart = share * row_scale
        grad = overlap_gradient(x, terms, by_apart, -values * by_apart, squared=squared)
        return total(values, row_scale) if whole else values, grad
    grad, state, arrived, added, ended = new_grad(x), None, None, None, None
    if plan.chunks > 1:
        state = x.new_empty((x.shape[0], plan.chunks, 2), dtype=torch.float32)
        arrived = x.new_zeros(x.shape[0] * COUNTER_STRIDE, dtype=torch.int32)
    if whole and adds_up(plan, programs):
        ended, added = workspace_for(x, programs // plan.chunks), x.new_empty((), dtype=torch.float32)
        values = ended[COUNTER_STRIDE : COUNTER_STRIDE + programs // plan.chunks].view(torch.float32)
    else:
        values = new_rows(x)
    _launch(call, "fused", squared, epsilon, row_scale, state, arrived, values, grad, added, ended)
    if added is None:
        added = total(values, row_scale) if whole else values
    return added, grad


def _stage(squared: bool) -> str:
    """The stage, which decides how rows are divided."""
    return "squares" if squared else "overlap"


def _launch(
    call: Call,
    stage: str,
    squared: bool,
    epsilon: float = 0.0,
    row_scale: Tensor | float = 1.0,
    state: Tensor | None = None,
    arrived: Tensor | None = None,
    values: Tensor | None = None,
    grad: Tensor | None = None,
    added: Tensor | None = None,
    ended: Tensor | None = None,
) -> None:
    """Launch the kernel of a stage over all tiles."""
    layout = call.layout
    scales, scale_number = per_row(row_scale)
    marked = can_use_bitmask(call)
    if marked:
        use_bitmask(call)
    ragged = layout.hard and is_ragged(call)

    def kernel(_: Any) -> Kernel:
        from manyhot.engines.triton.rows.overlap import overlap_kernel

        labels, *others = layout.kinds
        plan = layout.plan
        scaled = "number" if scales is None else "rows"
        kinds = (squared, "bits" if marked else labels, layout.hard, *others, scaled, stage, layout.even)
        sizes = (plan.chunks, 1 << (plan.chunks - 1).bit_length(), plan.segment, plan.rows, plan.block, layout.unit)
        return overlap_kernel, (*kinds, *sizes, ragged, "none" if added is None else "sum")

    numbers = (scale_number, *call.numbers, float(epsilon))
    rows = (scales, state, arrived, values, grad, added, ended)
    call.start((stage, squared, ragged, marked, type_of(scales), added is None), kernel, rows, numbers)
