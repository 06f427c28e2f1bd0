"""The parts of span scores, which cells count, and the two sides, given the sum over the cells that are not listed.

Axes: B rows, H types, T tokens, d head width, P listed spans. The score of type a at cell (i, j) of a row is
``scale q_a(i) . k_a(j)`` (typed) or ``scale q(i) . k(j) + u_a(i) + v_a(j)`` (shared). A cell counts if both tokens are real
and, with the triangle, i <= j. Listed cells are gathered one by one. All other cells share one weight; a ``Background``
(``tiles``, ``factorised``) computes their log-sum and its gradient without a ``[B, H, T, T]`` tensor. Listed cells are masked
in that sum, never subtracted from it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from manyhot.engines.terms import INF, LogSum, accumulation_dtype, segment_logsumexp, shares, soften


class SpanParts(NamedTuple):
    """``q, k``: ``[B, H, T, d]`` without ``u, v``, or ``[B, T, d]`` with ``u, v`` ``[B, H, T]``."""

    q: Tensor
    k: Tensor
    u: Tensor | None
    v: Tensor | None
    scale: float

    @property
    def num_types(self) -> int:
        """H."""
        return self.q.shape[1] if self.u is None else self.u.shape[1]

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.q.shape[-2]

    @property
    def dtype(self) -> torch.dtype:
        """The type in which sums are accumulated."""
        kinds = [part.dtype for part in (self.q, self.k, self.u, self.v) if part is not None]
        return torch.float64 if torch.float64 in kinds else accumulation_dtype(kinds[0])

    def zeros(self) -> SpanParts:
        """Zeros for the gradients, in the type of the sums."""
        q, k, u, v = (None if part is None else torch.zeros_like(part, dtype=self.dtype) for part in self[:4])
        return SpanParts(q, k, u, v, self.scale)  # type: ignore[arg-type]

    def ends(self) -> tuple[Tensor, Tensor]:
        """``u`` and ``v``, which only the shared form has."""
        if self.u is None or self.v is None:
            raise TypeError("SpanParts: typed parts have no u and v.")
        return self.u, self.v


class SpanTerms(NamedTuple):
    """Which cells count, by ``lengths [B]`` and the triangle, and the listed ones, each ``[P]``; smoothing is uniform."""

    lengths: Tensor
    triangle: bool
    rows: Tensor
    types: Tensor
    first: Tensor
    last: Tensor
    values: Tensor | None = None
    smoothing: float = 0.0

    def counted(self) -> Tensor:
        """Bool ``[P]``: whether each listed cell counts."""
        lengths = self.lengths[self.rows]
        inside = (self.first < lengths) & (self.last < lengths)
        return inside & (self.first <= self.last) if self.triangle else inside

    def listed_weights(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The weights of the listed cells on both sides, each ``[P]``, 0 for cells that do not count."""
        values = torch.ones_like(self.rows, dtype=dtype) if self.values is None else self.values.to(dtype)
        labels = soften(values, self.smoothing)
        counted = self.counted()
        return torch.where(counted, labels, 0.0), torch.where(counted, 1 - labels, 0.0)

    def of_row(self, row: int, types: Tensor) -> SpanTerms:
        """The terms of some types of one row (in ascending order), renumbered. Selecting entries waits for the device."""
        found = ((self.rows == row) & torch.isin(self.types, types)).nonzero().squeeze(1)
        place = torch.searchsorted(types, self.types[found])
        values = None if self.values is None else self.values[found]
        cells = (self.rows[found] - row, place, self.first[found], self.last[found])
        return SpanTerms(self.lengths[row : row + 1], self.triangle, *cells, values, self.smoothing)


class Background(Protocol):
    """The sum over the cells that are not listed, and its gradient: by tiles, or factorised."""

    def log_sum(self, parts: SpanParts, terms: SpanTerms, sign: float) -> tuple[LogSum, Tensor | None]:
        """``log sum e^{sign s}`` over counted, unlisted cells ``[B, H]``, and what to save for backward."""
        ...

    def add_gradient(
        self,
        parts: SpanParts,
        terms: SpanTerms,
        sign: float,
        shift: Tensor,
        factor: Tensor,
        memory: Tensor | None,
        out: SpanParts,
    ) -> None:
        """Add the gradient of the parts to ``out``; the gradient of each cell's score is ``sign factor e^{sign s - shift}``,
        with ``shift`` and ``factor`` ``[B, H]``."""
        ...


def listed_scores(parts: SpanParts, terms: SpanTerms) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of the listed cells ``[P]``, and their ``q`` and ``k`` ``[P, d]``; 0 for cells that do not count."""
    counted = terms.counted().unsqueeze(-1)
    cell = (terms.rows,) if parts.u is not None else (terms.rows, terms.types)
    q = torch.where(counted, parts.q[(*cell, terms.first)].to(parts.dtype), 0.0)
    k = torch.where(counted, parts.k[(*cell, terms.last)].to(parts.dtype), 0.0)
    scores = (q * k).sum(dim=-1) * parts.scale
    if parts.u is not None:
        u, v = parts.ends()
        ends = u[terms.rows, terms.types, terms.first].to(parts.dtype) + v[terms.rows, terms.types, terms.last].to(parts.dtype)
        scores = scores + torch.where(counted.squeeze(-1), ends, 0.0)
    return scores, q, k


def span_sides(
    parts: SpanParts, terms: SpanTerms, background: Background
) -> tuple[LogSum, LogSum, tuple[Tensor | None, Tensor | None]]:
    """``(pos, neg)``, each ``[B, H]``, and what the background saves for backward on either side."""
    sizes = (parts.q.shape[0], parts.num_types)
    listed = listed_scores(parts, terms)[0]
    pos_weight, neg_weight = terms.listed_weights(parts.dtype)
    pos = sum_by_problem(-listed, pos_weight, terms.rows, terms.types, sizes)
    low = terms.smoothing / 2
    neg, neg_memory = background.log_sum(parts, terms, 1.0)
    neg = weighed(neg, 1 - low).merge(sum_by_problem(listed, neg_weight, terms.rows, terms.types, sizes))
    pos_memory = None
    if low:
        rest, pos_memory = background.log_sum(parts, terms, -1.0)
        pos = pos.merge(weighed(rest, low))
    return pos, neg, (pos_memory, neg_memory)


def span_gradient(
    parts: SpanParts,
    terms: SpanTerms,
    background: Background,
    sides: tuple[LogSum, LogSum],
    grads: tuple[Tensor, Tensor],
    memory: tuple[Tensor | None, Tensor | None],
) -> SpanParts:
    """Gradients of the parts, given the sums ``[B, H]`` and their gradients."""
    grad_pos, grad_neg = grads
    pos, neg = (_pulling(side, grad) for side, grad in zip(sides, grads, strict=True))
    out = parts.zeros()
    low = terms.smoothing / 2
    background.add_gradient(parts, terms, 1.0, neg.shift, grad_neg * (1 - low) * torch.exp(-neg.rest), memory[1], out)
    if low:
        background.add_gradient(parts, terms, -1.0, pos.shift, grad_pos * low * torch.exp(-pos.rest), memory[0], out)
    listed, q, k = listed_scores(parts, terms)
    pos_weight, neg_weight = terms.listed_weights(parts.dtype)
    at = (terms.rows, terms.types)
    own = grad_neg[at] * shares(listed, neg_weight, LogSum(neg.shift[at], neg.rest[at]))
    own = own - grad_pos[at] * shares(-listed, pos_weight, LogSum(pos.shift[at], pos.rest[at]))
    cell = (terms.rows,) if out.u is not None else at
    pull = own.unsqueeze(-1) * parts.scale
    out.q.index_put_((*cell, terms.first), pull * k, accumulate=True)
    out.k.index_put_((*cell, terms.last), pull * q, accumulate=True)
    if out.u is not None:
        u, v = out.ends()
        u.index_put_((*at, terms.first), own, accumulate=True)
        v.index_put_((*at, terms.last), own, accumulate=True)
    return out


def _pulling(sums: LogSum, grad: Tensor) -> LogSum:
    """The sums, set to infinity where no term has a gradient: where a sum is empty, or where its gradient is 0. In the second
    case ``e^{s - shift}`` could overflow, because a type of weight 0 may be far above the total of its group."""
    idle = (sums.rest == -INF) | (grad == 0)
    return LogSum(sums.shift.masked_fill(idle, INF), sums.rest.masked_fill(idle, INF))


def sum_by_problem(x: Tensor, weight: Tensor, rows: Tensor, types: Tensor, sizes: tuple[int, int]) -> LogSum:
    """``log sum w e^x`` of the entries of each (row, type), ``[B, H]``."""
    sums = segment_logsumexp(x, weight, rows * sizes[1] + types, sizes[0] * sizes[1])
    return LogSum(sums.shift.reshape(sizes), sums.rest.reshape(sizes))


def weighed(sums: LogSum, weight: Tensor | float) -> LogSum:
    """The sums with every term multiplied by a weight; a weight of 0 gives an empty sum, even if it was infinite."""
    factor = torch.as_tensor(weight, dtype=sums.rest.dtype, device=sums.rest.device)
    return LogSum(sums.shift, torch.where(factor > 0, sums.rest + factor.log(), -INF))


def joined(sums: LogSum, axes: tuple[int, ...]) -> LogSum:
    """The sums, summed further over some axes."""
    if not axes:
        return sums
    tops = torch.where(sums.rest == -INF, -INF, sums.shift).amax(dim=axes, keepdim=True)
    shift = torch.where(tops.isinf(), 0.0, tops)
    rest = torch.logsumexp(sums.shift - shift + sums.rest, dim=axes, keepdim=True)
    return LogSum(shift, rest)


class Chunk(NamedTuple):
    """Some rows (and types) of the parts, prepared for multiplication: signed, scaled, in the type of the sums, 0 at padding.

    ``q, k``: ``[b, h, n, d]`` or ``[b, n, d]``; ``u, v``: ``[b, h, n]``, ``-inf`` at padding; ``real``: bool ``[b, n]``.
    """

    q: Tensor
    k: Tensor
    u: Tensor | None
    v: Tensor | None
    real: Tensor
    padded: bool

    def ends(self) -> tuple[Tensor, Tensor]:
        """``u`` and ``v``, which only the shared form has."""
        if self.u is None or self.v is None:
            raise TypeError("Chunk: typed parts have no u and v.")
        return self.u, self.v


def load_chunk(parts: SpanParts, terms: SpanTerms, sign: float, batch: slice, types: slice) -> Chunk:
    """Cut ``batch`` and ``types`` out of the parts. On a CPU the token axis is cut to the longest row of the chunk."""
    lengths = terms.lengths[batch]
    size, padded = parts.num_tokens, True
    if lengths.device.type == "cpu" and lengths.numel():
        size = max(0, min(size, int(lengths.max())))
        padded = int(lengths.min()) < size
    real = torch.arange(size, device=lengths.device) < lengths.unsqueeze(1)
    dtype = parts.dtype
    if parts.u is None:
        empty = ~real[:, None, :, None]
        q, k = (part[batch, types, :size].to(dtype).masked_fill(empty, 0.0) for part in (parts.q, parts.k))
        return Chunk(q * (sign * parts.scale), k, None, None, real, padded)
    q, k = (part[batch, :size].to(dtype).masked_fill(~real[:, :, None], 0.0) for part in (parts.q, parts.k))
    u, v = ((end[batch, types, :size].to(dtype) * sign).masked_fill(~real[:, None, :], -INF) for end in parts.ends())
    return Chunk(q * (sign * parts.scale), k, u, v, real, padded)


def chunks(num_rows: int, row_elements: int, budget: int) -> list[slice]:
    """Slices of rows that hold at most ``budget`` elements, but at least one row each."""
    step = max(1, budget // max(row_elements, 1))
    return [slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step)]
