"""Small block problems and small trees."""

import numpy as np
from scipy import sparse

from manyhot.engines.tree.problem import BlockProblem, BlockWeights, Level, Rows, Tree


def sparse_rows(num_rows, num_columns, *, seed=0, density=0.2):
    return Rows.of(sparse.random(num_rows, num_columns, density, format="csr", random_state=seed, dtype=np.float32))


def block_problem(form, *, num_rows=60, num_columns=40, num_children=20, passes=5, seed=0, **settings):
    """Random rows, random positives; the rows of the problem are every second one of a larger matrix."""
    draw = np.random.default_rng(seed)
    truth = draw.random((num_rows, num_children)) < 0.15
    return BlockProblem(
        sparse_rows(2 * num_rows, num_columns, seed=seed),
        np.arange(0, 2 * num_rows, 2),
        np.concatenate([[0], truth.sum(axis=1).cumsum()]).astype(np.int64),
        truth.nonzero()[1].astype(np.int32),
        num_children,
        np.stack([draw.permutation(num_rows) for _ in range(passes)]).astype(np.int32),
        form=form,
        **{"pos_cost": 2.0, "neg_cost": 0.5, **settings},
    )


def random_tree(num_columns, children=((150,), (3, 1, 2) * 50), *, seed=0):
    """A tree with ``children`` per node of each level and random weights; the root has more than one block."""
    draw, levels = np.random.default_rng(seed), []
    for counts in children:
        blocks = []
        for count in counts:
            for first in range(0, count, 128):
                dense = draw.normal(size=(num_columns, min(128, count - first))).astype(np.float32)
                kept = draw.random(dense.shape) < 0.4
                own = kept.any(axis=1)
                blocks.append(
                    BlockWeights(
                        own.nonzero()[0].astype(np.int32),
                        kept.sum(axis=1)[own].cumsum().astype(np.int64),
                        kept.nonzero()[1].astype(np.uint8),
                        dense[kept],
                        draw.normal(size=dense.shape[1]).astype(np.float32),
                    )
                )
        levels.append(Level.join(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), blocks))
    return Tree(tuple(levels), draw.permutation(sum(children[-1])).astype(np.int32))
