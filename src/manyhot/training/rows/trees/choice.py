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
    drawn = np.random.default_rng([seed, 1 << 23]).permutation(len(rows))[: MOST_ROWS + MOST_ROWS // 10]
    held, own = rows.take(np.sort(drawn[: len(drawn) // 11])), rows.take(np.sort(drawn[len(drawn) // 11 :]))

    def judge(choice: TreeChoice) -> Tensor:
        quiet = RunSession(None, None, checkpoint_seconds=float("inf"), metric=session.metric)
        body = TreeFit(quiet, own, **{**sizes, "trees": 1}, seed=seed, **choice._asdict()).run()
        batch = take_rows(held.inputs, slice(0, len(held)))
        assert isinstance(batch, SparseRows)
        top = body.top(batch, 5)
        return sum(precision_at_k(top, held.labels, k=k, reduction="none") for k in (1, 3, 5)) / 3  # type: ignore[return-value]

    found = {best: judge(best)}
    for other in (TreeChoice(FULL_COST), TreeChoice(FULL_COST, LARGE_LEAF)):
        if other.leaf != LEAF and not (best.neg_cost == FULL_COST and _differ(rows.labels.num_labels)):
            continue
        found[other] = judge(other)
        gains = found[other] - found[best]
        best = other if gains.mean() > gains.std() / len(gains) ** 0.5 else best
    told = ", ".join(f"{each.neg_cost:g} with {each.leaf}: {values.mean():.4f}" for each, values in found.items())
    session.note(
        f"the cost of a negative is {best.neg_cost:g}, with about {best.leaf} labels per last node"
        f" (mean of P@1, P@3 and P@5 on {len(held):,} held-out rows: {told})"
    )
    return best


def _differ(num_labels: int) -> bool:
    """Whether large nodes make another tree, in a time that is worth it."""
    return num_labels <= MOST_LABELS and halvings(num_labels) != halvings(num_labels, LARGE_LEAF)
