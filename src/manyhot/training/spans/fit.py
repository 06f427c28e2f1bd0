"""The fit of a span network to windows of texts: batches and optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.training.run.fit import Fit
from manyhot.training.run.steps import FusedAdamSteps
from manyhot.training.spans.budget import EPOCHS
from manyhot.training.spans.inputs import Array, Encoded
from manyhot.training.spans.rows import SpanBatch, StoredRows
from manyhot.training.spans.settings import SpanSettings

# Windows of similar length share a batch: they are sorted within pools of this many batches.
POOL = 32

SpanLoss = Callable[[nn.Module, SpanBatch], Tensor]


class SpanFit(Fit):
    """A network, its objective and AdamW, over windows.

    Args:
        network: the module to train.
        objective: maps network and batch to the mean loss of the windows.
        rows: the windows.
        num_types: H.
        settings: the resolved settings, with a learning rate.
        device: where to train.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: SpanLoss,
        rows: Sequence[Encoded],
        *,
        num_types: int,
        settings: SpanSettings,
        device: torch.device,
    ) -> None:
        self.network, self.objective, self.settings = network, objective, settings
        self.rows = StoredRows(rows, num_types=num_types, device=device)
        trained = [each for each in network.parameters() if each.requires_grad]
        super().__init__(
            {"network": network},
            FusedAdamSteps(trained, weight_decay=settings.weight_decay),
            settings,
            epochs=settings.epochs or EPOCHS,
            num_rows=len(self.rows),
            salt=0,
            device=device,
            average=settings.average,
            # On ties the later epoch is kept: it has trained longer.
            later_of_equals=True,
            # A model that finds nothing does not count as the best so far.
            nothing=0.0,
        )
        self.state.learning_rate = settings.learning_rate or 1e-3

    def epoch_batches(self, epoch: int) -> list[np.ndarray[Any, Any]]:
        """The rows of each batch of an epoch, grouped by length; they depend on the seed and the epoch alone."""
        draw = np.random.default_rng([self.seed, epoch])
        order, size = draw.permutation(len(self.rows)), self.batch_size
        batches = []
        for start in range(0, len(order), POOL * size):
            pool = order[start : start + POOL * size]
            pool = pool[np.argsort(self.rows.lengths[pool], kind="stable")]
            batches += [pool[first : first + size] for first in range(0, len(pool), size)]
        return [batches[place] for place in draw.permutation(len(batches))]

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[Array, int]]:
        """For each batch, the windows of this process and the number of windows over all processes."""
        for picked in self.epoch_batches(epoch)[start:]:
            yield self.processes.part_of(picked), len(picked)

    def loss(self, batch: Array) -> tuple[Tensor, float]:
        """``(mean loss, weight)`` of this process's windows; the weight is 0 in a process without windows."""
        picked = batch if len(batch) else np.zeros(1, dtype=np.int64)
        return self.objective(self.network, self.rows.batch(picked)), float(len(batch))
