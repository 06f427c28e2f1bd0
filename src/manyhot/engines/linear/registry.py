"""Which engine serves linear scores: Triton on CUDA devices, native on the CPU, else the plain form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines import registry
from manyhot.engines.linear import plain
from manyhot.engines.linear.problem import LinearEngine
from manyhot.engines.native import linear as native_linear
from manyhot.engines.readable import can_be_read
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton.linear import engine as triton_linear

_MODULES: dict[str, Any] = {"native": native_linear, "triton": triton_linear}


def choose_linear(
    who: str, engine: str, hidden: Tensor, weight: Tensor, bias: Tensor | None, terms: DenseTerms | SparseTerms
) -> LinearEngine:
    """The engine for scores ``hidden @ weight.T + bias``.

    ``"auto"`` takes the fast engine of the device where it can serve the call, and the plain form for float64, without rows or
    labels, and under ``torch.func`` transforms.
    """
    if engine == "torch":
        return plain
    nothing = hidden.shape[0] == 0 or weight.numel() == 0
    name = _name_for(engine, hidden)
    module = _MODULES[name]
    there = registry.is_there(name, hidden.get_device() if hidden.is_cuda else -1)
    served = there and (nothing or module.supports(hidden, weight, bias, terms))
    if engine != "auto" and not served:
        reason = registry.available_engines()[name]
        if reason == "available":
            reason = f"it cannot serve {hidden.dtype} scores on {hidden.device.type} with these labels."
        raise ValueError(f"{who}: engine {engine!r} cannot serve LinearScores: {reason} Use engine='auto'.")
    if nothing or not served or not can_be_read((hidden, weight, bias, *terms)):
        return plain
    found: LinearEngine = module
    return found


def computes_losses(engine: str, hidden: Tensor) -> bool:
    """Whether the fast engine for ``hidden`` computes a loss directly from the scores (``losses``)."""
    return engine != "torch" and hasattr(_MODULES.get(_name_for(engine, hidden)), "losses")


def _name_for(engine: str, hidden: Tensor) -> str:
    return ("triton" if hidden.is_cuda else "native") if engine == "auto" else engine


def failed(engine: LinearEngine, error: Exception) -> None:
    """Turn an engine off that failed. Raises where nothing else could serve."""
    names = [name for name, module in _MODULES.items() if module is engine]
    if not names or isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        raise error
    registry.close(names[0], error)
