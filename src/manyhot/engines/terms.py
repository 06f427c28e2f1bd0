"""The terms of each row: the weights of the two sides, their log-sums and the gradient, in plain torch.

For scores ``s`` and labels ``t`` a row has the terms ``pos_i = t_i e^{-s_i}`` and ``neg_i = (1 - t_i) e^{s_i}``, each times
its weight. A term of weight 0 is skipped even if its score is infinite or NaN; nothing is subtracted, clipped or masked by a
large constant. ``DenseTerms`` reads labels of the shape of the scores, ``SparseTerms`` reads index lists. This is the reference
that every engine is tested against.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from manyhot.labels.sparse import rows_of_entries

INF = float("inf")

Weight = Tensor | float | None


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type of sums: float64 for float64, float32 for everything else."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def soften(labels: Tensor, smoothing: float) -> Tensor:
    """Uniform smoothing ``t (1 - e) + e / 2``."""
    return labels if smoothing == 0 else labels * (1 - smoothing) + smoothing / 2


class LogSum(NamedTuple):
    """``log sum w e^x`` as ``shift + rest``: the largest exponent, and the log of the sum after that shift.

    One float is not precise enough: at a score of 1e7 float32 has no digits left for the rest, and the softmax weights of the
    terms, which are the gradient, would not add up to one. ``shift`` is finite; an empty sum has ``rest = -inf``.
    """

    shift: Tensor
    rest: Tensor

    @property
    def value(self) -> Tensor:
        """The log-sum in one float."""
        return self.shift + self.rest

    def plus(self, offset: Tensor | float) -> Tensor:
        """The log-sum plus ``offset`` in one float; if the offset cancels the shift, the rest keeps its full precision."""
        return (self.shift + offset) + self.rest

    def times(self, other: LogSum) -> LogSum:
        """The log of the product of both sums, ``-inf`` if one is empty, even if the other is infinite."""
        empty = (self.rest == -INF) | (other.rest == -INF)
        return LogSum(self.shift + other.shift, torch.where(empty, -INF, self.rest + other.rest))

    def power(self, exponent: float) -> LogSum:
        """The log of the sum raised to a power."""
        return LogSum(self.shift * exponent, self.rest * exponent)

    def reshape(self, shape: torch.Size) -> LogSum:
        """The sums with other leading axes."""
        return LogSum(self.shift.reshape(shape), self.rest.reshape(shape))

    def at(self, rows: Tensor) -> LogSum:
        """The sums of some rows."""
        return LogSum(self.shift[rows], self.rest[rows])

    def column(self) -> LogSum:
        """The sums with a last axis of size 1, to broadcast against the terms."""
        return LogSum(self.shift.unsqueeze(-1), self.rest.unsqueeze(-1))

    def merge(self, other: LogSum) -> LogSum:
        """The sum of both."""
        tops = (torch.where(part.rest == -INF, -INF, part.shift) for part in (self, other))
        shift = _finite(torch.maximum(*tops))
        return LogSum(shift, torch.logaddexp(self.shift - shift + self.rest, other.shift - shift + other.rest))


def in_one_part(value: Tensor) -> LogSum:
    """A ``LogSum`` from a log-sum that is given as one float."""
    return LogSum(torch.zeros_like(value), value)


def _finite(top: Tensor) -> Tensor:
    return torch.where(top.isinf(), 0.0, top)


def weighted_logsumexp(x: Tensor, weight: Tensor) -> LogSum:
    """``log sum_i w_i e^{x_i}`` over the last axis, ``-inf`` for an empty sum; terms of weight 0 are skipped."""
    if x.shape[-1] == 0:
        return LogSum(x.new_zeros(x.shape[:-1]), x.new_full(x.shape[:-1], -INF))
    x = torch.where(weight > 0, x, -INF)
    shift = _finite(x.amax(dim=-1))
    return LogSum(shift, (weight * torch.exp(x - shift.unsqueeze(-1))).sum(dim=-1).log())


def shares(x: Tensor, weight: Tensor, total: LogSum) -> Tensor:
    """``w_i e^{x_i} / e^total``: the softmax weight of each term within its side; an infinite term gets all of it."""
    relative = torch.where((x == INF) & (total.rest == INF), 0.0, (x - total.shift) - total.rest)
    return weight * torch.exp(torch.where((weight > 0) & (x != -INF), relative, -INF))


class Terms(Protocol):
    """The functions of the plain form, for a block of rows ``x [..., L]``."""

    def sides(self, x: Tensor) -> tuple[LogSum, LogSum]:
        """``(pos, neg)``, each ``[...]``."""
        ...

    def gradient(self, x: Tensor, pos: LogSum, neg: LogSum, grad_pos: Tensor, grad_neg: Tensor) -> Tensor:
        """``[..., L]``, given the sides and their gradients."""
        ...

    def columns(self, start: int, stop: int) -> Self:
        """The terms of some labels alone."""
        ...


def _columns(value: Weight, start: int, stop: int) -> Weight:
    return value[..., start:stop] if isinstance(value, Tensor) and value.ndim and value.shape[-1] != 1 else value


class DenseTerms(NamedTuple):
    """Terms for dense labels ``[..., L]``: floating-point labels are soft; others are hard, positive where above 0."""

    labels: Tensor
    where: Tensor | None = None
    pos_weight: Weight = None
    neg_weight: Weight = None
    smoothing: float = 0.0

    def weights(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The weights of all terms on both sides, 0 where an entry does not count."""
        hard = not self.labels.is_floating_point()
        labels = soften((self.labels > 0 if hard else self.labels).to(dtype), self.smoothing)
        pos, neg = labels, 1 - labels
        if self.pos_weight is not None:
            pos = pos * self.pos_weight
        if self.neg_weight is not None:
            neg = neg * self.neg_weight
        if self.where is not None:
            pos, neg = torch.where(self.where, pos, 0.0), torch.where(self.where, neg, 0.0)
        return pos, neg

    def sides(self, x: Tensor) -> tuple[LogSum, LogSum]:
        """``(pos, neg)``, each ``[...]``."""
        pos_weight, neg_weight = self.weights(x.dtype)
        return weighted_logsumexp(-x, pos_weight), weighted_logsumexp(x, neg_weight)

    def gradient(self, x: Tensor, pos: LogSum, neg: LogSum, grad_pos: Tensor, grad_neg: Tensor) -> Tensor:
        """``grad_neg (1 - t) e^{s - neg} - grad_pos t e^{-s - pos}``."""
        pos_weight, neg_weight = self.weights(x.dtype)
        pos_shares = shares(-x, pos_weight, pos.column())
        neg_shares = shares(x, neg_weight, neg.column())
        return grad_neg.unsqueeze(-1) * neg_shares - grad_pos.unsqueeze(-1) * pos_shares

    def columns(self, start: int, stop: int) -> DenseTerms:
        """The terms of some labels alone."""
        where = _columns(self.where, start, stop)
        assert where is None or isinstance(where, Tensor)
        pos_weight, neg_weight = (_columns(w, start, stop) for w in (self.pos_weight, self.neg_weight))
        return DenseTerms(self.labels[..., start:stop], where, pos_weight, neg_weight, self.smoothing)


class SparseTerms(NamedTuple):
    """Terms for index lists on scores ``[R, L]``: a background that all labels share, and the listed entries.

    Row ``i`` lists ``indices[offsets[i]:offsets[i + 1]]``.
    """

    indices: Tensor
    offsets: Tensor
    values: Tensor | None = None
    where: Tensor | None = None
    pos_weight: Weight = None
    neg_weight: Weight = None
    smoothing: float = 0.0

    @property
    def rows(self) -> Tensor:
        """int64 ``[P]``: the row of each entry."""
        return rows_of_entries(self.offsets, self.indices.shape[0])

    def listed_weights(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The weights of the listed entries on both sides, each ``[P]``, 0 for entries that do not count."""
        values = torch.ones_like(self.indices, dtype=dtype) if self.values is None else self.values.to(dtype)
        labels = soften(values, self.smoothing)
        pos, neg = labels, 1 - labels
        if self.pos_weight is not None:
            pos = pos * self.at_listed(self.pos_weight)
        if self.neg_weight is not None:
            neg = neg * self.at_listed(self.neg_weight)
        if self.where is not None:
            counts = self.where[self.rows, self.indices]
            pos, neg = torch.where(counts, pos, 0.0), torch.where(counts, neg, 0.0)
        return pos, neg

    def at_listed(self, weight: Tensor | float) -> Tensor | float:
        """A weight per label, read at the listed entries."""
        per_label = isinstance(weight, Tensor) and weight.ndim > 0 and weight.shape[-1] != 1
        return weight[self.indices] if per_label else weight  # type: ignore[index]

    def background(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        """Weights of the entries that are not listed, broadcastable to ``x``; None for a side without such terms."""
        label = self.smoothing / 2
        neg = x.new_full((), 1 - label) * (1.0 if self.neg_weight is None else self.neg_weight)
        if label == 0:
            return None, neg
        return x.new_full((), label) * (1.0 if self.pos_weight is None else self.pos_weight), neg

    def _unlisted(self, x: Tensor) -> Tensor:
        """``x`` with ``-inf`` wherever the background does not count."""
        rest = x.index_put((self.rows, self.indices), x.new_full((), -INF))
        return rest if self.where is None else torch.where(self.where, rest, -INF)

    def sides(self, x: Tensor) -> tuple[LogSum, LogSum]:
        """``(pos, neg)``, each ``[R]``."""
        listed = x[self.rows, self.indices]
        pos_weight, neg_weight = self.listed_weights(x.dtype)
        pos_rest, neg_rest = self.background(x)
        pos = segment_logsumexp(-listed, pos_weight, self.rows, x.shape[0])
        neg = weighted_logsumexp(self._unlisted(x), neg_rest)
        if pos_rest is not None:
            pos = pos.merge(weighted_logsumexp(self._unlisted(-x), pos_rest))
        if self.values is not None or self.smoothing:
            neg = neg.merge(segment_logsumexp(listed, neg_weight, self.rows, x.shape[0]))
        return pos, neg

    def gradient(self, x: Tensor, pos: LogSum, neg: LogSum, grad_pos: Tensor, grad_neg: Tensor) -> Tensor:
        """``grad_neg (1 - t) e^{s - neg} - grad_pos t e^{-s - pos}``, the listed entries written over the background."""
        pos_rest, neg_rest = self.background(x)
        full = grad_neg.unsqueeze(-1) * shares(self._unlisted(x), neg_rest, neg.column())
        if pos_rest is not None:
            full = full - grad_pos.unsqueeze(-1) * shares(self._unlisted(-x), pos_rest, pos.column())
        listed, rows = x[self.rows, self.indices], self.rows
        pos_weight, neg_weight = self.listed_weights(x.dtype)
        own = grad_neg[rows] * shares(listed, neg_weight, neg.at(rows))
        own = own - grad_pos[rows] * shares(-listed, pos_weight, pos.at(rows))
        return full.index_put((rows, self.indices), own)

    def columns(self, start: int, stop: int) -> SparseTerms:
        """The terms of some labels. Selecting entries waits for the device."""
        kept = (self.indices >= start) & (self.indices < stop)
        where = _columns(self.where, start, stop)
        assert where is None or isinstance(where, Tensor)
        pos_weight, neg_weight = (_columns(w, start, stop) for w in (self.pos_weight, self.neg_weight))
        values = None if self.values is None else self.values[kept]
        before = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
        indices, offsets = self.indices[kept] - start, before[self.offsets]
        return SparseTerms(indices, offsets, values, where, pos_weight, neg_weight, self.smoothing)


def segment_logsumexp(x: Tensor, weight: Tensor, rows: Tensor, num_rows: int) -> LogSum:
    """``log sum w e^x`` of each row's entries, ``-inf`` for a row without any."""
    x = torch.where(weight > 0, x, -INF)
    top = x.new_full((num_rows,), -INF).scatter_reduce(0, rows, x, "amax")
    shift = _finite(top)
    total = x.new_zeros(num_rows).index_add(0, rows, weight * torch.exp(x - shift[rows]))
    return LogSum(shift, total.log())
