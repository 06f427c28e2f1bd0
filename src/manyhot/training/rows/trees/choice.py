"""The cost of a negative in a label tree, chosen on held-out rows of small trees.

If rows often lack labels that fit them, as titles do, negatives should weigh less than positives. If labels are complete, they
should weigh the same: on held-out training rows of eurlex57k this is worth more than a point of P@1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhot.metrics.at_k import precision_at_k
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.row_batches import SparseRows, take_rows
from manyhot.training.rows.trees.fit import NEG_COST, TreeFit
from manyhot.training.run.session import RunSession

FULL_COST = 1.0
# Most rows that a small tree is fitted to; a tenth as many are held out to judge it. With fewer rows there is no choice.
MOST_ROWS, LEAST_ROWS = 30_000, 1_000
# A difference of so many standard errors between trees fitted to FIRST_ROWS rows decides at once.
FIRST_ROWS, SURE = 8_000, 4.0


def negative_cost(session: RunSession, rows: TrainingRows, *, seed: int, **sizes: Any) -> float:
    """The better cost by P@1, P@3 and P@5 together; ``sizes`` are the arguments of ``TreeFit``, with one tree here.

    The usual cost stays unless the full cost is better by more than the standard error of their difference.
    """
    if sizes["form"] != "squared_hinge" or len(rows) < LEAST_ROWS:
        return NEG_COST
    judge = _Judge(session, rows, seed, sizes)
    better, (usual, full) = judge.is_better(FULL_COST, NEG_COST)
    best = FULL_COST if better else NEG_COST
    session.note(
        f"the cost of a negative is {best:g} (mean of P@1, P@3 and P@5 on {len(judge.held):,} held-out rows:"
        f" {usual:.4f} with {NEG_COST:g}, {full:.4f} with {FULL_COST:g})"
    )
    return best


class _Judge:
    """Compares costs on held-out rows, by small trees that are fitted to few rows first."""

    def __init__(self, session: RunSession, rows: TrainingRows, seed: int, sizes: dict[str, Any]) -> None:
        drawn = np.random.default_rng([seed, 1 << 23]).permutation(len(rows))[: MOST_ROWS + MOST_ROWS // 10]
        held, own = drawn[: len(drawn) // 11], drawn[len(drawn) // 11 :]
        self.metric, self.seed, self.sizes = session.metric, seed, {**sizes, "trees": 1}
        self.held = rows.take(np.sort(held))
        counts = [FIRST_ROWS, len(own)] if len(own) >= 2 * FIRST_ROWS else [len(own)]
        self.parts = [rows.take(np.sort(own[:count])) for count in counts]

    def is_better(self, other: float, usual: float) -> tuple[bool, tuple[float, float]]:
        """Whether ``other`` is better than ``usual`` by more than the standard error of the difference, and both values."""
        for part in range(len(self.parts)):
            before, own = (self._values(cost, part) for cost in (usual, other))
            gains = own - before
            gain, error = float(gains.mean()), float(gains.std()) / len(gains) ** 0.5
            if abs(gain) > SURE * error:
                break
        return gain > error, (float(before.mean()), float(own.mean()))

    def _values(self, cost: float, part: int) -> Tensor:
        """The mean of P@1, P@3 and P@5 of each held-out row."""
        quiet = RunSession(None, None, checkpoint_seconds=float("inf"), metric=self.metric)
        body = TreeFit(quiet, self.parts[part], **self.sizes, seed=self.seed, neg_cost=cost).run()
        batch = take_rows(self.held.inputs, slice(0, len(self.held)))
        assert isinstance(batch, SparseRows)
        top = body.top(batch, 5)
        values = torch.stack([precision_at_k(top, self.held.labels, k=k, reduction="none") for k in (1, 3, 5)])
        return values.mean(dim=0)
