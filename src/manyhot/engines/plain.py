"""The plain form of every function of an engine: the fallback if an engine fails.

Sides and their gradient are those of ``manyhot.engines.terms``. The losses on top of them are defined in ``manyhot.losses``,
which this package must not import, so they register their plain functions here with ``plain_form``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms, accumulation_dtype

Function = Callable[..., Any]
_FORMS: dict[str, Function] = {}


def plain_form(name: str) -> Callable[[Function], Function]:
    """Register the plain form of the engine function ``name``, such as ``"fused"`` or ``"dice"``."""

    def register(function: Function) -> Function:
        _FORMS[name] = function
        return function

    return register


def fused(*args: Any, **settings: Any) -> Any:
    """``engine.fused`` in plain torch."""
    return _FORMS["fused"](*args, **settings)


def labelwise(*args: Any, **settings: Any) -> Any:
    """``engine.labelwise`` in plain torch."""
    return _FORMS["labelwise"](*args, **settings)


def rdrop(*args: Any, **settings: Any) -> Any:
    """``engine.rdrop`` in plain torch."""
    return _FORMS["rdrop"](*args, **settings)


def overlap(*args: Any, **settings: Any) -> Any:
    """``engine.overlap`` in plain torch."""
    return _FORMS["overlap"](*args, **settings)


def overlap_gradient(*args: Any, **settings: Any) -> Any:
    """``engine.overlap_gradient`` in plain torch."""
    return _FORMS["overlap_gradient"](*args, **settings)


def dice(*args: Any, **settings: Any) -> Any:
    """``engine.dice`` in plain torch."""
    return _FORMS["dice"](*args, **settings)


def sides(x: Tensor, terms: DenseTerms | SparseTerms) -> tuple[LogSum, LogSum]:
    """``(pos, neg)``, each ``[R]``."""
    return terms.sides(x.to(accumulation_dtype(x.dtype)))


def gradient(
    x: Tensor, terms: DenseTerms | SparseTerms, pos: LogSum, neg: LogSum, grad_pos: Tensor, grad_neg: Tensor
) -> Tensor:
    """``[R, L]`` in the type of ``x``, given the sides and their gradients."""
    return terms.gradient(x.to(accumulation_dtype(x.dtype)), pos, neg, grad_pos, grad_neg).to(x.dtype)


def scale_(grad: Tensor, factor: Tensor) -> Tensor:
    """``grad *= factor`` in place."""
    return grad.mul_(factor)
