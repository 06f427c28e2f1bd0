"""Lazy scores, described by factors instead of stored: the methods that losses call."""

# ruff: noqa: ARG002 - the default methods ignore their arguments.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

import torch
from torch import Tensor

from manyhot.engines.terms import Weight

Dim = int | Sequence[int]


@runtime_checkable
class LazyScores(Protocol):
    """Scores that are described instead of stored. Losses call their methods and never index them.

    Subclass it, or implement all its methods; ``side_loss`` and ``decoupled_loss`` have a default.
    """

    __slots__ = ()

    @property
    def shape(self) -> torch.Size:
        """``[..., L]``, as the dense tensor would have it."""
        ...

    def two_sided_logsumexp(
        self,
        labels: Any,
        *,
        where: Tensor | None = None,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
        who: str = "two_sided_logsumexp",
    ) -> tuple[Tensor, Tensor]:
        """``(pos, neg)`` with gradients to the factors of the scores."""
        ...

    def side_loss(
        self,
        who: str,
        form: str,
        labels: Any,
        offset: Tensor | float,
        *,
        where: Tensor | None = None,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        sample_weight: Tensor | None = None,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> Tensor | None:
        """The reduced loss of ``form``, if the scores have a faster way than through their sides; None otherwise."""
        return None

    def decoupled_loss(
        self, who: str, labels: Any, *, where: Tensor | None = None, dim: Dim = -1, validate: bool = False
    ) -> Tensor:
        """Decoupled softmax of each row, ``[...]``, with gradients to the factors of the scores."""
        raise TypeError(f"{who}: `logits` must be a tensor or LinearScores; got {type(self).__name__}. Call .dense().")

    def dense(self) -> Tensor:
        """The scores as one tensor."""
        ...

    def __mul__(self, factor: float) -> LazyScores:
        """The scores times a number."""
        ...


def is_lazy(scores: Any) -> TypeGuard[LazyScores]:
    """Whether ``scores`` are lazy. ``isinstance`` with ``LazyScores`` is slower: it looks for every method of the protocol."""
    return not isinstance(scores, Tensor) and hasattr(scores, "two_sided_logsumexp")
