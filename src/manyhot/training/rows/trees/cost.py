"""The cost of a negative in a label tree, chosen on held-out rows of a small tree.

If rows often lack labels that fit them, as titles do, negatives should weigh less than positives. If labels are complete, they
should weigh the same: on eurlex57k that is worth more than a point of P@1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhot.metrics.at_k import precision_at_k
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.row_batches import SparseRows, take_rows
from manyhot.training.rows.trees.fit import NEG_COST, TreeFit
from manyhot.training.run.session import RunSession

NEG_COSTS = (NEG_COST, 1.0)
# Most rows that a small tree is fitted to; a tenth as many are held out to judge it. With fewer rows there is no choice.
MOST_ROWS, LEAST_ROWS = 30_000, 1_000


def negative_cost(session: RunSession, rows: TrainingRows, *, seed: int, **sizes: Any) -> float:
    """The best of ``NEG_COSTS`` by P@1, P@3 and P@5 together; ``sizes`` are the arguments of ``TreeFit``, with one tree here.

    The first one stays unless another is better by more than the standard error of their difference.
    """
    if sizes["form"] != "squared_hinge" or len(rows) < LEAST_ROWS:
        return NEG_COST
    drawn = np.random.default_rng([seed, 1 << 23]).permutation(len(rows))[: MOST_ROWS + MOST_ROWS // 10]
    held, own = rows.take(np.sort(drawn[: len(drawn) // 11])), rows.take(np.sort(drawn[len(drawn) // 11 :]))
    found: dict[float, Any] = {}
    for cost in NEG_COSTS:
        quiet = RunSession(None, None, checkpoint_seconds=float("inf"), metric=session.metric)
        body = TreeFit(quiet, own, **{**sizes, "trees": 1}, seed=seed, neg_cost=cost).run()
        batch = take_rows(held.inputs, slice(0, len(held)))
        assert isinstance(batch, SparseRows)
        top = body.top(batch, 5)
        found[cost] = sum(precision_at_k(top, held.labels, k=k, reduction="none") for k in (1, 3, 5)) / 3
    best = NEG_COST
    for cost in NEG_COSTS[1:]:
        gains = found[cost] - found[best]
        best = cost if gains.mean() > gains.std() / len(gains) ** 0.5 else best
    told = ", ".join(f"{cost:g}: {values.mean():.4f}" for cost, values in found.items())
    session.note(f"the cost of a negative is {best:g} (mean of P@1, P@3 and P@5 on {len(held):,} held-out rows: {told})")
    return best
