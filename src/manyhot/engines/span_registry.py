"""Chooses the engine for span scores: Triton on CUDA devices, otherwise the plain form, by tiles or factorised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from manyhot.engines import span_ops
from manyhot.engines.gate import Gate
from manyhot.engines.plain_spans import factorised as span_factorised
from manyhot.engines.plain_spans import tiles as span_tiles
from manyhot.engines.plain_spans.terms import Background, SpanParts, SpanTerms, span_gradient, span_sides
from manyhot.engines.readable import can_be_read
from manyhot.engines.terms import LogSum
from manyhot.engines.triton.launch.gate import GATE as TRITON_GATE
from manyhot.engines.triton.spans import engine as triton_span_engine
from manyhot.engines.triton.spans.workspace import SpanCells
from manyhot.labels.spans import SpanLabels

Memory = tuple[Tensor | None, ...]


class SpanEngine(Protocol):
    """Computes both sides of span scores and their gradients. ``terms`` come from ``make_terms`` of its entry."""

    def sides(self, parts: SpanParts, terms: Any) -> tuple[LogSum, LogSum, Memory]:
        """``(pos, neg)``, each ``[B, H]``, and what to save for backward."""
        ...

    def gradient(
        self,
        parts: SpanParts,
        terms: Any,
        sums: tuple[LogSum, LogSum],
        grads: tuple[Tensor, Tensor],
        memory: Any,
    ) -> SpanParts:
        """Gradients of the parts, given the sums ``[B, H]`` and their gradients."""
        ...


class PlainSpans(NamedTuple):
    """The plain form: listed cells are gathered, and all others are summed by ``background``."""

    background: Background

    def sides(self, parts: SpanParts, terms: Any) -> tuple[LogSum, LogSum, Memory]:
        """See ``SpanEngine``."""
        with torch.autocast(parts.q.device.type, enabled=False):
            return span_sides(parts, terms, self.background)

    def gradient(
        self,
        parts: SpanParts,
        terms: Any,
        sums: tuple[LogSum, LogSum],
        grads: tuple[Tensor, Tensor],
        memory: Any,
    ) -> SpanParts:
        """See ``SpanEngine``."""
        return span_gradient(parts, terms, self.background, sums, grads, memory)


class SpanEntry(NamedTuple):
    """An engine for span scores and everything the rest of the code needs to know about it. A new engine is a new module and an
    entry."""

    name: str
    engine: Any
    make_terms: Callable[
        [Tensor, bool, SpanLabels, float], Any
    ]  # lengths, triangle, labels, smoothing: as the engine reads them
    operators: Any = None  # the engine as registered operators, for compiled graphs; None if it needs none
    has_loss: bool = False  # whether it computes the reduced loss directly, by ``loss`` and ``loss_gradient``
    device: str = ""  # the device type for which ``"auto"`` chooses it
    limits: str = ""  # what it supports, for messages
    gate: Gate | None = None  # closed when the engine fails

    def running(self) -> SpanEngine:
        """The engine, or its operators while a graph is being compiled."""
        found: SpanEngine = self.operators if self.operators is not None and torch.compiler.is_compiling() else self.engine
        return found


def _plain_terms(lengths: Tensor, triangle: bool, labels: SpanLabels, smoothing: float) -> SpanTerms:
    cells = (labels.rows, labels.types, labels.first, labels.last, labels.values)
    return SpanTerms(lengths, triangle, *cells, smoothing)


def _listed_cells(lengths: Tensor, triangle: bool, labels: SpanLabels, smoothing: float) -> SpanCells:
    return SpanCells(lengths, triangle, labels.cells.indices, labels.cells.offsets, labels.values, smoothing)


TILES = SpanEntry("torch", PlainSpans(span_tiles), _plain_terms)
FACTORISED = SpanEntry("torch", PlainSpans(span_factorised), _plain_terms)
ENTRIES = (
    SpanEntry(
        "triton",
        triton_span_engine,
        _listed_cells,
        operators=span_ops,
        has_loss=True,
        device="cuda",
        limits=(
            f"it takes float32, bfloat16 and float16 parts on CUDA, head size up to {triton_span_engine.HEAD_SIZES}, and"
            " the shared form only factorised."
        ),
        gate=TRITON_GATE,
    ),
)
_BY_NAME = {entry.name: entry for entry in ENTRIES}
_BY_DEVICE = {entry.device: entry for entry in ENTRIES}
# The values of ``engine=`` other than "auto".
SPAN_NAMES = ("torch", *_BY_NAME)


def choose_spans(who: str, engine: str, method: str, parts: SpanParts, *others: Tensor) -> SpanEntry:
    """The engine for ``parts`` and any ``others`` of the call.

    ``"auto"`` takes the engine of the device if that supports the call; see ``limits``.
    """
    tiles = parts.u is not None and method == "tiles"
    plain = TILES if parts.u is None or tiles else FACTORISED
    device = parts.q.device.type
    if engine == "torch" or (engine == "auto" and device not in _BY_DEVICE):
        return plain
    entry = _BY_DEVICE[device] if engine == "auto" else _BY_NAME[engine]
    there, reason = _is_there(entry.name, parts.q.get_device() if engine == "auto" else -1)
    served = there and not tiles and entry.engine.supports(parts, *others) and can_be_read((*parts, *others))
    if engine != "auto" and not served:
        raise ValueError(f"{who}: engine {engine!r} cannot serve these scores: {reason or entry.limits} Use engine='auto'.")
    return entry if served else plain


def _is_there(name: str, device: int) -> tuple[bool, str]:
    """Whether the engine can be used, and if not, why; a compiled graph treats the answer as a constant."""
    entry = _BY_NAME[name]
    there, reason = entry.engine.available(device)
    if not there and device >= 0 and entry.gate is not None:
        entry.gate.warn_once(reason)
    return there, reason


# See ``manyhot.engines.registry``.
_is_there._dynamo_marked_constant = True  # type: ignore[attr-defined]
