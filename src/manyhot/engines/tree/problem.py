"""The data of label trees: sparse rows, the problem of a block, its weights, levels and trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
# Children per block, whose weights are stored and solved together. The number of a child in its block fits in a byte.
BLOCK = 128
# Width of the native engine's vectors.
LANES = 16


class TreeMemoryError(MemoryError):
    """Raised if there is not enough memory for a block of a label tree."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"train: a label tree needs {size / 2**30:.1f} GiB at once, and there is not enough memory. Take fewer threads"
            " (--threads 1), fewer features (--max-features), or fewer rows."
        )


class Rows(NamedTuple):
    """A sparse matrix ``[R, F]``: ``offsets`` int64, ``columns`` int32, ``values`` float32."""

    offsets: Array
    columns: Array
    values: Array
    num_columns: int

    @classmethod
    def of(cls, matrix: Any) -> Rows:
        """The parts of a scipy CSR matrix, in these types."""
        indices = matrix.indices.astype(np.int32, copy=False)
        return cls(matrix.indptr.astype(np.int64), indices, matrix.data.astype(np.float32, copy=False), matrix.shape[1])

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        """The three arrays."""
        return self.offsets, self.columns, self.values

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.offsets) - 1


@dataclass(frozen=True)
class BlockProblem:
    """A training problem: which of up to ``BLOCK`` children are positive in each of some rows.

    Args:
        rows: the matrix that contains the rows.
        picked: int64 ``[N]``, the rows of the problem.
        positive_offsets: int64 ``[N + 1]``.
        positives: int32, the positive children of each row, counted from 0.
        num_children: K.
        orders: int32 ``[passes, N]``, the order in which each pass visits the rows.
        form: ``squared_hinge`` or ``zlpr``.
        pos_cost: weight of the loss of a positive entry (of a row for ZLPR) against half the squared norm of the weights.
        neg_cost: the same for a negative entry (squared hinge).
        least: weights of a smaller absolute value are dropped.
        weights: float32 ``[N]``, the weights of the rows; None for 1.
        duals: float32, a workspace of ``dual_size()`` zeros for the solver, in a file if memory is short; with it the rows are
            not copied. None copies the rows and keeps everything in memory.
    """

    rows: Rows
    picked: Array
    positive_offsets: Array
    positives: Array
    num_children: int
    orders: Array
    form: str = "squared_hinge"
    pos_cost: float = 1.0
    neg_cost: float = 1.0
    least: float = 0.0
    weights: Array | None = None
    duals: Array | None = None

    def dual_size(self) -> int:
        """Size of the solver's workspace: one number per row and child, with the children padded to whole vectors."""
        return len(self.picked) * (-(-self.num_children // LANES) * LANES) + LANES

    def memory(self) -> int:
        """Upper bound for the bytes that the solver takes, including a copy of the rows."""
        entries = int((self.rows.offsets[self.picked + 1] - self.rows.offsets[self.picked]).sum())
        columns = min(entries, self.rows.num_columns)
        return 4 * (self.num_children + 16) * (columns + len(self.picked)) + 8 * entries


class BlockWeights(NamedTuple):
    """The weights of a block, sorted by feature: those of ``features[i]`` end at ``ends[i]``."""

    features: Array
    ends: Array
    children: Array
    weights: Array
    bias: Array

    def dense(self, num_columns: int) -> Array:
        """``[F, K]``."""
        full = np.zeros((num_columns, len(self.bias)), dtype=self.weights.dtype)
        lengths = np.diff(self.ends, prepend=0)
        full[np.repeat(self.features, lengths), self.children] = self.weights
        return full


class Level(NamedTuple):
    """The blocks of all nodes at one depth. The children of node ``n`` start at ``child_start[n]``, ``BLOCK`` per block."""

    child_start: Array
    block_start: Array
    feature_start: Array
    features: Array
    ends: Array
    children: Array
    weights: Array
    bias: Array

    @classmethod
    def join(cls, child_start: Array, blocks: list[BlockWeights]) -> Level:
        """A level from its blocks, in order."""
        counts = [len(each.weights) for each in blocks]
        before = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(
            child_start,
            block_starts(child_start),
            np.concatenate([[0], np.cumsum([len(each.features) for each in blocks])]).astype(np.int64),
            np.concatenate([each.features for each in blocks]),
            np.concatenate([each.ends + start for each, start in zip(blocks, before, strict=False)]),
            np.concatenate([each.children for each in blocks]),
            np.concatenate([each.weights for each in blocks]),
            np.concatenate([each.bias for each in blocks]),
        )


def block_starts(child_start: Array) -> Array:
    """int64 ``[nodes + 1]``: the first block of each node."""
    counts = -(-np.diff(child_start) // BLOCK)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


class Tree(NamedTuple):
    """Levels from the root down; ``labels [L]`` int32 holds the label at each place of the last level."""

    levels: tuple[Level, ...]
    labels: Array

    @property
    def num_labels(self) -> int:
        """L."""
        return len(self.labels)


# The power of the probabilities above the last level. The children of a node are fitted to the rows that the levels above lead
# there, so these should not count in full. On held-out rows of eurlex57k 0.25 is best, on those of yso_titles 0.5.
POWER = 0.35
# The slope from scores to probabilities. On held-out rows of eurlex57k and of yso_titles 4 to 6 rank better than 3.
SLOPE = 5.0


class SearchSettings(NamedTuple):
    """Settings of the beam search.

    It returns ``k`` labels per row and follows ``beam`` nodes at each depth. A child with score ``s`` has the probability
    ``sigma(slope s)``, raised to ``power`` above the last level. The probability of a path is the product over its nodes.
    """

    k: int
    beam: int = 10
    slope: float = SLOPE
    power: float = POWER
    block: int = BLOCK
