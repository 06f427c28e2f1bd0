"""Linear classifiers, one per label: the squared hinge by dual coordinate ascent on sparse rows.

Each label has its own problem: with ``y`` 1 for its rows and -1 for the others,

    min over w, b   1/2 |w|^2 + 1/2 b^2 + cost * sum_i max(0, 1 - y_i (w x_i + b))^2

The native engine solves the problems of a block of labels together, as it does for the nodes of label trees;
``manyhot.engines.tree.plain`` has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.data.mapped.rows import MappedMatrix
from manyhot.engines.tree.problem import BLOCK, Array, BlockProblem, BlockWeights, Rows
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.trees.fit import solve_block, visits

# Rows whose length is measured.
ROWS_MEASURED = 10_000


class LinearWeights(NamedTuple):
    """The weights ``[F, L]`` and biases ``[L]`` of a linear body."""

    weight: Tensor
    bias: Tensor


class Job(NamedTuple):
    """A fit: the numbers of the rows to fit to, and the cost of an error for rows of length 1."""

    picked: Array
    cost: float


class OneVsRest:
    """Solves linear classifiers for the labels of some rows. The result is the same for any number of threads.

    Args:
        rows: all rows, with sparse inputs and hard, known labels.
        passes: passes over the rows.
        seed: random seed of the order of the rows.
        threads: blocks of labels that are solved at the same time.
    """

    def __init__(self, rows: TrainingRows, *, passes: int, seed: int, threads: int) -> None:
        self.rows, self.passes, self.seed, self.threads = rows, passes, seed, threads
        self.matrix, self.places = _matrix_of(rows.inputs)
        self.starts = range(0, rows.labels.num_labels, BLOCK)
        self.square = square_length(self.matrix)

    def solve(self, jobs: Sequence[Job]) -> Iterator[LinearWeights]:
        """The result of each job, in order. If there are more threads than blocks, several jobs run at a time."""
        together = max(self.threads // len(self.starts), 1)
        with ThreadPoolExecutor(self.threads) as pool:
            for first in range(0, len(jobs), together):
                running = [self._submitted(pool, job) for job in jobs[first : first + together]]
                for blocks in running:
                    yield self._joined([block.result() for block in blocks])

    def _submitted(self, pool: ThreadPoolExecutor, job: Job) -> list[Future[BlockWeights]]:
        return [pool.submit(solve_block, self._problem(job, start), self.rows.inputs) for start in self.starts]

    def _problem(self, job: Job, start: int) -> BlockProblem:
        labels = self.rows.labels[torch.from_numpy(job.picked)]
        stop = min(start + BLOCK, labels.num_labels)
        own = (labels.indices >= start) & (labels.indices < stop)
        counts = torch.bincount(labels.rows[own], minlength=len(labels)).numpy()
        draw = np.random.default_rng([self.seed, start])
        weights = self.rows.sample_weight
        return BlockProblem(
            self.matrix,
            job.picked if self.places is None else self.places[job.picked],
            np.concatenate([[0], counts.cumsum()]).astype(np.int64),
            (labels.indices[own] - start).numpy().astype(np.int32),
            stop - start,
            np.stack([visits(draw, len(labels)) for _ in range(self.passes)]),
            pos_cost=job.cost / self.square,
            neg_cost=job.cost / self.square,
            weights=None if weights is None else weights.float().numpy()[job.picked],
        )

    def _joined(self, blocks: Sequence[BlockWeights]) -> LinearWeights:
        width = self.matrix.num_columns
        weight = np.concatenate([block.dense(width) for block in blocks], axis=1)
        return LinearWeights(torch.from_numpy(weight), torch.from_numpy(np.concatenate([block.bias for block in blocks])))


def square_length(rows: Rows) -> float:
    """The mean square of the lengths of rows that are not empty, as the nearest power of two; of the first rows, if many.

    Longer rows have larger scores, and so need smaller costs. Rows of length 1, such as those of texts, have 1.
    """
    first = min(rows.num_rows, ROWS_MEASURED)
    filled = int((np.diff(rows.offsets[: first + 1]) > 0).sum())
    total = float(np.square(rows.values[rows.offsets[0] : rows.offsets[first]], dtype=np.float64).sum())
    return 2.0 ** round(math.log2(total / filled)) if filled and total > 0 else 1.0


def _matrix_of(inputs: Any) -> tuple[Rows, Array | None]:
    """The rows as the engine reads them; for rows in files also the numbers of the selected rows."""
    if not isinstance(inputs, MappedMatrix):
        return Rows.of(inputs), None
    return Rows(inputs.offsets, inputs.columns, inputs.values, inputs.num_columns), inputs.picked
