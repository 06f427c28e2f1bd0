"""Chooses the engine for linear scores: that of the device (see ``manyhot.engines.registry``), otherwise the plain form."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines import registry
from manyhot.engines.linear import plain
from manyhot.engines.linear.problem import LinearEngine
from manyhot.engines.readable import can_be_read
from manyhot.engines.terms import DenseTerms, SparseTerms


def choose_linear(
    who: str, engine: str, hidden: Tensor, weight: Tensor, bias: Tensor | None, terms: DenseTerms | SparseTerms
) -> LinearEngine:
    """The engine for scores ``hidden @ weight.T + bias``.

    ``"auto"`` takes the fast engine of the device if that supports the call. It takes the plain form for float64, for problems
    without rows or labels, and under ``torch.func`` transforms.
    """
    if engine == "torch":
        return plain
    nothing = hidden.shape[0] == 0 or weight.numel() == 0
    entry = registry.entry_for(engine, hidden.device.type)
    if entry is None or entry.linear is None:
        return plain
    there = registry.is_there(entry.name, hidden.get_device() if hidden.is_cuda else -1)
    served = there and (nothing or entry.linear.supports(hidden, weight, bias, terms))
    if engine != "auto" and not served:
        reason = registry.available_engines()[entry.name]
        if reason == "available":
            reason = f"it cannot serve {hidden.dtype} scores on {hidden.device.type} with these labels."
        raise ValueError(f"{who}: engine {engine!r} cannot serve LinearScores: {reason} Use engine='auto'.")
    if nothing or not served or not can_be_read((hidden, weight, bias, *terms)):
        return plain
    found: LinearEngine = entry.linear
    return found


def computes_losses(engine: str, hidden: Tensor) -> bool:
    """Whether the fast engine for ``hidden`` computes a loss directly from the scores (``losses``)."""
    entry = None if engine == "torch" else registry.entry_for(engine, hidden.device.type)
    return entry is not None and hasattr(entry.linear, "losses")


def failed(engine: LinearEngine, error: Exception) -> None:
    """Turn off an engine that failed. Raises the error if it was the plain form, or if memory ran out."""
    names = [entry.name for entry in registry.ENTRIES if entry.linear is engine]
    if not names or isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        raise error
    registry.close(names[0], error)
