"""A fit of a body to rows: which rows make a batch, the optimiser of the body, and the learning-rate range test."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.data.mapped.rows import MappedMatrix
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.catalog import get_loss
from manyhot.training.rows.bodies.networks import Columns
from manyhot.training.rows.bodies.wide import WideBody
from manyhot.training.rows.inputs.row_batches import Batch, SparseRows, part_of, take_rows
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.strategies import without_reader
from manyhot.training.rows.targets.objective import Objective, inverse_propensities
from manyhot.training.run.fit import Fit
from manyhot.training.run.processes import Processes
from manyhot.training.run.steps import AdamSteps, EmbeddingSteps, PlainSteps

Array = np.ndarray[Any, Any]
# Inputs, labels, which labels are known, weights of the rows.
RowBatch = tuple[Batch, SparseLabels, Tensor | None, Tensor | None]
USUAL_RATE = 1e-3
# For embeddings with AdaGrad, whose steps do not depend on the size of the gradient; chosen on eurlex57k's training rows.
EMBEDDED_RATE = 5e-3


@dataclass(frozen=True)
class TrainingRows:
    """Prepared inputs and their labels. ``posed``, if given, are the targets of the body in place of the labels."""

    inputs: Any
    labels: SparseLabels
    unknown: SparseLabels | None = None
    sample_weight: Tensor | None = None
    posed: SparseLabels | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, picked: Array, *, inputs: bool = True) -> TrainingRows:
        """Some rows; without ``inputs`` if those are on the device already."""
        index, found = torch.from_numpy(picked), None
        if inputs:
            found = self.inputs[index] if isinstance(self.inputs, Tensor) else part_of(self.inputs, picked)
        return TrainingRows(
            found,
            self.labels[index],
            None if self.unknown is None else self.unknown[index],
            None if self.sample_weight is None else self.sample_weight[index],
            None if self.posed is None else self.posed[index],
        )

    def without(self, left_out: Array) -> TrainingRows:
        """All rows but some."""
        kept = np.ones(len(self), dtype=bool)
        kept[left_out] = False
        return self.take(np.flatnonzero(kept))

    @property
    def targets(self) -> SparseLabels:
        """The targets of the body."""
        return self.labels if self.posed is None else self.posed

    def weighted(self, weights: Tensor) -> TrainingRows:
        """The same rows, each weighing ``weights [R]`` times as much."""
        return replace(self, sample_weight=weights if self.sample_weight is None else weights * self.sample_weight)

    def where(self) -> Tensor | None:
        """Bool ``[R, L]``, True where a label is known; None when all are."""
        return None if self.unknown is None else ~self.unknown.dense(torch.bool)

    def batches(self, size: int, start: int = 0) -> Iterator[RowBatch]:
        """``(inputs, targets, where, sample_weight)`` from batch ``start`` on, in order."""
        # Slicing tensors takes a tenth of the time of slicing a scipy matrix.
        whole = take_rows(self.inputs, slice(0, len(self))) if hasattr(self.inputs, "indptr") else None
        for first in range(start * size, len(self), size):
            part = slice(first, min(first + size, len(self)))
            unknown = None if self.unknown is None else consecutive(self.unknown, part)
            yield (
                whole.consecutive(part) if isinstance(whole, SparseRows) else take_rows(self.inputs, part),
                consecutive(self.targets, part),
                None if unknown is None else ~unknown.dense(torch.bool),
                None if self.sample_weight is None else self.sample_weight[part],
            )


def consecutive(labels: SparseLabels, part: slice) -> SparseLabels:
    """Consecutive rows, by slicing."""
    offsets = labels.offsets[part.start : part.stop + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    values = None if labels.values is None else labels.values[first:last]
    return SparseLabels(labels.indices[first:last], offsets - first, labels.num_labels, values=values, validate=False)


class RowFit(Fit):
    """The training of a body on some rows, with its objective and its optimiser.

    Args:
        body: the module to train.
        rows: the rows to train on.
        settings: resolved settings, in which epochs and weights are numbers.
        salt: separates the random draws of fits with the same seed.
        device: the device to train on.
        linear: plain gradient steps without a range test, for a linear body on rows of length 1.
        processes: see ``Fit``.
    """

    shared_buffers = ("body", "objective")

    def __init__(
        self,
        body: nn.Module,
        rows: TrainingRows,
        settings: TrainSettings,
        *,
        salt: int,
        device: torch.device,
        linear: bool,
        processes: Processes | None = None,
    ) -> None:
        self.body, self.rows, self.settings, self.linear = body, rows, settings, linear
        weights = inverse_propensities(rows.labels) if settings.propensity_weights else None
        self.objective = Objective(settings, weights).to(device)
        # An epoch of a linear body takes a fraction of a second, less than writing a checkpoint.
        self.checkpoint_every_epoch = not linear
        super().__init__(
            {"body": body, "objective": self.objective},
            _steps(body, self.objective, linear=linear, weight_decay=settings.weight_decay),
            settings,
            epochs=settings.epochs or 1,
            num_rows=len(rows),
            salt=salt,
            device=device,
            warmup=0.0 if linear else None,
            processes=processes,
        )

    def start(self, factor: float = 1.0) -> None:
        """Choose the default learning rate if none is given, and multiply it by ``factor``."""
        if self.settings.learning_rate is not None:
            rate = self.settings.learning_rate
        elif self.linear:
            # The rate is per row: it applies to the sum of the gradients over the batch, not to their mean.
            rate = get_loss(self.settings.usual_loss).row_step * self.settings.batch_size / mean_square(self.rows.inputs)
        elif isinstance(self.steps, EmbeddingSteps):
            rate = EMBEDDED_RATE
        else:
            rate = self.range_test()
        self.state.learning_rate = rate * factor

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[RowBatch, int]]:
        """This process's part of each batch of an epoch, with the number of rows of all processes."""
        draw = np.random.default_rng([self.seed, self.salt, epoch])
        places, weights = self.processes.own_places(len(self.rows), self.batch_size)
        own = self.rows.take(draw.permutation(len(self.rows))[places])
        own = own if weights is None else own.weighted(weights)
        parts = own.batches(self.processes.own_size(self.batch_size), start)
        for place, batch in enumerate(parts, start=start):
            yield batch, min(self.batch_size, len(self.rows) - place * self.batch_size)

    def loss(self, batch: RowBatch) -> tuple[Tensor, float]:
        """``(mean loss, weight)`` of this process's rows."""
        inputs, labels, where, sample_weight = batch
        moved = inputs.to_device(self.device) if isinstance(inputs, SparseRows) else inputs.to(self.device)
        where, sample_weight = (None if part is None else part.to(self.device) for part in (where, sample_weight))
        value = self.objective(self.body, moved, labels.to(self.device), where, sample_weight)
        return value, float(len(labels) if sample_weight is None else sample_weight.sum())

    def range_test(self, *, steps: int = 80, low: float = 1e-5, high: float = 0.3) -> float:
        """Learning-rate range test: the rate rises step by step; a third to a tenth of the rate with the lowest smoothed loss.

        A third is right for a fit of a few hundred steps; a fit of thousands ends better with less (eurlex57k's training rows).
        If the loss falls by no more than its noise, the test is undecided and returns ``USUAL_RATE``.
        """
        before = self.to_parts()
        averages, average, done = [], 0.0, 0
        self.train_mode()
        while done < steps:
            for batch, _ in self.batches(1_000_000 + done):
                rate = low * (high / low) ** (done / (steps - 1))
                average = 0.9 * average + 0.1 * float(self.step(rate, batch))
                averages.append(average / (1 - 0.9 ** (done + 1)))
                done += 1
                if done == steps or not averages[-1] < 4 * averages[0] + 1:
                    done = steps
                    break
        self.from_parts(*before)
        # Before the window of the average is full, it depends too much on the first batches.
        settled = np.asarray(averages[10:])
        if not (settled < 0.97 * averages[min(10, len(averages) - 1)]).any():
            return USUAL_RATE
        best = 10 + int(np.nanargmin(settled))
        part = min(max(3 * math.sqrt(self.epochs * self.num_batches / 300), 3.0), 10.0)
        return float(low * (high / low) ** (best / (steps - 1)) / part)


def _steps(body: nn.Module, objective: Objective, *, linear: bool, weight_decay: float) -> Any:
    parameters = [*body.parameters(), *objective.parameters()]
    if linear:
        return PlainSteps(parameters)
    if isinstance(body, WideBody):
        # Its tables are updated inside backward.
        return AdamSteps(list(objective.parameters()), weight_decay=weight_decay)
    first = getattr(without_reader(body), "first", None)
    if isinstance(first, Columns) and first.sparse_gradient:
        others = [each for each in parameters if each is not first.weight]
        return EmbeddingSteps(first.weight, others, weight_decay=weight_decay)
    return AdamSteps(parameters, weight_decay=weight_decay)


def mean_square(inputs: Any) -> float:
    """The mean squared length of the rows."""
    if isinstance(inputs, MappedMatrix):
        total = sum(float((block.data.astype(np.float64) ** 2).sum()) for block in inputs.blocks())
        return max(total / max(inputs.shape[0], 1), 1e-12)
    if isinstance(inputs, Tensor):
        return float(inputs.float().pow(2).sum() / max(len(inputs), 1))
    values = inputs if isinstance(inputs, np.ndarray) else inputs.data
    return max(float((values.astype(np.float64) ** 2).sum() / max(inputs.shape[0], 1)), 1e-12)
