"""Span sums by tiles, in plain torch: the scores of a block of first tokens are computed, summed and dropped; backward
recomputes them.

In a tile ``s``, listed cells and cells that do not count are ``-inf``. The log-sum of the tile is added to the running total.
Backward, with ``W = g e^{s} / sum``: ``dq += W k``, ``dk += W^T q``, ``du += W 1``, ``dv += W^T 1``. The extra memory is one
tile, for any T and H.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.engines.plain_spans.terms import Chunk, SpanParts, SpanTerms, chunks, load_chunk
from manyhot.engines.terms import INF, LogSum

BLOCK_ROWS = 64
# A tile should fit in a core's cache; a GPU needs enough work to be busy.
CPU_ELEMENTS = 1 << 19
GPU_ELEMENTS = 1 << 25


class Tile(NamedTuple):
    """A block of the grid: ``scores [b, h, m, n]`` of the rows ``batch``, the types ``types``, the first tokens from
    ``first`` and the last tokens from ``last``; cells that do not count are ``-inf``."""

    scores: Tensor
    batch: slice
    types: slice
    first: int
    last: int
    chunk: Chunk

    @property
    def rows(self) -> slice:
        """The first tokens of the tile."""
        return slice(self.first, self.first + self.scores.shape[-2])

    @property
    def columns(self) -> slice:
        """The last tokens of the tile."""
        return slice(self.last, self.last + self.scores.shape[-1])


def score_tiles(parts: SpanParts, terms: SpanTerms, sign: float = 1.0) -> Iterator[Tile]:
    """Iterate over the grid in tiles of ``sign s``, with ``-inf`` where a cell does not count."""
    budget = CPU_ELEMENTS if parts.q.device.type == "cpu" else GPU_ELEMENTS
    per_problem = min(BLOCK_ROWS, parts.num_tokens) * parts.num_tokens
    for batch in chunks(parts.q.shape[0], per_problem * parts.num_types, budget):
        for types in chunks(parts.num_types, per_problem * (batch.stop - batch.start), budget):
            chunk = load_chunk(parts, terms, sign, batch, types)
            size = chunk.real.shape[1]
            for start in range(0, size, BLOCK_ROWS):
                left = start if terms.triangle else 0
                rows, columns = slice(start, min(start + BLOCK_ROWS, size)), slice(left, size)
                scores = _block(chunk, rows, columns)
                hide_uncounted_(scores, chunk, rows, columns, triangle=terms.triangle)
                yield Tile(scores, batch, types, start, left, chunk)


def _block(chunk: Chunk, rows: slice, columns: slice) -> Tensor:
    """The scores ``[b, h, m, n]`` of a block."""
    products = chunk.q[..., rows, :] @ chunk.k[..., columns, :].mT
    if chunk.u is None:
        return products
    u, v = chunk.ends()
    return (products.unsqueeze(1) + u[..., rows, None]).add_(v[..., None, columns])


def hide_uncounted_(scores: Tensor, chunk: Chunk, rows: slice, columns: slice, *, triangle: bool) -> None:
    """Set ``scores [b, ..., m, n]`` to ``-inf`` below the diagonal and at padding."""
    if triangle:
        width = rows.stop - rows.start
        below = torch.ones(width, width, dtype=torch.bool, device=scores.device).tril_(-1)
        scores[..., :width].masked_fill_(below, -INF)
    if chunk.padded:
        middle = (1,) * (scores.ndim - 3)
        scores.masked_fill_(~chunk.real[:, columns].reshape(len(scores), *middle, 1, -1), -INF)
        if not triangle:
            scores.masked_fill_(~chunk.real[:, rows].reshape(len(scores), *middle, -1, 1), -INF)


def hide_listed_(tile: Tile, terms: SpanTerms) -> None:
    """Set the listed cells of the tile to ``-inf``. Entries of other tiles write ``min(x, inf)``, which has no effect, because
    selecting entries would synchronise."""
    if terms.rows.numel() == 0 or tile.scores.numel() == 0:
        return
    place, inside = torch.zeros_like(terms.rows), torch.ones_like(terms.rows, dtype=torch.bool)
    starts = (tile.batch.start, tile.types.start, tile.first, tile.last)
    entries = (terms.rows, terms.types, terms.first, terms.last)
    for entry, start, size in zip(entries, starts, tile.scores.shape, strict=True):
        local = entry - start
        inside = inside & (local >= 0) & (local < size)
        place = place * size + local
    fill = torch.where(inside, -INF, INF).to(tile.scores.dtype)
    tile.scores.view(-1).scatter_reduce_(0, torch.where(inside, place, 0), fill, "amin")


def log_sum(parts: SpanParts, terms: SpanTerms, sign: float) -> tuple[LogSum, None]:
    """``log sum e^{sign s}`` over counted, unlisted cells, ``[B, H]``."""
    shift = torch.zeros(parts.q.shape[0], parts.num_types, dtype=parts.dtype, device=parts.q.device)
    total = LogSum(shift, torch.full_like(shift, -INF))
    for tile in score_tiles(parts, terms, sign):
        hide_listed_(tile, terms)
        top = tile.scores.amax(dim=(2, 3), keepdim=True)
        top.masked_fill_(top.isinf(), 0.0)
        rest = tile.scores.sub_(top).exp_().sum(dim=(2, 3)).log_()
        here = LogSum(*(part[tile.batch, tile.types] for part in total))
        for old, new in zip(here, here.merge(LogSum(top[:, :, 0, 0], rest)), strict=True):
            old.copy_(new)
    return total, None


def add_gradient(
    parts: SpanParts, terms: SpanTerms, sign: float, shift: Tensor, factor: Tensor, memory: Tensor | None, out: SpanParts
) -> None:
    """Add the gradient of the parts to ``out``; the gradient of each cell's score is ``sign factor e^{sign s - shift}``."""
    del memory  # tiles save nothing for backward
    for tile in score_tiles(parts, terms, sign):
        hide_listed_(tile, terms)
        batch, types, rows, columns = tile.batch, tile.types, tile.rows, tile.columns
        pull = tile.scores.sub_(shift[batch, types, None, None]).exp_().mul_(factor[batch, types, None, None])
        where: tuple[slice, ...] = (batch, types)
        if out.u is not None:
            u, v = out.ends()
            u[batch, types, rows] += pull.sum(dim=3) * sign
            v[batch, types, columns] += pull.sum(dim=2) * sign
            pull, where = pull.sum(dim=1), (batch,)
        out.q[(*where, rows)] += (pull @ tile.chunk.k[..., columns, :]) * (sign * parts.scale)
        out.k[(*where, columns)] += pull.mT @ tile.chunk.q[..., rows, :]
