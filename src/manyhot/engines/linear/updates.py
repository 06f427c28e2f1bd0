"""Updates of the weights of a linear head inside backward: SGD and row-wise AdaGrad, chunk by chunk.

    sgd       w = (1 - lr decay) w - lr g
    adagrad   v = v + mean over the row of g^2,  w = (1 - lr decay) w - lr g / (sqrt v + epsilon), one v a label

The gradient ``g`` exists for one chunk at a time. Weights in bfloat16 are rounded stochastically: with rounding to nearest, a
step that is small compared with its weight would never change it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.linear.problem import LinearProblem
from manyhot.engines.linear.rounding import round_stochastically, rounding_noise
from manyhot.engines.triton.linear import updates as triton_updates

UPDATES = ("sgd", "adagrad")


class FusedUpdate:
    """Applies the gradient of ``weight`` and ``bias`` while backward computes it. The tensors are changed in place.

    Args:
        kind: one of ``UPDATES``.
        weight: ``[L, D]``, float32 or bfloat16.
        bias: float32 ``[L]``, or None. It does not decay.
        lr: the learning rate.
        rate: the same as a float32 scalar on the device, which kernels read.
        weight_decay: decay of the weights, times ``lr`` a step.
        epsilon: of AdaGrad.
        squares: float32 ``[L]`` of AdaGrad for the weights, else None.
        bias_squares: the same for the bias.
        seed: int64 scalar, of the rounding noise.
        step: int64 scalar, counts the steps; each has its own noise.
        offset: the number of the first label of a shard; a label has the same noise in a shard as without sharding.
    """

    __slots__ = (
        "bias",
        "bias_squares",
        "epsilon",
        "kind",
        "lr",
        "offset",
        "rate",
        "seed",
        "squares",
        "step",
        "weight",
        "weight_decay",
    )

    def __init__(
        self,
        kind: str,
        weight: Tensor,
        bias: Tensor | None,
        *,
        lr: float,
        rate: Tensor,
        weight_decay: float,
        epsilon: float,
        squares: Tensor | None,
        bias_squares: Tensor | None,
        seed: Tensor,
        step: Tensor,
        offset: int = 0,
    ) -> None:
        self.kind, self.weight, self.bias = kind, weight.detach(), None if bias is None else bias.detach()
        self.lr, self.rate, self.weight_decay, self.epsilon = lr, rate, weight_decay, epsilon
        self.squares, self.bias_squares, self.seed, self.step = squares, bias_squares, seed, step
        self.offset = offset

    @torch.no_grad()
    def apply(self, problem: LinearProblem, start: int, stop: int, grad: Tensor) -> None:
        """Update the labels ``start`` to ``stop`` by ``grad [R, stop - start]``, the gradient of their scores."""
        hidden = problem.hidden
        if triton_updates.serves(self.weight):
            triton_updates.apply(self, hidden, start, stop, grad)
            return
        weight, keep = self.weight[start:stop], 1 - self.lr * self.weight_decay
        if self.kind == "sgd" and weight.dtype == grad.dtype == torch.float32:
            weight.addmm_(grad.mT, hidden, beta=keep, alpha=-self.lr)
            return
        change = (grad.mT @ hidden).float()
        if self.squares is not None:
            total = self.squares[start:stop].add_(change.square().mean(dim=1))
            change /= (total.sqrt() + self.epsilon).unsqueeze(1)
        changed = weight.float().mul_(keep).sub_(change, alpha=self.lr)
        if weight.dtype == torch.bfloat16:
            noise = rounding_noise(self.seed, self.step, self.offset + start, *weight.shape)
            weight.copy_(round_stochastically(changed, noise))
        else:
            weight.copy_(changed)

    @torch.no_grad()
    def finish(self, problem: LinearProblem, grad_bias: Tensor | None) -> None:  # noqa: ARG002
        """Update the bias and count the step."""
        if self.bias is not None and grad_bias is not None:
            if self.bias_squares is not None:
                self.bias_squares.addcmul_(grad_bias, grad_bias)
                grad_bias = grad_bias / (self.bias_squares.sqrt() + self.epsilon)
            self.bias.sub_(grad_bias * self.rate)
        self.step.add_(1)
        # Autograd does not see what kernels write, so the version counter is increased here: a second backward through the old
        # weights must raise.
        torch.autograd.graph.increment_version(self.weight)
