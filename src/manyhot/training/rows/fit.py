"""One fit: a body trained over rows by steps, resumable after any step to the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.bodies.networks import Columns
from manyhot.training.rows.inputs.prepare import Batch, SparseRows, take_rows
from manyhot.training.rows.objective import Objective
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.checkpoint import Tensors
from manyhot.training.run.processes import Processes
from manyhot.training.run.steps import AdamSteps, EmbeddingSteps, PlainSteps

Array = np.ndarray[Any, Any]
# For rows of length 1 the curvature of a row's loss along the weights is at most about 1/2; a step of this size for each row
# is the largest that gains, whatever the number of rows that are stepped for together.
LINEAR_STEP = 5.0
USUAL_RATE = 1e-3
# Over embeddings, whose steps do not depend on the size of the gradient; read off eurlex57k's training rows.
EMBEDDED_RATE = 5e-3


@dataclass(frozen=True)
class TrainingRows:
    """Prepared inputs with their labels, all of the same rows."""

    inputs: Any
    labels: SparseLabels
    unknown: SparseLabels | None = None
    sample_weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, picked: Array) -> TrainingRows:
        """Some rows."""
        index = torch.from_numpy(picked)
        return TrainingRows(
            self.inputs[index] if isinstance(self.inputs, Tensor) else self.inputs[picked],
            self.labels[index],
            None if self.unknown is None else self.unknown[index],
            None if self.sample_weight is None else self.sample_weight[index],
        )

    def weighted(self, weights: Tensor) -> TrainingRows:
        """The same rows, each weighing ``weights [R]`` times as much."""
        return replace(self, sample_weight=weights if self.sample_weight is None else weights * self.sample_weight)

    def where(self) -> Tensor | None:
        """Bool ``[R, L]``, True where a label is known; None when all are."""
        return None if self.unknown is None else ~self.unknown.dense(torch.bool)

    def batches(self, size: int, start: int = 0) -> Iterator[tuple[Batch, SparseLabels, Tensor | None, Tensor | None]]:
        """``(inputs, labels, where, sample_weight)`` from batch ``start`` on, in order."""
        # Cutting tensors costs a tenth of what cutting a scipy matrix does.
        whole = take_rows(self.inputs, slice(0, len(self))) if hasattr(self.inputs, "indptr") else None
        for first in range(start * size, len(self), size):
            part = slice(first, min(first + size, len(self)))
            unknown = None if self.unknown is None else consecutive(self.unknown, part)
            yield (
                whole.consecutive(part) if isinstance(whole, SparseRows) else take_rows(self.inputs, part),
                consecutive(self.labels, part),
                None if unknown is None else ~unknown.dense(torch.bool),
                None if self.sample_weight is None else self.sample_weight[part],
            )


def consecutive(labels: SparseLabels, part: slice) -> SparseLabels:
    """Rows next to each other, without looking anything up."""
    offsets = labels.offsets[part.start : part.stop + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    values = None if labels.values is None else labels.values[first:last]
    return SparseLabels(labels.indices[first:last], offsets - first, labels.num_labels, values=values, validate=False)


@dataclass
class FitState:
    """Where a fit stands."""

    epoch: int = 0
    batch: int = 0
    learning_rate: float = 0.0
    best: float = -math.inf
    best_epoch: int = 0
    loss_sum: float = 0.0
    best_tensors: Tensors = field(default_factory=dict)


class Fit:
    """A body, its objective and its steps, over some rows.

    Args:
        body: the module to train.
        rows: what to train on.
        settings: resolved ones: epochs, weights and the like are numbers.
        salt: sets the draws of this fit apart from those of others with the same seed.
        device: where.
        linear: plain gradient steps without a range test, for a linear body on rows of length 1.
    """

    def __init__(
        self, body: nn.Module, rows: TrainingRows, settings: TrainSettings, *, salt: int, device: torch.device, linear: bool
    ) -> None:
        self.body, self.rows, self.settings, self.salt, self.device, self.linear = body, rows, settings, salt, device, linear
        self.objective = Objective(settings).to(device)
        self.processes = Processes.current()
        self.processes.same_start(body)
        self.epochs = settings.epochs or 1
        self.num_batches = math.ceil(len(rows) / settings.batch_size)
        self.state = FitState()
        self.steps = self._make_steps()
        self.bfloat16 = (device.type == "cuda" and settings.precision != "float32") or settings.precision == "bfloat16"

    def _make_steps(self) -> PlainSteps | AdamSteps | EmbeddingSteps:
        parameters, decay = [*self.body.parameters(), *self.objective.parameters()], self.settings.weight_decay
        if self.linear:
            return PlainSteps(parameters)
        first = getattr(self.body, "first", None)
        if isinstance(first, Columns) and first.sparse_gradient:
            others = [each for each in parameters if each is not first.weight]
            return EmbeddingSteps(first.weight, others, weight_decay=decay)
        return AdamSteps(parameters, weight_decay=decay)

    def start(self) -> None:
        """Choose the learning rate where it is not given."""
        if self.settings.learning_rate is not None:
            self.state.learning_rate = self.settings.learning_rate
        elif self.linear:
            self.state.learning_rate = LINEAR_STEP * self.settings.batch_size / mean_square(self.rows.inputs)
        elif isinstance(self.steps, EmbeddingSteps):
            self.state.learning_rate = EMBEDDED_RATE
        else:
            self.state.learning_rate = self.range_test()

    def epoch_rows(self, epoch: int) -> TrainingRows:
        """This process's rows in the order of an epoch, which depends on nothing but the seed and the epoch."""
        draw = np.random.default_rng([self.settings.seed, self.salt, epoch])
        places, weights = self.processes.own_places(len(self.rows), self.settings.batch_size)
        own = self.rows.take(draw.permutation(len(self.rows))[places])
        return own if weights is None else own.weighted(weights)

    def run_epoch(self, after_step: Callable[[], None]) -> float:
        """The rest of the current epoch; its mean loss."""
        self.body.train()
        self.objective.train()
        size = self.settings.batch_size
        for batch in self.epoch_rows(self.state.epoch).batches(self.processes.own_size(size), self.state.batch):
            rows = min(size, len(self.rows) - self.state.batch * size)
            self.state.loss_sum += self.step(self._schedule(), *batch) * rows
            self.state.batch += 1
            after_step()
        loss = self.state.loss_sum / len(self.rows)
        self.state.epoch, self.state.batch, self.state.loss_sum = self.state.epoch + 1, 0, 0.0
        return loss

    def step(
        self, rate: float, batch: Batch, labels: SparseLabels, where: Tensor | None, sample_weight: Tensor | None
    ) -> float:
        """One step; the loss before it."""
        device = self.device
        moved = batch.to_device(device) if isinstance(batch, SparseRows) else batch.to(device)
        where, sample_weight = (None if part is None else part.to(device) for part in (where, sample_weight))
        for parameter in self.steps.parameters:
            parameter.grad = None
        self.processes.seed_step(self.settings.seed, self.salt, self.state.epoch, self.state.batch)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.bfloat16):
            loss = self.objective(self.body, moved, labels.to(device), where, sample_weight)
        weight = float(len(labels) if sample_weight is None else sample_weight.sum())
        value = self.processes.backward(loss, weight, self.steps.parameters)
        self.processes.same_buffers(self.body)
        if self.settings.clip and isinstance(self.steps, AdamSteps):
            clip_gradients(self.steps.parameters, self.settings.clip)
        self.steps.step(rate)
        return value

    def _schedule(self) -> float:
        done = self.state.epoch * self.num_batches + self.state.batch
        total = self.epochs * self.num_batches
        warm = 0 if self.linear else round(self.settings.warmup * total)
        peak = self.state.learning_rate
        if done < warm:
            return peak * (done + 1) / warm
        share = (done - warm) / max(total - warm, 1)
        if self.settings.schedule == "constant":
            return peak
        return peak * (1 - share if self.settings.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * share)))

    def range_test(self, *, steps: int = 80, low: float = 1e-5, high: float = 0.3) -> float:
        """A third to a tenth of the learning rate at which the loss, averaged over some steps, is lowest while the rate rises.

        A third is right for some hundred steps in all; a run of thousands ends better with less (eurlex57k's training rows).

        Where the loss does not fall by more than its noise in so few steps, it cannot be told: then it is ``USUAL_RATE``.
        """
        before, kept = self.to_parts(), self.state
        averages, average, done = [], 0.0, 0
        self.body.train()
        self.objective.train()
        while done < steps:
            for batch in self.epoch_rows(1_000_000 + done).batches(self.processes.own_size(self.settings.batch_size)):
                rate = low * (high / low) ** (done / (steps - 1))
                average = 0.9 * average + 0.1 * self.step(rate, *batch)
                averages.append(average / (1 - 0.9 ** (done + 1)))
                done += 1
                if done == steps or not averages[-1] < 4 * averages[0] + 1:
                    done = steps
                    break
        self.state = kept
        self.from_parts(*before)
        # The average of fewer steps than it is taken over is the luck of the first batches.
        settled = np.asarray(averages[10:])
        if not (settled < 0.97 * averages[min(10, len(averages) - 1)]).any():
            return USUAL_RATE
        best = 10 + int(np.nanargmin(settled))
        part = min(max(3 * math.sqrt(self.epochs * self.num_batches / 300), 3.0), 10.0)
        return float(low * (high / low) ** (best / (steps - 1)) / part)

    def to_parts(self) -> tuple[Tensors, dict[str, Any]]:
        """Everything that the rest of the fit depends on."""
        tensors = {f"body.{name}": each.clone() for name, each in self.body.state_dict().items()}
        tensors |= {f"objective.{name}": each.clone() for name, each in self.objective.state_dict().items()}
        tensors |= {f"best.{name}": each for name, each in self.state.best_tensors.items()}
        tensors |= {f"steps.{name}": each.clone() for name, each in self.steps.to_tensors().items()}
        tensors["random"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        state = {name: value for name, value in vars(self.state).items() if name != "best_tensors"}
        state["best"] = None if math.isinf(self.state.best) else self.state.best
        return tensors, {"state": state}

    def from_parts(self, tensors: Tensors, about: dict[str, Any]) -> None:
        """Take up what ``to_parts`` gave."""
        self.body.load_state_dict(below("body.", tensors))
        self.objective.load_state_dict(below("objective.", tensors))
        state = dict(about["state"])
        state["best"] = -math.inf if state["best"] is None else state["best"]
        self.state = FitState(**state, best_tensors=below("best.", tensors))
        self.steps.from_tensors(below("steps.", tensors))
        torch.set_rng_state(tensors["random"].cpu())
        if "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"].cpu(), self.device)

    def note_value(self, value: float) -> bool:
        """Take in the metric after an epoch, more is better; whether training should go on."""
        if value > self.state.best:
            self.state.best, self.state.best_epoch = value, self.state.epoch
            self.state.best_tensors = {name: each.detach().clone() for name, each in self.body.state_dict().items()}
            self.state.best_tensors |= {f"objective.{n}": each.clone() for n, each in self.objective.state_dict().items()}
        patience = self.settings.patience
        return not patience or self.state.epoch - self.state.best_epoch < patience

    def take_best(self) -> None:
        """Go back to the weights of the best epoch, where a metric was noted."""
        if self.state.best_tensors:
            self.objective.load_state_dict(below("objective.", self.state.best_tensors))
            own = {name: each for name, each in self.state.best_tensors.items() if not name.startswith("objective.")}
            self.body.load_state_dict(own)


def below(prefix: str, named: dict[str, Any]) -> dict[str, Any]:
    """The entries whose name starts with ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}


def mean_square(inputs: Any) -> float:
    """The mean squared length of the rows."""
    if isinstance(inputs, Tensor):
        return float(inputs.float().pow(2).sum() / max(len(inputs), 1))
    values = inputs if isinstance(inputs, np.ndarray) else inputs.data
    return max(float((values.astype(np.float64) ** 2).sum() / max(inputs.shape[0], 1)), 1e-12)


def clip_gradients(parameters: list[nn.Parameter], largest: float) -> None:
    """Scale all gradients to a norm of at most ``largest``."""
    parts = [each.grad for each in parameters if each.grad is not None]
    norm = torch.stack([part.float().norm() for part in parts]).norm()
    factor = (largest / (norm + 1e-6)).clamp(max=1.0)
    for part in parts:
        part.mul_(factor)
