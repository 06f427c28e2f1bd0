"""Which engine serves span scores: Triton on CUDA devices, else the plain form, by tiles or factorised."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from manyhot.engines.plain_spans import factorised as span_factorised
from manyhot.engines.plain_spans import tiles as span_tiles
from manyhot.engines.plain_spans.terms import Background, SpanParts, span_gradient, span_sides
from manyhot.engines.readable import can_be_read
from manyhot.engines.terms import LogSum
from manyhot.engines.triton.launch.gate import warn_once
from manyhot.engines.triton.spans import engine as triton_span_engine

Memory = tuple[Tensor | None, ...]


class SpanEngine(Protocol):
    """Both sides of span scores and their gradients. ``terms`` are ``SpanCells`` for the Triton engine, else ``SpanTerms``."""

    def sides(self, parts: SpanParts, terms: Any) -> tuple[LogSum, LogSum, Memory]:
        """``(pos, neg)``, each ``[B, H]``, and what backward should remember."""
        ...

    def gradient(
        self,
        parts: SpanParts,
        terms: Any,
        sums: tuple[LogSum, LogSum],
        grads: tuple[Tensor, Tensor],
        memory: Any,
    ) -> SpanParts:
        """Gradients of the parts, given the sums ``[B, H]`` that cells are shares of and the gradients of those sums."""
        ...


class PlainSpans(NamedTuple):
    """Listed cells one by one in plain torch, and all others by ``background``."""

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


def choose_spans(who: str, engine: str, method: str, parts: SpanParts, *others: Tensor) -> SpanEngine:
    """The engine for ``parts`` with the tensors ``others`` beside them.

    ``"auto"`` takes Triton on CUDA devices, except for float64, heads wider than 128, and tiles asked for in the shared form.
    """
    tiles = parts.u is not None and method == "tiles"
    there, reason = _triton(parts.q.get_device() if engine == "auto" and parts.q.is_cuda else -1)
    served = there and not tiles and triton_span_engine.supports(parts, *others) and can_be_read((*parts, *others))
    if engine == "triton" and not served:
        why = reason or (
            f"it takes float32, bfloat16 and float16 parts on CUDA, head size up to {triton_span_engine.HEAD_SIZES}, and"
            " the shared form only factorised."
        )
        raise ValueError(f"{who}: engine 'triton' cannot serve these scores: {why} Use engine='auto'.")
    if engine != "torch" and served and (engine == "triton" or parts.q.is_cuda):
        return triton_span_engine
    return PlainSpans(span_tiles if parts.u is None or tiles else span_factorised)


def _triton(device: int) -> tuple[bool, str]:
    """Whether Triton can be used, and why not; a graph that is being compiled takes the answer as a constant."""
    there, reason = triton_span_engine.available(device)
    if not there and device >= 0:
        warn_once(reason)
    return there, reason


# See ``manyhot.engines.registry``.
_triton._dynamo_marked_constant = True  # type: ignore[attr-defined]
