"""A threshold for each row that maximises the F1 score to be expected from the probabilities of its labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import is_number
from manyhot.engines.terms import accumulation_dtype

# Newton's method on a convex, piecewise linear function: it has converged on rows of thousands of labels.
ITERATIONS = 20
SMALL = 1e-12


@dataclass(frozen=True)
class RowF1:
    """Compares scores with a threshold that each row gets from its own probabilities ``p = sigmoid(slope * s + intercept)``.

    A set ``A`` of labels has about the expected F1 score ``2 sum_A p / (|A| + sum p)``. The best set has the labels with
    ``p > t``, where ``t`` is half of its F1 score:

        t = sum_{p > t} p / (|{p > t}| + sum p)

    A row whose labels are all uncertain has a low ``t`` and gets many labels; a row with one certain label has a high one.

    Args:
        slope: of the log odds, above 0.
        intercept: of the log odds.

    Example:
        >>> RowF1(1.0, 0.0).thresholds(torch.tensor([[0.9, 0.1, 0.1], [0.4, 0.4, 0.4]]).logit()).sigmoid()
        tensor([[0.4286],
                [0.2857]])
    """

    slope: float
    intercept: float

    def __post_init__(self) -> None:
        for name, least in (("slope", 0.0), ("intercept", -math.inf)):
            value = getattr(self, name)
            if not is_number(value) or not math.isfinite(value) or value <= least:
                wanted = "a number above 0" if name == "slope" else "a finite number"
                raise ValueError(f"RowF1: `{name}` must be {wanted}; got {value!r}.")
            object.__setattr__(self, name, float(value))

    def thresholds(self, scores: Tensor, where: Tensor | None = None) -> Tensor:
        """``[..., 1]``: the threshold of each row, for scores ``[..., L]``. NaN and False in ``where`` do not count."""
        probs = torch.sigmoid(scores.double() * self.slope + self.intercept)
        probs = torch.where(probs.isnan() if where is None else probs.isnan() | ~where, 0.0, probs)
        total = probs.sum(dim=-1, keepdim=True)
        best = torch.zeros_like(total)
        for _ in range(ITERATIONS):
            above = probs > best
            found = torch.where(above, probs, 0.0).sum(dim=-1, keepdim=True)
            best = found / (above.double().sum(dim=-1, keepdim=True) + total).clamp(min=SMALL)
        best = best.clamp(SMALL, 1 - SMALL)
        return ((best.log() - (1 - best).log() - self.intercept) / self.slope).to(accumulation_dtype(scores.dtype))

    def relative(self, scores: Tensor, where: Tensor | None = None) -> Tensor:
        """``[..., L]``: the scores minus the threshold of their row."""
        return scores - self.thresholds(scores, where)

    def to_json(self) -> list[float]:
        """The two numbers, for ``from_json``."""
        return [self.slope, self.intercept]

    @classmethod
    def from_json(cls, data: Any) -> RowF1:
        """From the result of ``to_json``."""
        if not isinstance(data, (list, tuple)) or len(data) != 2:
            raise ValueError(f"RowF1.from_json: `data` must be a slope and an intercept; got {data!r}.")
        return cls(*data)
