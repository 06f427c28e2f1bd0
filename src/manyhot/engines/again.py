"""How an engine serves further calls of a kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Again(NamedTuple):
    """``run`` gives value and gradient of contiguous scores and the tensors of their terms, or None where a call has to be
    looked at in full. ``scale`` multiplies the gradient by a factor in place; None if one operation of torch does. In float16
    on CUDA the gradient is what ``half_finish`` takes, and ``scale`` gives the finished one, or None if that has to be looked
    at in full."""

    run: Callable[[Tensor, Sequence[Tensor]], tuple[Tensor, Any] | None]
    scale: Callable[[Any, Tensor], Tensor | None] | None
