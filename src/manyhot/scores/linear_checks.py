"""Checks of the parts of linear scores, and a problem whose parts are checked."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from manyhot._checks import check_logits, shape_text
from manyhot.engines.linear.problem import LinearEngine
from manyhot.engines.terms import DenseTerms, SparseTerms


def check_parts(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Check the shapes of ``hidden [..., D]``, ``weight [L, D]`` and ``bias [L]``."""
    check_logits("LinearScores", hidden, "hidden")
    check_logits("LinearScores", weight, "weight")
    if weight.ndim != 2 or weight.shape[1] != hidden.shape[-1]:
        raise ValueError(
            f"LinearScores: `weight` must be [L, D] with the D of `hidden`, {hidden.shape[-1]}; got {shape_text(weight.shape)}."
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"LinearScores: `bias` must have one value per label, {shape_text(weight.shape[:1])}; got {shape_text(bias.shape)}."
        )


class LinearCall(NamedTuple):
    """A checked problem and its engine."""

    parts: tuple[Tensor, Tensor, Tensor | None]
    terms: DenseTerms | SparseTerms
    engine: LinearEngine
    chunk: int
    kept: int
