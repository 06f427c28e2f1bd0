"""Optimisers for dense and row-sparse gradients, whose state is a few tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import torch
from torch import nn

from manyhot.training.run.checkpoint import Tensors

# The first step of a row of embeddings relative to that of other parameters (chosen on eurlex57k's training rows).
EMBEDDING_RATE = 20.0


class Steps(Protocol):
    """An optimiser."""

    parameters: list[nn.Parameter]
    # Whether gradients are clipped before a step.
    clips: ClassVar[bool]

    def step(self, rate: float) -> None:
        """Move the parameters by their gradients at a learning rate."""
        ...

    def to_tensors(self) -> Tensors:
        """The state; the names and shapes are the same before the first step."""
        ...

    def from_tensors(self, tensors: Tensors) -> None:
        """Continue from a state."""
        ...


class PlainSteps:
    """``p <- p - rate * gradient``; biases, which get a gradient from every row, move a tenth as far, so that they do not
    oscillate."""

    clips: ClassVar[bool] = False

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
        """There is nothing to continue from."""
        del tensors


class AdamSteps:
    """AdamW.

    Args:
        parameters: the parameters to update.
        weight_decay: per step and rate, for parameters with more than one axis.
        betas: of the running means of gradient and squared gradient.
        epsilon: added to the denominator.
    """

    clips: ClassVar[bool] = True

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
            if parameter.ndim > 1 and self.weight_decay:
                parameter.mul_(1 - rate * self.weight_decay)
            mean.lerp_(gradient, 1 - self.betas[0])
            square.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
            parameter.addcdiv_(mean, square.sqrt().div_(root).add_(self.epsilon), value=-scale)

    def to_tensors(self) -> Tensors:
        """The state."""
        found = {"count": torch.tensor(self.count)}
        for place, (mean, square) in enumerate(zip(self.means, self.squares, strict=True)):
            found |= {f"mean.{place}": mean, f"square.{place}": square}
        return found

    def from_tensors(self, tensors: Tensors) -> None:
        """Continue from a state."""
        self.count = int(tensors["count"])
        for place, (mean, square) in enumerate(zip(self.means, self.squares, strict=True)):
            mean.copy_(tensors[f"mean.{place}"])
            square.copy_(tensors[f"square.{place}"])


class FusedAdamSteps:
    """AdamW in one kernel a step, for modules with many small parameters.

    Args:
        parameters: the parameters to update.
        weight_decay: per step and rate, for parameters with more than one axis.
    """

    clips: ClassVar[bool] = True

    def __init__(self, parameters: Sequence[nn.Parameter], *, weight_decay: float) -> None:
        self.parameters = list(parameters)
        decayed = [each for each in self.parameters if each.ndim > 1]
        others = [each for each in self.parameters if each.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
        self.adam = torch.optim.AdamW([group for group in groups if group["params"]], fused=True)
        for each in self.parameters:
            # torch creates the state at the first step. Created here, it is part of checkpoints from the start.
            self.adam.state[each] = {
                "step": torch.zeros((), device=each.device),
                "exp_avg": torch.zeros_like(each),
                "exp_avg_sq": torch.zeros_like(each),
            }

    def step(self, rate: float) -> None:
        """One step."""
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()

    def to_tensors(self) -> Tensors:
        """The state."""
        places = enumerate(self.parameters)
        return {f"{place}.{name}": each for place, own in places for name, each in self.adam.state[own].items()}

    def from_tensors(self, tensors: Tensors) -> None:
        """Continue from a state."""
        for name, each in self.to_tensors().items():
            each.copy_(tensors[name])


class EmbeddingSteps:
    """Row-wise AdaGrad for an embedding table, AdamW for all other parameters.

    A row of the table moves by ``EMBEDDING_RATE * rate * gradient / sqrt(sum of its mean squared gradients so far)``: rare
    words move as far in their few steps as frequent words in many. Only the rows of a step's gradient are read
    or written, and the state is one number a row.

    Args:
        table: the embeddings; their gradient is sparse.
        others: the other parameters to update.
        weight_decay: of the others, per step and rate, for parameters with more than one axis.
    """

    clips: ClassVar[bool] = False

    def __init__(self, table: nn.Parameter, others: Sequence[nn.Parameter], *, weight_decay: float) -> None:
        self.table, self.others = table, AdamSteps(others, weight_decay=weight_decay)
        self.parameters = [table, *others]
        self.sums = torch.zeros(len(table), device=table.device)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One step."""
        gradient = self.table.grad
        if gradient is not None:
            gradient = gradient.coalesce()
            rows, values = gradient.indices()[0], gradient.values()
            sums = self.sums[rows] + values.square().mean(dim=1)
            self.sums[rows] = sums
            move = values / sums.sqrt().clamp(min=1e-30).unsqueeze(1)
            self.table.index_add_(0, rows, move, alpha=-EMBEDDING_RATE * rate)
        self.others.step(rate)

    def to_tensors(self) -> Tensors:
        """The state."""
        return {"sums": self.sums, **self.others.to_tensors()}

    def from_tensors(self, tensors: Tensors) -> None:
        """Continue from a state."""
        self.sums.copy_(tensors["sums"])
        self.others.from_tensors(tensors)
