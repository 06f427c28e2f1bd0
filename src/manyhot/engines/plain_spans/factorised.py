"""Span sums of the shared form as two skinny matrix products, in plain torch.

With ``s_a(i, j) = S_ij + u_a(i) + v_a(j)``, ``m_i = max_j S_ij``, ``c_a = max_j v_a(j)``, ``E_ij = e^{S_ij - m_i}`` and
``V_ja = e^{v_a(j) - c_a}``, the sum over the last tokens of row i is, for all types at once,

    R_a(i) = log (E V)_ia + m_i + c_a + u_a(i)

so a cell costs one exponential instead of H. Grid rows of a type that contain listed cells are left out of the products and
summed directly, with those cells masked (*repair*): nothing is subtracted. Backward, with
``U_ia = g_a e^{u_a(i) + m_i + c_a} / sum_a``: ``dS = E o (U V^T)``, ``du = U o (E V)``, ``dv = V o (E^T U)``, plus the repaired
rows.

*Guard.* In ``E V`` cells underflow if their share is below tiny, the smallest normal number. The error is at most
``T^2 tiny e^G`` with ``G = max_i (m_i + u_a(i)) + c_a``. A (row, type) is computed by tiles if that could be significant
compared with its total. The test compares with the sum itself, so it holds for every loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.engines.plain_spans import tiles as span_tiles
from manyhot.engines.plain_spans.terms import Chunk, SpanParts, SpanTerms, chunks, load_chunk, sum_by_problem
from manyhot.engines.terms import INF, LogSum

BLOCK_ROWS = 128
CPU_ELEMENTS = 1 << 18
GPU_ELEMENTS = 1 << 26


class SpanBlock(NamedTuple):
    """A block of first tokens of some rows: ``ratios [b, m, n]`` is E, 0 where a cell does not count; ``weights [b, h, n]``
    is V; ``sums [b, h, m]`` is E V; ``shift [b, h, m]`` is m + c + u, ``-inf`` in repaired rows."""

    batch: slice
    rows: slice
    columns: slice
    chunk: Chunk
    ratios: Tensor
    weights: Tensor
    sums: Tensor
    shift: Tensor
    repairs: Repairs | None


class Repairs(NamedTuple):
    """Rows of the grid that contain listed cells: their places, each ``[K]``, and ``scores [K, n]`` with the listed cells
    masked.

    A grid row with several listed cells comes several times; all but the first copy are ``-inf`` throughout.
    """

    rows: Tensor
    types: Tensor
    first: Tensor
    scores: Tensor


def log_sum(parts: SpanParts, terms: SpanTerms, sign: float) -> tuple[LogSum, Tensor]:
    """``log sum e^{sign s}`` over counted, unlisted cells, ``[B, H]``, and which of these sums were computed by tiles."""
    shift = torch.zeros(parts.q.shape[0], parts.num_types, dtype=parts.dtype, device=parts.q.device)
    total = LogSum(shift, torch.full_like(shift, -INF))
    bound = torch.full_like(shift, -INF)
    for block in _blocks(parts, terms, sign):
        batch = block.batch
        bound[batch] = torch.maximum(bound[batch], block.shift.amax(dim=2))
        sums = LogSum(shift[batch], total.rest[batch]).merge(joined_rows(block.sums.log() + block.shift))
        if block.repairs is not None:
            own = block.repairs.scores.logsumexp(dim=1)
            at = (block.repairs.rows, block.repairs.types)
            sums = sums.merge(sum_by_problem(own, torch.ones_like(own), *at, (len(sums.rest), parts.num_types)))
        shift[batch], total.rest[batch] = sums
    kind = torch.finfo(shift.dtype)
    room = 2 * math.log(max(parts.num_tokens, 1)) + math.log(kind.tiny) - math.log(kind.eps)
    unsafe = bound + room > total.value
    for row, types, sub_parts, sub_terms in _unsafe(parts, terms, unsafe):
        sums = span_tiles.log_sum(sub_parts, sub_terms, sign)[0]
        shift[row, types], total.rest[row, types] = sums.shift[0], sums.rest[0]
    return total, unsafe


def joined_rows(x: Tensor) -> LogSum:
    """``log sum e^x`` over the last axis."""
    shift = _finite(x.amax(dim=-1))
    return LogSum(shift, torch.exp(x - shift.unsqueeze(-1)).sum(dim=-1).log())


def add_gradient(
    parts: SpanParts, terms: SpanTerms, sign: float, shift: Tensor, factor: Tensor, memory: Tensor | None, out: SpanParts
) -> None:
    """Add the gradient of the parts to ``out``; the gradient of each cell's score is ``sign factor e^{sign s - shift}``."""
    assert memory is not None
    u, v = out.ends()
    safe_shift = shift.masked_fill(memory, INF)
    for block in _blocks(parts, terms, sign):
        batch, rows, columns = block.batch, block.rows, block.columns
        lift = torch.exp(block.shift - safe_shift[batch, :, None]) * factor[batch, :, None]
        raw_grad = (lift.mT @ block.weights).mul_(block.ratios)
        u[batch, :, rows] += sign * lift * block.sums
        v[batch, :, columns] += sign * block.weights * (lift @ block.ratios)
        if block.repairs is not None:
            at, types, first, scores = block.repairs
            own = torch.exp(scores - safe_shift[batch][at, types, None]) * factor[batch][at, types, None]
            raw_grad.index_put_((at, first - rows.start), own, accumulate=True)
            u[batch].index_put_((at, types, first), sign * own.sum(dim=1), accumulate=True)
            v[batch, :, columns].index_put_((at, types), sign * own, accumulate=True)
        out.q[batch, rows] += (raw_grad @ block.chunk.k[:, columns]) * (sign * parts.scale)
        out.k[batch, columns] += raw_grad.mT @ block.chunk.q[:, rows]
    for row, types, sub_parts, sub_terms in _unsafe(parts, terms, memory):
        part = sub_parts.zeros()
        sub_shift, sub_factor = shift[row, types].unsqueeze(0), factor[row, types].unsqueeze(0)
        span_tiles.add_gradient(sub_parts, sub_terms, sign, sub_shift, sub_factor, None, part)
        out.q[row] += part.q[0]
        out.k[row] += part.k[0]
        for whole, piece in zip(out.ends(), part.ends(), strict=True):
            whole[row, types] += piece[0]


def _blocks(parts: SpanParts, terms: SpanTerms, sign: float) -> Iterator[SpanBlock]:
    """The grid in blocks of first tokens, all types together."""
    budget = CPU_ELEMENTS if parts.q.device.type == "cpu" else GPU_ELEMENTS
    tokens = parts.num_tokens
    per_row = max(min(BLOCK_ROWS, tokens), parts.num_types) * tokens
    leader = _leaders(parts, terms)
    for batch in chunks(parts.q.shape[0], per_row, budget):
        chunk = load_chunk(parts, terms, sign, batch, slice(0, parts.num_types))
        u, v = chunk.ends()
        size = chunk.real.shape[1]
        if size == 0:
            continue
        highest = _finite(v.amax(dim=2, keepdim=True))
        weights = torch.exp(v - highest)
        for start in range(0, size, BLOCK_ROWS):
            left = start if terms.triangle else 0
            rows, columns = slice(start, min(start + BLOCK_ROWS, size)), slice(left, size)
            raw = chunk.q[:, rows] @ chunk.k[:, columns].mT
            span_tiles.hide_uncounted_(raw, chunk, rows, columns, triangle=terms.triangle)
            tops = _finite(raw.amax(dim=2))
            ratios = torch.exp(raw - tops.unsqueeze(2))
            here = weights[:, :, columns]
            shift = u[:, :, rows] + highest + tops.unsqueeze(1)
            repairs = _repairs(terms, leader, chunk, raw, batch, rows, columns)
            if repairs is not None:
                shift[repairs.rows, repairs.types, repairs.first - start] = -INF
            yield SpanBlock(batch, rows, columns, chunk, ratios, here, here @ ratios.mT, shift, repairs)


def _finite(top: Tensor) -> Tensor:
    """The maximum to subtract; 0 where no cell counts."""
    return torch.where(top == -INF, 0.0, top)


def _leaders(parts: SpanParts, terms: SpanTerms) -> Tensor:
    """For each listed cell, the first listed cell of the same grid row; lists are sorted by (row, type, first, last)."""
    keys = (terms.rows * parts.num_types + terms.types) * parts.num_tokens + terms.first
    return torch.searchsorted(keys, keys)


def _repairs(
    terms: SpanTerms, leader: Tensor, chunk: Chunk, raw: Tensor, batch: slice, rows: slice, columns: slice
) -> Repairs | None:
    """The grid rows of the block that contain listed cells, with all their scores. Selecting entries waits for the device."""
    inside = (terms.rows >= batch.start) & (terms.rows < batch.stop) & (terms.first >= rows.start) & (terms.first < rows.stop)
    picked = inside.nonzero().squeeze(1)
    if picked.numel() == 0:
        return None
    u, v = chunk.ends()
    at, types, first = terms.rows[picked] - batch.start, terms.types[picked], terms.first[picked]
    scores = raw[at, first - rows.start] + u[at, types, first].unsqueeze(1) + v[at, types, columns]
    owner = torch.searchsorted(picked, leader[picked])
    scores[owner != torch.arange(len(owner), device=owner.device)] = -INF
    last = terms.last[picked] - columns.start
    seen = (last >= 0) & (last < scores.shape[1])
    scores[owner[seen], last[seen]] = -INF
    return Repairs(at, types, first, scores)


def _unsafe(parts: SpanParts, terms: SpanTerms, unsafe: Tensor) -> Iterator[tuple[int, Tensor, SpanParts, SpanTerms]]:
    """The types of each row that fail the guard, as a separate problem. Waits for the device."""
    u, v = parts.ends()
    for row in unsafe.any(dim=1).nonzero().squeeze(1).tolist():
        types = unsafe[row].nonzero().squeeze(1)
        one = slice(row, row + 1)
        sub_parts = SpanParts(parts.q[one], parts.k[one], u[one, types], v[one, types], parts.scale)
        yield row, types, sub_parts, terms.of_row(row, types)
