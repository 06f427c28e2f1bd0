"""The fit of a body for very many labels: rows on the device, updates inside backward, held-out scores as top lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.labels.sparse import SparseLabels
from manyhot.scores.top import TopScores
from manyhot.training.rows.bodies.wide import WideBody
from manyhot.training.rows.fit import RowBatch, RowFit, TrainingRows
from manyhot.training.rows.inputs.device_rows import DeviceRows
from manyhot.training.rows.inputs.fixed_batches import FixedBatches
from manyhot.training.rows.inputs.row_batches import SparseRows
from manyhot.training.rows.rules.fitting import LISTED
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.wide.captured_step import CapturedStep, can_capture
from manyhot.training.run.processes import Processes

# The default learning rate, chosen for decoupled softmax and 1024 hidden units on 20,000 held-out training rows of yso_titles.
WIDE_RATE = 0.03
ROWS_AT_ONCE = 1024
# Triton compiles other kernels for sizes that are not a multiple of this.
ROWS_TOGETHER = 16
# Steps after which processes with label shards read the loss, and agree whether a checkpoint is due.
STEPS_BETWEEN_READS = 16


class WideFit(RowFit):
    """A wide body over rows on the device.

    The arguments are those of ``RowFit``, and:

    Args:
        on_device: rows that are already on the device, among them those of this fit; None: the rows are moved there.
        picked: the numbers of the rows of this fit in ``on_device``; None: all.

    With label shards, each process takes all rows of a batch, and the word vectors stay the same on all processes.
    """

    # The loss is read only at time intervals.
    steps_between_reads = None
    seconds_worth_saving = 30.0

    def __init__(
        self,
        body: nn.Module,
        rows: TrainingRows,
        settings: TrainSettings,
        *,
        salt: int,
        device: torch.device,
        linear: bool,
        on_device: DeviceRows | None = None,
        picked: np.ndarray[Any, Any] | None = None,
    ) -> None:
        assert isinstance(body, WideBody)
        super().__init__(body, rows, settings, salt=salt, device=device, linear=linear, processes=Processes())
        self.wide = body
        # The tables are large and an epoch takes seconds, so checkpoints are written at time intervals.
        self.checkpoint_every_epoch = False
        self.on_device = on_device or DeviceRows(rows.inputs, rows.targets, rows.sample_weight, device)
        self.picked = picked
        self.fixed: FixedBatches | None = None
        self.captured: CapturedStep | None = None

    def start(self, factor: float = 1.0) -> None:
        """Choose the default learning rate if none is given."""
        self.state.learning_rate = (self.settings.learning_rate or WIDE_RATE) * factor

    def reads_loss(self, looked: float) -> bool:
        """Whether the loss is read after this step; with label shards the step number decides, because the clocks of the
        processes differ."""
        if self.wide.head.mesh is None:
            return super().reads_loss(looked)
        return self.device.type == "cpu" or self.state.batch % STEPS_BETWEEN_READS == 0

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[Any, int]]:
        """The batches of an epoch, on the device; for a captured step, the number of its first row in the epoch."""
        order = np.random.default_rng([self.seed, self.salt, epoch]).permutation(len(self.rows))
        order = order if self.picked is None else self.picked[order]
        if self.device.type == "cuda" and len(order) > self.batch_size:
            # A last batch of another size would need its own kernels; its rows are left out, different ones in each epoch.
            order = order[: len(order) // ROWS_TOGETHER * ROWS_TOGETHER]
        taken, fixed, size = self.on_device.taken(order[start * self.batch_size :]), self._fixed_batches(), self.batch_size
        if fixed is not None:
            fixed.load(taken)
        for first in range(0, len(taken), size):
            last = min(first + size, len(taken))
            if self.captured is not None and fixed is not None and fixed.holds(first, last):
                yield first, last - first
            else:
                yield _row_batch(*taken.batch(first, last)), last - first

    def _fixed_batches(self) -> FixedBatches | None:
        """Memory for batches of a captured step; None if steps are not captured."""
        if self.fixed is None and self._captures():
            picked = np.arange(len(self.on_device)) if self.picked is None else self.picked
            fixed = self.fixed = FixedBatches(self.on_device, picked, self.batch_size)
            self.captured = CapturedStep(self.wide, lambda: super(WideFit, self).step(0.0, _row_batch(*fixed.batch())))
        return self.fixed

    def _captures(self) -> bool:
        """Whether steps are captured: there are several batches, and only the body is trained."""
        return len(self.rows) > self.batch_size and not self.steps.parameters and can_capture(self.wide)

    def loss(self, batch: RowBatch) -> tuple[Tensor, float]:
        """``(mean loss, rows)``."""
        inputs, labels, _, weights = batch
        return self.objective(self.body, inputs, labels, None, weights), float(len(labels))

    def step(self, rate: float, batch: RowBatch | int) -> Tensor:
        """One step on a batch, or on the one that starts at this row of the epoch; weights are updated inside backward."""
        self.wide.set_rate(rate)
        if not isinstance(batch, int):
            return super().step(rate, batch)
        assert self.captured is not None
        assert self.fixed is not None
        self.fixed.first.fill_(batch)
        value = self.captured()
        if value is None:
            # The rest of the fit runs without a graph and without padding, which only our kernels support.
            self.captured, taken = None, self.fixed.taken
            assert taken is not None
            value = super().step(rate, _row_batch(*taken.batch(batch, batch + self.batch_size)))
        return value

    def finish(self) -> None:
        """Free the memory of the graph too."""
        self.fixed = self.captured = None
        super().finish()


def _row_batch(inputs: SparseRows, labels: SparseLabels, weights: Tensor | None) -> RowBatch:
    return inputs, labels, None, weights


@torch.inference_mode()
def top_scores(body: WideBody, rows: DeviceRows, picked: np.ndarray[Any, Any] | None = None, *, k: int = LISTED) -> TopScores:
    """The best labels of each of the ``picked`` rows, or of all, on the CPU.

    At most a chunk of scores of ``ROWS_AT_ONCE`` rows is in memory.
    """
    body.eval()
    order = np.arange(len(rows)) if picked is None else picked
    found = [body(inputs).top(k, log_sums=True) for inputs, *_ in rows.batches(order, ROWS_AT_ONCE)]
    values, indices, sums = (joined_lists(found, name).cpu().clone() for name in ("values", "indices", "log_sums"))
    return TopScores(values.float(), indices, rows.num_labels, sums.float())


def joined_lists(found: Sequence[TopScores], name: str) -> Tensor:
    """One part of the top lists of several batches."""
    return torch.cat([getattr(each, name) for each in found])
