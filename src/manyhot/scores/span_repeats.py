"""A cache for repeated span losses: a call of the same kind as an earlier one skips the checks and the choice of an engine."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from manyhot.engines.plain_spans.terms import SpanParts
from manyhot.engines.readable import all_readable
from manyhot.engines.span_registry import SpanEntry
from manyhot.labels.spans import SpanLabels

MOST = 4096
# The engine that served each kind of call.
SERVED: dict[Any, SpanEntry] = {}


def kind_of_call(parts: SpanParts, lengths: Tensor, labels: SpanLabels, settings: tuple[Any, ...]) -> Any:
    """The cache key: everything that the checks and the choice of an engine depend on; None for calls that are not cached."""
    q, k, u, v, _ = parts
    smoothing, dim, *_ = settings
    if type(smoothing) is not float or type(dim) is not int:
        return None
    cells = labels.cells
    kind = (q.dtype, k.dtype, q.shape, q.get_device(), k.get_device(), lengths.get_device(), *settings)
    kind += (labels.num_types, labels.num_tokens, cells.offsets.shape, cells.offsets.get_device(), cells.indices.get_device())
    if u is not None and v is not None:
        kind += (u.dtype, v.dtype, u.shape, u.get_device(), v.get_device())
    return kind if cells.values is None else (*kind, cells.values.dtype, cells.values.get_device())


def served_before(kind: Any, parts: SpanParts, lengths: Tensor, labels: SpanLabels) -> SpanEntry | None:
    """The engine that served calls of this kind, if it is still in use and can read these tensors."""
    entry, cells = SERVED.get(kind), labels.cells
    if entry is None or (entry.gate is not None and entry.gate.failure):
        return None
    return entry if all_readable((*parts[:4], lengths, cells.indices, cells.offsets, cells.values)) else None


def note_served(kind: Any, entry: SpanEntry) -> None:
    """Note which engine served a call of this kind."""
    if len(SERVED) >= MOST:
        SERVED.clear()
    SERVED[kind] = entry
