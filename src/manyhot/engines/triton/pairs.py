"""Two predictions of the same rows at once: host side."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from manyhot.engines import plain
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton.bitmask import can_use_bitmask, use_bitmask
from manyhot.engines.triton.calls import Call, as_matrix, is_ragged, new_grad, new_rows, per_row, type_of
from manyhot.engines.triton.launch.gate import falls_back_to
from manyhot.engines.triton.piece_plans import takes_steps
from manyhot.engines.triton.plans import COUNTER_STRIDE, adds_up
from manyhot.engines.triton.reductions import total
from manyhot.engines.triton.replay import workspace_for


@falls_back_to(plain.rdrop)
def rdrop(
    a: Tensor,
    b: Tensor,
    terms: DenseTerms | SparseTerms | None,
    where: Tensor | None = None,
    *,
    alpha: float = 1.0,
    link: float = 1.0,
    row_scale: Tensor | float = 1.0,
    whole: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Two predictions ``[R, L]`` of the same rows at once: the mean of both losses, and their divergence.

    With ``p = sigma(link a)`` and ``q = sigma(link b)`` the values are ``(zlpr(a) + zlpr(b)) / 2 + alpha sum_i (p_i - q_i)
    link (a_i - b_i)``. Without ``terms`` the losses are left out, and ``where`` says which entries count; otherwise the
    terms do.

    Returns:
        ``(values, grad_a, grad_b)``: float32 ``[R]``, not scaled, or with ``whole`` their sum times ``row_scale``; then
        ``row_scale d values / d a`` and ``/ d b`` in their type, with ``whole`` as two views of one tensor.
    """
    from manyhot.engines.triton.rows.rdrop import rdrop_kernel

    call = Call(a, DenseTerms(a, where) if terms is None else terms, "rdrop")
    b, layout, losses = as_matrix(b, a), call.layout, terms is not None
    plan, programs = layout.plan, layout.programs
    chunks = plan.chunks
    merged = losses and chunks > 1
    waits = merged and plan.kernel == "waiting"
    partial = a.new_empty((9, a.shape[0], chunks), dtype=torch.float32) if merged else None
    arrived = a.new_zeros(a.shape[0] * COUNTER_STRIDE, dtype=torch.int32) if waits else None
    added = ended = None
    if whole and losses and (waits or not merged) and adds_up(plan, programs):
        ended, added = workspace_for(a, programs // chunks), a.new_empty((), dtype=torch.float32)
        values = ended[COUNTER_STRIDE : COUNTER_STRIDE + programs // chunks].view(torch.float32)
    else:
        values = new_rows(a) if losses or chunks == 1 else a.new_empty((a.shape[0], chunks), dtype=torch.float32)
    # An operator may not return two views of one tensor.
    grad_a, grad_b = a.new_empty((2, *a.shape)).unbind() if whole else (new_grad(a), new_grad(a))
    scales, scale_number = per_row(row_scale)
    numbers = (b.stride(0), scale_number, *call.numbers, float(alpha), float(link))
    which, unit = int(link) if link in (1, 2) else 0, math.gcd(layout.unit, b.stride(0))
    labels, *kinds = layout.kinds
    if losses and layout.lean and can_use_bitmask(call, b):
        use_bitmask(call)
        labels = "bits"
    steps = takes_steps(a.shape[1], score_bytes=a.element_size(), lean=layout.lean)
    ragged = not steps and is_ragged(call, b)
    scaled, total_kind = "number" if scales is None else "rows", "none" if added is None else "sum"
    for stage in ("sums", "gradient") if merged and not waits else ("fused",):
        constants = (losses, labels, layout.lean, *kinds, scaled, which, stage, layout.even)
        cut = (chunks, 1 << (chunks - 1).bit_length(), plan.segment, plan.rows, plan.block, unit, ragged, total_kind, steps)
        rows = (b, scales, partial, arrived, values, grad_a, grad_b, added, ended)
        key = (losses, which, stage, type_of(scales), b.stride(0), ragged, labels, total_kind)
        call.start(key, lambda _: (rdrop_kernel, (*constants, *cut)), rows, numbers)  # noqa: B023
    if added is None:
        values = values if values.ndim == 1 else values.sum(dim=1)
        added = total(values, row_scale) if whole else values
    return added, grad_a, grad_b
