"""Contributions of inputs to scores: exact if the score is linear in its inputs, otherwise by gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot._checks import check_at_least

# Number of points on the path from the baseline at which gradients are computed.
STEPS = 16
# An explanation is not reliable if its error is a larger share of the score's distance from the baseline.
RELIABLE = 0.1
# Features whose weights are expanded to float32 at once.
FEATURES_AT_ONCE = 1 << 16


def is_reliable(score: float, base: float, error: float) -> bool:
    """Whether contributions explain a score: the error is at most a tenth of the score's distance from the baseline."""
    return abs(error) <= RELIABLE * abs(score - base) + 1e-6


class Attribution(NamedTuple):
    """The contributions to the scores of some labels: ``score = base + parts.sum() + error``.

    Args:
        score: float64 ``[L]``, the score of the input.
        base: float64 ``[L]``, the score of the baseline, a neutral input.
        parts: float64 ``[L, ...]``, the contribution of each element of the input.
    """

    score: Tensor
    base: Tensor
    parts: Tensor

    @property
    def error(self) -> Tensor:
        """``[L]``, the part of the score that is not explained; only rounding if the score is linear."""
        return self.score - self.base - self.parts.flatten(1).sum(dim=1)


class LinearFactors(NamedTuple):
    """Scores that are linear in the inputs: ``s = x A + b``, or ``s = (x A) B^T + b`` with two low-rank factors.

    Args:
        first: A, ``[F, L]``, or ``[F, H]`` with a second factor; of any type.
        second: B, ``[L, H]``, or None.
        bias: b, ``[L]``.
        scales: ``[F]``, factors of the rows of ``first``, or None.
    """

    first: Tensor
    second: Tensor | None
    bias: Tensor
    scales: Tensor | None = None

    def picked(self, columns: Tensor | slice) -> Tensor:
        """Some rows of A in float32."""
        columns = columns if isinstance(columns, slice) else columns.to(self.first.device)
        rows = self.first[columns].float()
        return rows if self.scales is None else rows * self.scales[columns].unsqueeze(1)

    def rows(self, columns: Tensor, labels: Sequence[int]) -> tuple[Tensor, Tensor]:
        """``(weight [L', K], bias [L'])`` of some features for some labels, in float64 on the CPU."""
        picked, bias = self.picked(columns), self.bias[list(labels)].double().cpu()
        if self.second is None:
            return picked[:, list(labels)].T.double().cpu(), bias
        return (self.second[list(labels)].double() @ picked.double().T).cpu(), bias

    def weights(self, labels: Sequence[int]) -> Tensor:
        """float32 ``[L', F]``: the weights of all features for some labels, computed from blocks of features."""
        own = list(labels)
        blocks = (self.picked(slice(start, start + FEATURES_AT_ONCE)) for start in range(0, len(self.first), FEATURES_AT_ONCE))
        parts = [part[:, own].T if self.second is None else self.second[own].float() @ part.T for part in blocks]
        return torch.cat(parts, dim=1)


def linear_contributions(values: Tensor, weight: Tensor, bias: Tensor) -> Attribution:
    """The exact contributions to ``s = W x + b``: weight times value, in float64.

    Args:
        values: ``[K]``, the elements of x that are not 0.
        weight: ``[L, K]``, their weights for the requested labels.
        bias: ``[L]``.

    Returns:
        Parts ``[L, K]``; with the base they add up to the score exactly.

    Example:
        >>> found = linear_contributions(torch.tensor([2.0, 1.0]), torch.tensor([[1.0, -3.0]]), torch.tensor([0.5]))
        >>> found.parts.tolist(), found.score.tolist()
        ([[2.0, -3.0]], [-0.5])
    """
    parts = weight.double() * values.double()
    base = bias.double()
    return Attribution(base + parts.sum(dim=1), base, parts)


def gradient_contributions(
    score: Callable[[Tensor], Tensor], x: Tensor, baseline: Tensor, labels: Sequence[int], *, steps: int = 1
) -> Attribution:
    """Gradient times input, for nonlinear bodies.

    The parts are ``(x - x0) * d s / d x``. With more than one step the gradient is averaged over the straight path from
    ``x0`` to ``x`` (integrated gradients, midpoint rule), which makes the error smaller. Do not rely on the parts if the error
    is large.

    Args:
        score: maps a batch ``[N, ...]`` to logits ``[N, L]``.
        x: the input ``[...]`` of one row.
        baseline: x0, a neutral input of the same shape.
        labels: the requested labels.
        steps: number of points on the path at which gradients are computed; with 1 it is ``x`` itself.

    Example:
        >>> square = lambda batch: (batch ** 2).sum(dim=1, keepdim=True)
        >>> x = torch.tensor([1.0, 2.0])
        >>> gradient_contributions(square, x, torch.zeros(2), [0]).error.tolist()
        [-5.0]
        >>> gradient_contributions(square, x, torch.zeros(2), [0], steps=8).parts.tolist()
        [[1.0, 4.0]]
    """
    check_at_least("gradient_contributions", "steps", steps, 1)
    picked = torch.as_tensor(list(labels))
    with torch.no_grad():
        base, own = (score(point[None])[0, picked].double() for point in (baseline, x))
    # One step is plain gradient times input, at x itself.
    shares = [1.0] if steps == 1 else [(step + 0.5) / steps for step in range(steps)]
    total = torch.zeros(len(picked), *x.shape, dtype=torch.float64)
    for share in shares:
        point = (baseline + share * (x - baseline)).detach().requires_grad_()
        with torch.enable_grad():
            scores = score(point[None])[0, picked]
            for place in range(len(picked)):
                (gradient,) = torch.autograd.grad(scores[place], point, retain_graph=place + 1 < len(picked))
                total[place] += gradient.double().cpu()
    parts = total / len(shares) * (x - baseline).double().cpu()
    return Attribution(own.cpu(), base.cpu(), parts)
