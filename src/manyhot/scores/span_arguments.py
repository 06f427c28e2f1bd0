"""Checks the arguments of span scores: shapes, label axes and weights per type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_logits, check_weight, shape_text
from manyhot.engines.plain_spans.terms import SpanParts
from manyhot.engines.terms import INF, Weight
from manyhot.losses.core.logsumexp import Dim


def check_parts(q: Any, k: Any, u: Any, v: Any) -> None:
    """Check the shapes of queries and keys and, in the shared form, of ``u`` and ``v``."""
    who = "SpanScores"
    for name, part in (("q", q), ("k", k)):
        check_logits(who, part, name)
    if q.ndim not in (3, 4) or q.shape != k.shape:
        raise ValueError(
            f"{who}: `q` and `k` must both be [B, H, T, d], or [B, T, d] shared by the types;"
            f" got {shape_text(q.shape)} and {shape_text(k.shape)}."
        )
    if (u is None) != (q.ndim == 4) or (v is None) != (q.ndim == 4):
        raise ValueError(f"{who}: `u` and `v` go with a shared `q` [B, T, d], and only with it; got `q` {shape_text(q.shape)}.")
    if u is None:
        return
    for name, part in (("u", u), ("v", v)):
        check_logits(who, part, name)
        if part.ndim != 3 or part.shape != u.shape or part.shape[::2] != q.shape[:2]:
            raise ValueError(
                f"{who}: `{name}` must be [B, H, T] with the B and T of `q`, {shape_text(q.shape)};"
                f" got {shape_text(part.shape)}."
            )


def as_lengths(lengths: Tensor | Sequence[int] | None, q: Tensor) -> Tensor:
    """int64 ``[B]`` on the device of ``q``."""
    if lengths is None:
        return torch.full((q.shape[0],), q.shape[-2], device=q.device)
    given = torch.as_tensor(lengths)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool or given.shape != q.shape[:1]:
        raise ValueError(
            f"SpanScores: `lengths` must be integers [B], the number of real tokens of each of {q.shape[0]} rows;"
            f" got {given.dtype} {shape_text(given.shape)}. From an attention mask: mask.sum(dim=1)."
        )
    return given.to(q.device, torch.int64)


def label_axes(who: str, dim: Dim) -> set[int]:
    """The axes of ``[B, H, T, T]`` that are summed over. The last axis alone means the whole grid."""
    given = [dim] if isinstance(dim, int) else list(dim)
    axes = {axis + 4 if axis < 0 else axis for axis in given}
    if axes == {3}:
        return {2, 3}
    known = ({2, 3}, {1, 2, 3}, {0, 2, 3}, {0, 1, 2, 3}, {1})
    if len(axes) != len(given) or axes not in known:
        raise ValueError(
            f"{who}: `dim` of SpanScores must be (-2, -1) for the positions, (-3, -2, -1) for types and positions, or -3 for"
            f" the types of each cell; got {shape_text(given)}. Call .dense() for other axes."
        )
    return axes


def weight_per_type(who: str, name: str, weight: Weight, parts: SpanParts, *, validate: bool) -> Tensor | None:
    """A weight as ``[H]``, in the type of the sums."""
    if weight is None:
        return None
    if isinstance(weight, Tensor) and weight.shape == (parts.num_types, 1, 1):
        weight = weight[:, 0, 0]
    check_weight(who, name, weight, [parts.num_types], validate=validate)
    return torch.as_tensor(weight, dtype=parts.dtype, device=parts.q.device).detach().expand(parts.num_types)


def weight_on_axes(weight: Tensor | None, axes: set[int]) -> Tensor | None:
    """A weight per type, shaped for the label axes; None if the types are not among them."""
    if weight is None or 1 not in axes:
        return None
    return weight.reshape(-1, *(1 for axis in axes if axis > 1))


def add_log_weight(side: Tensor, weight: Tensor | None) -> Tensor:
    """The log-sums ``[..., H]`` after each term is multiplied by the weight of its type."""
    if weight is None:
        return side
    log = weight.log()
    return torch.where(log == -INF, -INF, side + log)
