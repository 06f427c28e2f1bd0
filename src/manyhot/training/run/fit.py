"""One fit of modules to batches: steps, schedule, early stopping. A fit resumed after any step gives the same numbers."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from manyhot.training.run.checkpoint import CheckpointError, Tensors
from manyhot.training.run.device import uses_bfloat16
from manyhot.training.run.early_stopping import EarlyStopping
from manyhot.training.run.processes import Processes
from manyhot.training.run.schedule import scheduled_rate
from manyhot.training.run.settings import RunSettings
from manyhot.training.run.steps import Steps

SECONDS_BETWEEN_READS = 2.0


class DivergedError(ValueError):
    """The loss of a fit is no longer a finite number."""


@dataclass
class FitState:
    """Where a fit stands: epochs done, batches done of the next one, peak learning rate, loss summed over its rows."""

    epoch: int = 0
    batch: int = 0
    learning_rate: float = 0.0
    loss_sum: float = 0.0


class Fit(ABC):
    """Modules, their steps and the state of training. A subclass says what a batch is and what its loss is.

    Args:
        parts: the modules that are trained, by the name their tensors have in checkpoints.
        steps: the optimiser over their parameters.
        settings: seed, schedule, clipping and the like.
        epochs: passes over the rows.
        num_rows: rows of a pass, over all processes.
        salt: separates the random draws of fits with the same seed.
        device: where the modules are.
        warmup: share of the steps with a rising learning rate; None takes the settings'.
        average: decay of a running average of the weights, which is then the model; 0 for none.
        later_of_equals: see ``EarlyStopping``.
        nothing: see ``EarlyStopping``.
        processes: the processes that share the rows; None: all that torch.distributed was initialised with.
    """

    # Whether a checkpoint is written after every epoch, not only once `checkpoint_seconds` have passed.
    checkpoint_every_epoch = True
    # A fit that took fewer seconds gets no checkpoint at its end: to repeat it is faster than to write and read one.
    seconds_worth_saving = 0.0
    # On a GPU the loss is read every so many steps or seconds, because reading it waits for the device; None: seconds alone.
    steps_between_reads: int | None = 16
    # Parts whose running means are averaged over the processes after every step.
    shared_buffers: tuple[str, ...] = ()

    def __init__(
        self,
        parts: Mapping[str, nn.Module],
        steps: Steps,
        settings: RunSettings,
        *,
        epochs: int,
        num_rows: int,
        salt: int,
        device: torch.device,
        warmup: float | None = None,
        average: float = 0.0,
        later_of_equals: bool = False,
        nothing: float = -math.inf,
        processes: Processes | None = None,
    ) -> None:
        self.parts, self.steps, self.epochs, self.num_rows = dict(parts), steps, epochs, num_rows
        self.seed, self.salt, self.device = settings.seed, salt, device
        self.batch_size, self.schedule, self.clip = settings.batch_size, settings.schedule, settings.clip
        self.warmup = settings.warmup if warmup is None else warmup
        self.num_batches = math.ceil(num_rows / settings.batch_size)
        self.bfloat16 = uses_bfloat16(device, settings.precision)
        self.processes = Processes.current() if processes is None else processes
        for part in self.parts.values():
            self.processes.same_start(part)
        self.average_decay = average
        self.average = {name: each.detach().clone() for name, each in self._parameters().items()} if average else {}
        self.state = FitState()
        self.stopping = EarlyStopping(settings.patience, later_of_equals=later_of_equals, nothing=nothing)

    @abstractmethod
    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[Any, int]]:
        """``(batch, rows)`` of this process from batch ``start`` of an epoch on; ``rows`` counts those of all processes.

        The order depends on the seed and the epoch alone.
        """

    @abstractmethod
    def loss(self, batch: Any) -> tuple[Tensor, float]:
        """``(mean loss, weight)`` of this process's rows of a batch."""

    @property
    def steps_done(self) -> int:
        """Steps since the start of the fit."""
        return self.state.epoch * self.num_batches + self.state.batch

    def rate(self) -> float:
        """The learning rate of the next step."""
        total = self.epochs * self.num_batches
        return scheduled_rate(self.steps_done, total, peak=self.state.learning_rate, warmup=self.warmup, schedule=self.schedule)

    def run_epoch(self, after_step: Callable[[], None]) -> float:
        """Run the rest of the current epoch; returns its mean loss."""
        self.train_mode()
        total, looked = torch.zeros((), device=self.device), time.monotonic()
        for batch, rows in self.batches(self.state.epoch, self.state.batch):
            total += self.step(self.rate(), batch) * rows
            self.state.batch += 1
            if self.reads_loss(looked):
                looked = time.monotonic()
                self._add_loss(total)
                after_step()
        self._add_loss(total)
        loss = self.state.loss_sum / max(self.num_rows, 1)
        self.state = FitState(self.state.epoch + 1, 0, self.state.learning_rate)
        return loss

    def reads_loss(self, looked: float) -> bool:
        """Whether the loss is read after this step; ``looked`` is the time of the last read."""
        every = self.steps_between_reads
        often = self.device.type == "cpu" or (every is not None and self.state.batch % every == 0)
        return often or time.monotonic() - looked > SECONDS_BETWEEN_READS

    def _add_loss(self, total: Tensor) -> None:
        self.state.loss_sum += float(total)
        total.zero_()
        if not math.isfinite(self.state.loss_sum):
            raise DivergedError(
                f"train: the loss must stay a finite number; it is {self.state.loss_sum} in epoch {self.state.epoch + 1}"
                f" at a peak learning rate of {self.state.learning_rate:g}. Choose a smaller `learning_rate`, or leave it out."
            )

    def train_mode(self) -> None:
        """Switch all modules to training mode."""
        for part in self.parts.values():
            part.train()

    def step(self, rate: float, batch: Any) -> Tensor:
        """Take one step; returns the loss before it, on the device."""
        for parameter in self.steps.parameters:
            parameter.grad = None
        self.processes.seed_step(self.seed, self.salt, self.state.epoch, self.state.batch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss, weight = self.loss(batch)
        value = self.processes.backward(loss, weight, self.steps.parameters)
        for part in self.shared_buffers:
            self.processes.same_buffers(self.parts[part])
        if self.clip and self.steps.clips:
            nn.utils.clip_grad_norm_(self.steps.parameters, self.clip)
        self.steps.step(rate)
        if self.average:
            # The decay is warmed up, so that early weights are forgotten faster.
            share = 1 - min(self.average_decay, (1 + self.steps_done) / (10 + self.steps_done))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.average.values()), list(self._parameters().values()), share)
        return value

    def _parameters(self) -> dict[str, Tensor]:
        named = ((f"{part}.{name}", each) for part, own in self.parts.items() for name, each in own.named_parameters())
        return {name: each for name, each in named if each.requires_grad}

    def _states(self) -> Tensors:
        return {f"{part}.{name}": each for part, own in self.parts.items() for name, each in own.state_dict().items()}

    def weights(self) -> Tensors:
        """A copy of the model's weights: the running average if there is one."""
        return {name: each.detach().clone() for name, each in {**self._states(), **self.average}.items()}

    def note_value(self, value: float) -> bool:
        """Record the metric after an epoch (larger is better); returns whether training should continue."""
        return self.stopping.note(value, self.state.epoch, self.weights)

    def take(self, weights: Tensors) -> None:
        """Load weights that ``weights`` returned."""
        for part, own in self.parts.items():
            own.load_state_dict(below(f"{part}.", weights))

    def finish(self) -> None:
        """Load the weights of the best epoch if a metric was recorded, otherwise the last ones."""
        self.take(self.stopping.weights or self.weights())

    def to_parts(self) -> tuple[Tensors, dict[str, Any]]:
        """Everything that the rest of the fit depends on."""
        tensors = {f"part.{name}": each.clone() for name, each in self._states().items()}
        tensors |= {f"average.{name}": each.clone() for name, each in self.average.items()}
        tensors |= {f"best.{name}": each for name, each in self.stopping.weights.items()}
        tensors |= {f"steps.{name}": each.clone() for name, each in self.steps.to_tensors().items()}
        tensors["random"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        return tensors, {"state": asdict(self.state), "stopping": self.stopping.to_json()}

    def from_parts(self, tensors: Tensors, about: dict[str, Any]) -> None:
        """Continue from the result of ``to_parts``; a checkpoint of another model is an error."""
        self._check_fits(tensors)
        try:
            state = FitState(**about["state"])
            self.stopping.restore(about["stopping"], self._on_device(below("best.", tensors)))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"its state cannot be read ({error})") from error
        try:
            self.take(below("part.", tensors))
            torch.set_rng_state(tensors["random"].cpu())
        except RuntimeError as error:
            raise CheckpointError(str(error).splitlines()[0]) from error
        with torch.no_grad():
            for name, each in self.average.items():
                each.copy_(tensors[f"average.{name}"])
        self.steps.from_tensors(below("steps.", tensors))
        self.state = state
        if "random.cuda" in tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"].cpu(), self.device)

    def _on_device(self, tensors: Tensors) -> Tensors:
        return {name: each.to(self.device) for name, each in tensors.items()}

    def _check_fits(self, tensors: Tensors) -> None:
        wanted = {name: each for name, each in self.to_parts()[0].items() if name != "random.cuda"}
        if any(name.startswith("best.") for name in tensors):
            wanted |= {f"best.{name}": each for name, each in self._states().items()}
        for name, own in wanted.items():
            found = tensors.get(name)
            if found is None or found.shape != own.shape or found.dtype != own.dtype:
                got = "none" if found is None else f"{found.dtype} {list(found.shape)}"
                raise CheckpointError(f"tensor {name!r} must be {own.dtype} {list(own.shape)}; got {got}")


def below(prefix: str, named: dict[str, Any]) -> dict[str, Any]:
    """The entries whose name starts with ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}
