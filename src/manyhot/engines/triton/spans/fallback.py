"""The functions of the Triton engine for spans in plain torch, by tiles: for calls whose launch failed.

Arguments and results are those of the engine, so that a forward pass by kernels can be followed by a plain backward.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.plain_spans import tiles
from manyhot.engines.plain_spans.terms import SpanParts, SpanTerms, span_gradient, span_sides
from manyhot.engines.terms import LogSum
from manyhot.engines.triton.spans.plans import SpanPlan
from manyhot.engines.triton.spans.workspace import Memory, SpanCells
from manyhot.labels.sparse import rows_of_entries


def _terms(parts: SpanParts, cells: SpanCells) -> SpanTerms:
    """The same cells for the plain form: row, type, first and last token of each listed cell."""
    indices, tokens = cells.indices, parts.num_tokens
    rows = rows_of_entries(cells.offsets, indices.shape[0])
    places = (rows, indices // tokens**2, indices // tokens % tokens, indices % tokens)
    return SpanTerms(cells.lengths, cells.triangle, *places, cells.values, cells.smoothing)


def sides(parts: SpanParts, cells: SpanCells, *, clear: bool = False) -> tuple[LogSum, LogSum, Memory]:
    """``(pos, neg)``, float32 ``[B, H]``, and memory of the same size as the engine's."""
    with torch.autocast(parts.q.device.type, enabled=False):
        pos, neg, _ = span_sides(parts, _terms(parts, cells), tiles)
    return pos, neg, SpanPlan(parts, cells).memory(cells, clear=True)


def gradient(
    parts: SpanParts,
    cells: SpanCells,
    sums: tuple[LogSum, LogSum],
    grads: tuple[Tensor, Tensor],
    memory: Memory,
) -> SpanParts:
    """Gradients of the parts, in their types."""
    made = span_gradient(parts, _terms(parts, cells), tiles, sums, grads, (None, None))
    q, k, u, v = (None if grad is None else grad.to(parts.q.dtype) for grad in made[:4])
    return SpanParts(q, k, u, v, parts.scale)  # type: ignore[arg-type]


def loss(parts: SpanParts, cells: SpanCells, threshold: float, reduction: str) -> tuple[Tensor, Memory]:
    """The reduced loss, a float32 scalar, and the sums with their gradients for ``loss_gradient``."""
    pos, neg, _ = sides(parts, cells)
    share = 1.0 if reduction == "sum" else 1.0 / pos.rest.numel()
    above = pos.value + threshold, neg.value - threshold
    values = sum(torch.nn.functional.softplus(side, threshold=40.0) for side in above)
    assert isinstance(values, Tensor)
    pulls = [torch.sigmoid(side) * share for side in above]
    state = torch.stack([*pos, *neg, *pulls, torch.ones_like(values), values * share]).flatten(1)
    return state[7].sum(), (state,)


def loss_gradient(parts: SpanParts, cells: SpanCells, grad: Tensor, memory: Memory) -> SpanParts:
    """Gradients of the parts, in their types, given that of the loss; the first memory holds the sums and their gradients."""
    shape = (6, parts.q.shape[0], parts.num_types)
    pos_shift, pos_rest, neg_shift, neg_rest, by_pos, by_neg = memory[0].flatten()[: shape[1] * shape[2] * 6].reshape(shape)
    sums = LogSum(pos_shift, pos_rest), LogSum(neg_shift, neg_rest)
    return gradient(parts, cells, sums, (by_pos * grad, by_neg * grad), ())
