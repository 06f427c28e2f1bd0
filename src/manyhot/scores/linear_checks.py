"""Checks of the parts of linear scores, and the sizes of their chunks."""

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


def chunk_labels(engine: LinearEngine, hidden: Tensor, weight: Tensor, given: int | None, *, kept: bool) -> int:
    """Labels per chunk: ``given``, or the engine's default, which depends on whether all scores are kept."""
    if given is None:
        return engine.chunk_size(hidden, weight.shape[0], kept)
    fitted = getattr(engine, "fitted_chunk", int)
    return int(fitted(given))


def kept_labels(engine: LinearEngine, hidden: Tensor, weight: Tensor, budget: int | None, chunk: int) -> int:
    """How many labels have their scores kept within ``budget`` bytes, a multiple of the chunk or all."""
    num_labels, a_label = weight.shape[0], max(hidden.shape[0], 1) * hidden.element_size()
    if budget is None:
        return num_labels if num_labels * a_label <= engine.default_budget(hidden.device) else 0
    most = budget // a_label
    return num_labels if most >= num_labels else most // chunk * chunk


def chunk_and_kept(
    engine: LinearEngine, hidden: Tensor, weight: Tensor, chunk_size: int | None, budget: int | None
) -> tuple[int, int]:
    """``(labels per chunk, number of labels whose scores are kept)``."""
    whole = kept_labels(engine, hidden, weight, budget, 1) == weight.shape[0]
    chunk = chunk_labels(engine, hidden, weight, chunk_size, kept=whole)
    return chunk, kept_labels(engine, hidden, weight, budget, chunk)
