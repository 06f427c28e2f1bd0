"""The workspace of a call on span scores: which cells count, and the memory that its kernels share."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from manyhot.engines.plain_spans.terms import SpanParts
from manyhot.engines.triton.launch.launcher import Numbers

# Sections of memory start at multiples of 16 bytes, which kernels are compiled for.
ALIGNED = 4
Memory = tuple[Tensor, ...]


class SpanCells(NamedTuple):
    """Which cells count and which are listed: row i lists the cells ``indices[offsets[i]:offsets[i + 1]]`` of its flattened
    ``[H, T, T]`` grid, in ascending order; smoothing is uniform."""

    lengths: Tensor
    triangle: bool
    indices: Tensor
    offsets: Tensor
    values: Tensor | None = None
    smoothing: float = 0.0


class Kept(NamedTuple):
    """The sections of the memory, for one or both signs: where blocks of listed cells start, which types are computed cell by
    cell, the unpacked lists, their scores, maxima, lifts, and tops and totals of the sums."""

    starts: Tensor
    flags: Tensor
    unpacked: Tensor
    scores: Tensor
    peaks: Tensor
    lifts: Tensor
    tops: Tensor
    sums: Tensor


def aligned(size: int) -> int:
    """The size rounded up to a multiple of ``ALIGNED``."""
    return -(-size // ALIGNED) * ALIGNED


def strides(parts: SpanParts) -> Numbers:
    """Of q and k by row, type and token, or by row and token, and then of u and v."""
    ends = () if parts.u is None else (*parts.ends()[0].stride(), *parts.ends()[1].stride())
    return (*parts.q.stride()[:-1], *parts.k.stride()[:-1], *ends)


def strides_by_type(parts: SpanParts) -> Numbers:
    """Of q, k, u and v by row, type and token; 0 where there is none."""
    q, k = parts.q.stride(), parts.k.stride()
    if parts.u is None:
        return (*q[:3], *k[:3], *[0] * 6)
    return (q[0], 0, q[1], k[0], 0, k[1], *parts.ends()[0].stride(), *parts.ends()[1].stride())
