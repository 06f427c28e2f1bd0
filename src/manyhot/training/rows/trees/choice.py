"""The cost of a negative in a label tree and the size of its last nodes, chosen on held-out rows of small trees.

If rows often lack labels that fit them, as titles do, negatives should weigh less than positives, and a label should be learned
from the rows of similar labels only. If labels are complete, negatives should weigh the same, and larger nodes are better,
where a label is learned from more rows. On held-out training rows of eurlex57k the first is worth more than a point of P@1, the
second 0.4 points of P@3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from manyhot.metrics.at_k import precision_at_k
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.row_batches import SparseRows, take_rows
from manyhot.training.rows.trees.fit import NEG_COST, TreeFit
from manyhot.training.rows.trees.growing import LEAF, halvings
from manyhot.training.run.session import RunSession

FULL_COST, LARGE_LEAF = 1.0, 1024
# With more labels, large nodes take too long.
MOST_LABELS = 8192
# Most rows that a small tree is fitted to; a tenth as many are held out to judge it. With fewer rows there is no choice.
MOST_ROWS, LEAST_ROWS = 30_000, 1_000
# A difference of so many standard errors between trees fitted to FIRST_ROWS rows decides at once.
FIRST_ROWS, SURE = 8_000, 4.0


class TreeChoice(NamedTuple):
    """The cost of a negative, and the labels per node of the last level; arguments of ``TreeFit``."""

    neg_cost: float = NEG_COST
    leaf: int = LEAF


def tree_choice(session: RunSession, rows: TrainingRows, *, seed: int, **sizes: Any) -> TreeChoice:
    """The best choice by P@1, P@3 and P@5 together; ``sizes`` are the arguments of ``TreeFit``, with one tree here.

    The usual cost stays unless the full cost is better by more than the standard error of their difference. With the full
    cost and few labels, large nodes are tried in the same way.
    """
    best = TreeChoice()
    if sizes["form"] != "squared_hinge" or len(rows) < LEAST_ROWS:
        return best
    judge = _Judge(session, rows, seed, sizes)
    told: list[str] = []
    for other in (TreeChoice(FULL_COST), TreeChoice(FULL_COST, LARGE_LEAF)):
        if other.leaf != LEAF and not (best.neg_cost == FULL_COST and _differ(rows.labels.num_labels)):
            continue
        better, (usual, own) = judge.is_better(other, best)
        pair = f"{best.neg_cost:g} with {best.leaf}: {usual:.4f}, {other.neg_cost:g} with {other.leaf}: {own:.4f}"
        told, best = [*told, pair], other if better else best
    session.note(
        f"the cost of a negative is {best.neg_cost:g}, with about {best.leaf} labels per last node"
        f" (mean of P@1, P@3 and P@5 on {len(judge.held):,} held-out rows: {'; '.join(told)})"
    )
    return best


class _Judge:
    """Compares choices on held-out rows, by small trees that are fitted to few rows first."""

    def __init__(self, session: RunSession, rows: TrainingRows, seed: int, sizes: dict[str, Any]) -> None:
        drawn = np.random.default_rng([seed, 1 << 23]).permutation(len(rows))[: MOST_ROWS + MOST_ROWS // 10]
        held, own = drawn[: len(drawn) // 11], drawn[len(drawn) // 11 :]
        self.metric, self.seed, self.sizes = session.metric, seed, {**sizes, "trees": 1}
        self.held = rows.take(np.sort(held))
        counts = [FIRST_ROWS, len(own)] if len(own) >= 2 * FIRST_ROWS else [len(own)]
        self.parts = [rows.take(np.sort(own[:count])) for count in counts]
        self.found: dict[tuple[TreeChoice, int], Tensor] = {}

    def is_better(self, other: TreeChoice, best: TreeChoice) -> tuple[bool, tuple[float, float]]:
        """Whether ``other`` is better than ``best`` by more than the standard error of the difference, and their values."""
        for part in range(len(self.parts)):
            usual, own = (self._values(choice, part) for choice in (best, other))
            gains = own - usual
            gain, error = float(gains.mean()), float(gains.std()) / len(gains) ** 0.5
            if abs(gain) > SURE * error:
                break
        return gain > error, (float(usual.mean()), float(own.mean()))

    def _values(self, choice: TreeChoice, part: int) -> Tensor:
        """The mean of P@1, P@3 and P@5 of each held-out row."""
        if (choice, part) not in self.found:
            quiet = RunSession(None, None, checkpoint_seconds=float("inf"), metric=self.metric)
            body = TreeFit(quiet, self.parts[part], **self.sizes, seed=self.seed, **choice._asdict()).run()
            batch = take_rows(self.held.inputs, slice(0, len(self.held)))
            assert isinstance(batch, SparseRows)
            top = body.top(batch, 5)
            values = [precision_at_k(top, self.held.labels, k=k, reduction="none") for k in (1, 3, 5)]
            self.found[choice, part] = sum(values) / 3  # type: ignore[assignment]
        return self.found[choice, part]


def _differ(num_labels: int) -> bool:
    """Whether large nodes make another tree, in a time that is worth it."""
    return num_labels <= MOST_LABELS and halvings(num_labels) != halvings(num_labels, LARGE_LEAF)
