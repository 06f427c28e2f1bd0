"""The functions by which an engine repeats a call of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Again(NamedTuple):
    """How to repeat a call of the same kind without the full checks.

    ``run`` takes contiguous scores and the tensors of their terms, and returns the value and the gradient, or None if the call
    needs the full checks. ``scale`` multiplies the gradient by a factor in place; None if a torch operation is to do that. In
    float16 on CUDA the gradient is the input of ``half_finish``, and ``scale`` returns the finished gradient, or None if
    ``half_finish`` is needed.
    """

    run: Callable[[Tensor, Sequence[Tensor]], tuple[Tensor, Any] | None]
    scale: Callable[[Any, Tensor], Tensor | None] | None
