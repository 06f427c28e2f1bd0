"""One fit over windows of texts: steps, a running average of weights, early stopping; resumable after any step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.training.run.checkpoint import Tensors
from manyhot.training.spans.inputs import Encoded
from manyhot.training.spans.rows import SpanBatch, StoredRows
from manyhot.training.spans.settings import SpanSettings

# Windows of similar length stand in one batch: they are sorted within pools of this many batches.
POOL = 32

Objective = Callable[[nn.Module, SpanBatch], Tensor]


@dataclass
class SpanFitState:
    """Where a fit stands."""

    epoch: int = 0
    batch: int = 0
    steps: int = 0
    best: float = -math.inf
    best_epoch: int = 0
    loss_sum: float = 0.0
    best_tensors: Tensors = field(default_factory=dict)


class SpanFit:
    """A network, its objective and AdamW, over windows.

    Args:
        network: the module to train.
        objective: from network and batch to the loss.
        rows: the windows.
        num_types: H.
        settings: with a learning rate.
        device: where.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        rows: Sequence[Encoded],
        *,
        num_types: int,
        settings: SpanSettings,
        device: torch.device,
    ) -> None:
        self.network, self.objective, self.settings, self.device = network, objective, settings, device
        self.rows = StoredRows(rows, num_types=num_types, device=device)
        self.peak = settings.learning_rate or 1e-3
        self.num_batches = math.ceil(len(self.rows) / settings.batch_size)
        named = {name: each for name, each in network.named_parameters() if each.requires_grad}
        self.parameters: list[Tensor] = list(named.values())
        decayed = [each for each in self.parameters if each.ndim > 1]
        others = [each for each in self.parameters if each.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self.adam = torch.optim.AdamW(groups, lr=self.peak, fused=True)
        self.average = {name: each.detach().clone() for name, each in named.items()} if settings.average else {}
        self.state = SpanFitState()
        cuda = device.type == "cuda"
        self.bfloat16 = settings.precision == "bfloat16" or (
            cuda and settings.precision == "auto" and torch.cuda.is_bf16_supported()
        )

    def epoch_batches(self, epoch: int) -> list[np.ndarray[Any, Any]]:
        """The rows of each batch of an epoch, of similar length; depends on nothing but the seed and the epoch."""
        draw = np.random.default_rng([self.settings.seed, epoch])
        order, size = draw.permutation(len(self.rows)), self.settings.batch_size
        batches = []
        for start in range(0, len(order), POOL * size):
            pool = order[start : start + POOL * size]
            pool = pool[np.argsort(self.rows.lengths[pool], kind="stable")]
            batches += [pool[first : first + size] for first in range(0, len(pool), size)]
        return [batches[place] for place in draw.permutation(len(batches))]

    def run_epoch(self, after_step: Callable[[], None]) -> float:
        """The rest of the current epoch; its mean loss."""
        self.network.train()
        total = torch.zeros((), device=self.device)
        for picked in self.epoch_batches(self.state.epoch)[self.state.batch :]:
            # Added up on the device: a look at every loss would wait for it.
            total += self.step(self.rows.batch(picked)) * len(picked)
            self.state.batch += 1
            self.state.steps += 1
            if self.state.steps % 16 == 0 or self.device.type == "cpu":
                self.state.loss_sum += float(total)
                total.zero_()
                after_step()
        loss = (self.state.loss_sum + float(total)) / max(len(self.rows), 1)
        self.state.epoch, self.state.batch, self.state.loss_sum = self.state.epoch + 1, 0, 0.0
        return loss

    def step(self, batch: SpanBatch) -> Tensor:
        """One step; the loss before it."""
        rate = self._rate()
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss = self.objective(self.network, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.settings.clip:
            nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        self.adam.step()
        if self.average:
            # Early weights are forgotten faster than the decay says.
            share = 1 - min(self.settings.average, (1 + self.state.steps) / (10 + self.state.steps))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.average.values()), self.parameters, share)
        return loss.detach()

    def _rate(self) -> float:
        total = self.settings.epochs * self.num_batches
        warm = round(self.settings.warmup * total)
        if self.state.steps < warm:
            return self.peak * (self.state.steps + 1) / warm
        share = (self.state.steps - warm) / max(total - warm, 1)
        if self.settings.schedule == "constant":
            return self.peak
        return self.peak * (1 - share if self.settings.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * share)))

    def model_weights(self) -> Tensors:
        """The weights that are the model: the averaged ones where there are any."""
        return {**self.network.state_dict(), **self.average}

    def note_value(self, value: float) -> bool:
        """Take in the F1 after an epoch; whether training should go on."""
        if value > self.state.best:
            self.state.best, self.state.best_epoch = value, self.state.epoch
        if value >= self.state.best:
            # Of equals the later: it has seen more.
            self.state.best_tensors = {name: each.detach().clone() for name, each in self.model_weights().items()}
        patience = self.settings.patience
        return not patience or self.state.epoch - self.state.best_epoch < patience

    def final_weights(self) -> Tensors:
        """Of the best epoch where a value was noted, else of the last."""
        return self.state.best_tensors or self.model_weights()

    def to_parts(self) -> tuple[Tensors, dict[str, Any]]:
        """Everything that the rest of the fit depends on."""
        tensors = {f"network.{name}": each.clone() for name, each in self.network.state_dict().items()}
        tensors |= {f"average.{name}": each.clone() for name, each in self.average.items()}
        tensors |= {f"best.{name}": each for name, each in self.state.best_tensors.items()}
        for place, own in self.adam.state_dict()["state"].items():
            tensors |= {f"adam.{place}.{name}": each.clone() for name, each in own.items()}
        tensors["random"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        state = {name: value for name, value in vars(self.state).items() if name != "best_tensors"}
        state["best"] = None if math.isinf(self.state.best) else self.state.best
        return tensors, {"state": state}

    def from_parts(self, tensors: Tensors, about: dict[str, Any]) -> None:
        """Take up what ``to_parts`` gave."""
        parts: dict[str, Tensors] = {"network": {}, "average": {}, "best": {}, "adam": {}}
        for name, each in tensors.items():
            room, _, rest = name.partition(".")
            if room in parts:
                parts[room][rest] = each.to(self.device)
        self.network.load_state_dict(parts["network"])
        for name, each in self.average.items():
            each.copy_(parts["average"][name])
        adam = self.adam.state_dict()
        for name, each in parts["adam"].items():
            place, _, key = name.partition(".")
            adam["state"].setdefault(int(place), {})[key] = each
        self.adam.load_state_dict(adam)
        state = dict(about["state"])
        state["best"] = -math.inf if state["best"] is None else state["best"]
        self.state = SpanFitState(**state, best_tensors=parts["best"])
        torch.set_rng_state(tensors["random"].cpu())
        if "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"].cpu(), self.device)
