"""Many small models trained together: S seeds, each with T trials on the same batches.

Axes: S seeds, T trials, B rows of a batch, F features, H hidden units, K outputs. The T trials of a seed share their inputs, so
their first layers are one product ``[B, F] x [F, T K]``; everything else is elementwise or a batched product. A member is the
model of one seed and trial. Members are independent: the loss is a sum over members, and the optimiser has a learning rate for
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from manyhot.training.run.steps import AdamSteps


@dataclass(frozen=True)
class Shape:
    """Sizes of a body; ``hidden`` is 0 for a linear body."""

    features: int
    outputs: int
    hidden: int
    dropout: float

    @property
    def parameters(self) -> int:
        """The number of parameters of one member."""
        if not self.hidden:
            return (self.features + 1) * self.outputs
        return (self.features + 1) * self.hidden + (self.hidden + 1) * self.outputs


class Ensemble:
    """The weights of all members: ``W [S, F, T, K]`` and ``b [S, T, K]`` for a linear body; an mlp has a hidden layer before.

    The bias of a head starts at the log odds of its output, as in ``manyhot.train``; all trials of a seed have the same initial
    weights.

    Args:
        shape: the sizes.
        priors: ``[S, K]``, the initial biases of each seed.
        trials: T.
        seeds: the random seeds.
        device: the device.
        widths: the number of features of each seed; None: all of them.
    """

    def __init__(
        self,
        shape: Shape,
        priors: Tensor,
        *,
        trials: int,
        seeds: Sequence[int],
        device: torch.device,
        widths: Sequence[int] | None = None,
    ) -> None:
        self.shape, self.trials = shape, trials
        self.widths = list(widths) if widths is not None else [shape.features] * len(seeds)
        size, (features, outputs) = len(seeds), (shape.features, shape.outputs)
        bias = priors.unsqueeze(1).expand(size, trials, outputs)
        if shape.hidden:
            draws = [torch.Generator().manual_seed(seed) for seed in seeds]
            own = [
                torch.randn(width, shape.hidden, generator=draw) * width**-0.5
                for draw, width in zip(draws, self.widths, strict=True)
            ]
            first = torch.stack([pad(each, (0, 0, 0, features - len(each))) for each in own])
            bound = 0.1 * shape.hidden**-0.5
            head = torch.stack([torch.rand(shape.hidden, outputs, generator=draw) for draw in draws]) * (2 * bound) - bound
            given = [
                first.unsqueeze(2).expand(size, features, trials, shape.hidden),
                torch.zeros(size, trials, shape.hidden),
                head.unsqueeze(1).expand(size, trials, shape.hidden, outputs),
                bias,
            ]
        else:
            given = [torch.zeros(size, features, trials, outputs), bias]
        self.weights = [each.to(device).contiguous().requires_grad_() for each in given]
        self.trial_axes = (2, 1, 1, 1) if shape.hidden else (2, 1)

    def __call__(self, inputs: Tensor, keep: Tensor | None = None) -> Tensor:
        """Logits ``[S, B, T, K]`` of ``inputs [S, B, F]``; ``keep`` is the dropout mask ``[S, B, H]``, or ``[S, B, F]``."""
        return self._forward(self.weights, inputs, keep)

    def _forward(self, weights: Sequence[Tensor], inputs: Tensor, keep: Tensor | None) -> Tensor:
        if not self.shape.hidden:
            weight, bias = weights
            return self._columns(inputs if keep is None else inputs * keep, weight, bias)
        first, offset, head, bias = weights
        hidden = self._columns(inputs, first, offset).relu()
        if keep is not None:
            hidden = hidden * keep.unsqueeze(2)
        return torch.einsum("sbth,sthk->sbtk", hidden, head) + bias.unsqueeze(1)

    @staticmethod
    def _columns(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        seeds, features, trials, out = weight.shape
        product = torch.bmm(inputs, weight.reshape(seeds, features, trials * out))
        return product.reshape(seeds, inputs.shape[1], trials, out) + bias.unsqueeze(1)

    def scores_of(self, weights: Sequence[Tensor], inputs: Tensor, seed_place: int) -> Tensor:
        """Scores ``[T, N, K]`` of all trials of one seed, without dropout; ``weights`` may be those of a snapshot."""
        part = [each[seed_place : seed_place + 1] for each in weights]
        return self._forward(part, inputs.unsqueeze(0), None)[0].transpose(0, 1).contiguous()

    def one(self, weights: Sequence[Tensor], inputs: Tensor, seed_place: int, trial: int) -> Tensor:
        """Scores ``[N, K]`` of one member."""
        part = [
            each[seed_place : seed_place + 1].narrow(axis, trial, 1)
            for each, axis in zip(weights, self.trial_axes, strict=True)
        ]
        return self._forward(part, inputs.unsqueeze(0), None)[0, :, 0]

    def drop_mask(self, rows: int, draws: Sequence[torch.Generator]) -> Tensor:
        """The dropout mask ``[S, B, H]``, or ``[S, B, F]`` for a linear body, sampled separately for each seed."""
        full = self.shape.hidden or self.shape.features
        widths = [full] * len(draws) if self.shape.hidden else self.widths
        kept = 1 - self.shape.dropout
        device = self.weights[0].device
        masks = [
            pad((torch.rand(rows, width, generator=draw, device=device) < kept).float(), (0, full - width))
            for draw, width in zip(draws, widths, strict=True)
        ]
        return torch.stack(masks) / kept

    def spread(self, values: Tensor) -> list[Tensor]:
        """``values [S, T]`` reshaped to multiply the weights."""
        return [
            values.reshape([size if axis in (0, own) else 1 for axis, size in enumerate(weight.shape)])
            for weight, own in zip(self.weights, self.trial_axes, strict=True)
        ]


class MemberSteps(AdamSteps):
    """AdamW with a learning rate for each member."""

    def __init__(self, ensemble: Ensemble, extra: Sequence[Tensor], rates: Tensor, *, weight_decay: float) -> None:
        parameters = [*ensemble.weights, *extra]
        super().__init__(parameters, weight_decay=weight_decay)
        device = ensemble.weights[0].device
        self.rates = [*ensemble.spread(rates.to(device)), *(rates.to(device) for _ in extra)]
        # Biases and learned thresholds do not decay.
        self.decays = [True, False] if not ensemble.shape.hidden else [True, False, True, False]
        self.decays += [False] * len(extra)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One step; ``rate`` multiplies the learning rate of each member."""
        self.count += 1
        scale = rate / (1 - self.betas[0] ** self.count)
        root = (1 - self.betas[1] ** self.count) ** 0.5
        parts = zip(self.parameters, self.rates, self.decays, self.means, self.squares, strict=True)
        for parameter, own, decays, mean, square in parts:
            if parameter.grad is None:
                continue
            if decays and self.weight_decay:
                parameter.mul_(1 - own * (rate * self.weight_decay))
            mean.lerp_(parameter.grad, 1 - self.betas[0])
            square.mul_(self.betas[1]).addcmul_(parameter.grad, parameter.grad, value=1 - self.betas[1])
            # The gradient is no longer needed: its memory is reused for the update.
            move = torch.sqrt(square, out=parameter.grad).div_(root).add_(self.epsilon)
            parameter.addcmul_(torch.div(mean, move, out=move), own, value=-scale)
            parameter.grad = None


class Snapshot:
    """The best weights of each member so far, with their values ``[S, T]`` and epochs."""

    def __init__(self, ensemble: Ensemble, extra: Sequence[Tensor], seeds: int) -> None:
        self.ensemble = ensemble
        self.weights = [each.detach().clone() for each in ensemble.weights]
        self.extra = [each.detach().clone() for each in extra]
        self.values = torch.full((seeds, ensemble.trials), float("-inf"), dtype=torch.float64)
        self.epochs = torch.zeros(seeds, ensemble.trials, dtype=torch.int64)

    @torch.no_grad()
    def update(self, extra: Sequence[Tensor], values: Tensor, epoch: int, running: Tensor) -> Tensor:
        """Store the weights of members that are ``running`` and improved; returns which did, bool ``[S, T]``."""
        better = (values > self.values) & running
        if bool(better.any()):
            self.values = torch.where(better, values, self.values)
            self.epochs[better] = epoch
            here = better.to(self.weights[0].device)
            now = [*self.ensemble.weights, *extra]
            kept = [*self.weights, *self.extra]
            for old, new, mask in zip(kept, now, [*self.ensemble.spread(here), *(here for _ in extra)], strict=True):
                old.copy_(torch.where(mask, new, old))
        return better
