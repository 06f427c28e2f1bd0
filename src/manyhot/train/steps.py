"""Steps down a gradient, for dense and sparse gradients alike, with a state that is a few tensors and a number."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from manyhot.train.checkpoint import Tensors


class PlainSteps:
    """``p <- p - rate * gradient``; biases, which are features of every row, go a tenth as far, so that they do not swing."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One step."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-rate if parameter.ndim > 1 else -0.1 * rate)

    def to_tensors(self) -> Tensors:
        """There is no state."""
        return {}

    def from_tensors(self, tensors: Tensors) -> None:
        """Nothing to take up."""
        del tensors


class AdamSteps:
    """AdamW; of a parameter with a sparse gradient only the rows in it move, without weight decay.

    Args:
        parameters: what to move.
        weight_decay: per step and rate, for parameters with more than one axis.
        betas: of the running means of gradient and squared gradient.
        epsilon: under the fraction.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        weight_decay: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self.parameters, self.weight_decay, self.betas, self.epsilon = list(parameters), weight_decay, betas, epsilon
        self.count = 0
        self.means = [torch.zeros_like(each) for each in self.parameters]
        self.squares = [torch.zeros_like(each) for each in self.parameters]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One step."""
        self.count += 1
        scale = rate / (1 - self.betas[0] ** self.count)
        root = (1 - self.betas[1] ** self.count) ** 0.5
        for parameter, mean, square in zip(self.parameters, self.means, self.squares, strict=True):
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.is_sparse:
                gradient = gradient.coalesce()
                rows, values = gradient.indices()[0], gradient.values()
                own_mean, own_square = mean[rows], square[rows]
                move = self._move(values, own_mean, own_square, root)
                mean[rows], square[rows] = own_mean, own_square
                parameter.index_add_(0, rows, move, alpha=-scale)
                continue
            if parameter.ndim > 1 and self.weight_decay:
                parameter.mul_(1 - rate * self.weight_decay)
            parameter.add_(self._move(gradient, mean, square, root), alpha=-scale)

    def _move(self, gradient: Tensor, mean: Tensor, square: Tensor, root: float) -> Tensor:
        mean.lerp_(gradient, 1 - self.betas[0])
        square.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
        return mean / (square.sqrt() / root + self.epsilon)

    def to_tensors(self) -> Tensors:
        """The state."""
        found = {"count": torch.tensor(self.count)}
        for place, (mean, square) in enumerate(zip(self.means, self.squares, strict=True)):
            found |= {f"mean.{place}": mean, f"square.{place}": square}
        return found

    def from_tensors(self, tensors: Tensors) -> None:
        """Take up a state."""
        self.count = int(tensors["count"])
        for place, (mean, square) in enumerate(zip(self.means, self.squares, strict=True)):
            mean.copy_(tensors[f"mean.{place}"])
            square.copy_(tensors[f"square.{place}"])
