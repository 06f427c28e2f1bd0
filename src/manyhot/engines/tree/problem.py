"""The data of label trees: sparse rows, the problem of a block, its weights, levels and trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
# Children of a node whose weights lie beside each other and are found together; a child's number in it fits a byte.
BLOCK = 128
# Of the native engine's vectors.
LANES = 16


class TreeMemoryError(MemoryError):
    """There is not enough memory for a block of a label tree."""

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
    """Which of up to ``BLOCK`` children are positive in each of some rows.

    Args:
        rows: the matrix that the rows are in.
        picked: int64 ``[N]``, the rows of the problem.
        positive_offsets: int64 ``[N + 1]``.
        positives: int32, the positive children of each row, counted from 0.
        num_children: K.
        orders: int32 ``[passes, N]``, the order of the visits in each pass.
        form: ``squared_hinge`` or ``zlpr``.
        pos_cost: weight of the loss of a positive entry (of a row for ZLPR) against half the squared length of the weights.
        neg_cost: the same of a negative entry (squared hinge).
        least: smaller weights are dropped.
        weights: float32 ``[N]`` of the rows; None for 1.
        duals: float32, ``dual_size()`` zeros for the solver to write to, in a file where memory is short; the rows are then
            read where they are. None copies the rows and keeps all in memory.
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
        """Numbers of the solver, one of each row and child; children are padded to whole vectors."""
        return len(self.picked) * (-(-self.num_children // LANES) * LANES) + LANES

    def memory(self) -> int:
        """Bytes that a solver takes at most, with the rows copied."""
        entries = int((self.rows.offsets[self.picked + 1] - self.rows.offsets[self.picked]).sum())
        columns = min(entries, self.rows.num_columns)
        return 4 * (self.num_children + 16) * (columns + len(self.picked)) + 8 * entries


class BlockWeights(NamedTuple):
    """The weights of a block, feature by feature: those of ``features[i]`` end at ``ends[i]``."""

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
    """The blocks of all nodes of one depth; children of node ``n`` are those from ``child_start[n]`` on, ``BLOCK`` a block."""

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
    """Levels from the root on; ``labels [L]`` int32 has the label at each place of the last one."""

    levels: tuple[Level, ...]
    labels: Array

    @property
    def num_labels(self) -> int:
        """L."""
        return len(self.labels)


class SearchSettings(NamedTuple):
    """How trees are searched.

    ``k`` labels are given for a row, ``beam`` nodes are followed at each depth. A child's score ``s`` gives it the probability
    ``sigma(slope s)``, to the ``power`` above the last level; that of a path is their product.
    """

    k: int
    beam: int = 10
    slope: float = 3.0
    power: float = 0.5
    block: int = BLOCK
