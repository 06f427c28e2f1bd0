"""The shape of a label tree: labels with similar rows share nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from manyhot.data.mapped.arrays import ABOUT, open_arrays
from manyhot.data.mapped.log import ArrayLog
from manyhot.data.mapped.rows import MappedMatrix
from manyhot.engines.native import tree as native
from manyhot.engines.tree.problem import Array, Rows
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.bodies.tree import unit_rows

# The approximate number of labels per node of the last level. On held-out rows, 256 is no better: level on yso_titles and on
# eurlex57k, where it takes longer.
LEAF = 100
# A node of the levels above has at most 2 ** MOST_HALVINGS children.
MOST_HALVINGS = 8
ROUNDS = 10
# Entries of label vectors, and of mapped rows counted once for each label of a row, that are worked on at a time.
ENTRIES_AT_ONCE = 1 << 22


class Plan(NamedTuple):
    """The order of the labels, and for each level where the children of its nodes start: ``child_starts[l] [nodes + 1]``.

    The children of the last level are the places of ``labels [L]``, those of others the nodes of the next.
    """

    labels: Array
    child_starts: tuple[Array, ...]

    def place_starts(self, level: int) -> Array:
        """int64 ``[children + 1]``: the first place of each child of a level."""
        starts = np.arange(len(self.labels) + 1)
        for own in reversed(self.child_starts[level + 1 :]):
            starts = starts[own]
        return starts


def label_vectors(rows: Any, labels: SparseLabels) -> Rows:
    """The sum of the rows of each label, with length 1: CSR parts ``[L, F]``."""
    from scipy import sparse

    ones = np.ones(len(labels.indices), dtype=np.float32)
    carried = sparse.csr_matrix((ones, labels.indices.numpy(), labels.offsets.numpy()), shape=tuple(labels.shape))
    if isinstance(rows, MappedMatrix):
        sums = sparse.vstack(list(_sums_in_parts(carried.T.tocsr(), rows)), format="csr")
    else:
        sums = sparse.csr_matrix(carried.T @ rows)
    for first, last in _parts(sums.indptr):
        own = slice(sums.indptr[first], sums.indptr[last])
        row = np.repeat(np.arange(last - first), np.diff(sums.indptr[first : last + 1]))
        norms = np.sqrt(np.bincount(row, weights=sums.data[own].astype(np.float64) ** 2, minlength=last - first))
        sums.data[own] /= np.where(norms > 0, norms, 1.0)[row]
    return Rows.of(sums)


def _sums_in_parts(rows_of: Any, rows: MappedMatrix) -> Iterator[Any]:
    """``rows_of [L, R] @ rows``, some labels at a time; only their rows are in memory."""
    from scipy import sparse

    own = rows.numbers(slice(None))
    lengths = rows.offsets[own + 1] - rows.offsets[own]
    ends = np.concatenate([[0], np.cumsum(lengths[rows_of.indices])])[rows_of.indptr]
    for first, last in _parts(ends):
        own = rows_of[first:last]
        picked, places = np.unique(own.indices, return_inverse=True)
        moved = sparse.csr_matrix((own.data, places.reshape(-1), own.indptr), shape=(last - first, len(picked)))
        yield moved @ rows[picked]


def _parts(ends: Array) -> Iterator[tuple[int, int]]:
    """The first label and the end of each part of ``ENTRIES_AT_ONCE`` entries or fewer, or of one label."""
    first = 0
    while first < len(ends) - 1:
        last = max(int(np.searchsorted(ends, int(ends[first]) + ENTRIES_AT_ONCE, side="right")) - 1, first + 1)
        yield first, last
        first = last


def halvings(num_labels: int) -> list[int]:
    """The number of halvings in each level, as equal as possible, for about ``LEAF`` labels per node at the end.

    Example:
        >>> halvings(25_000), halvings(100), halvings(3_000_000)
        ([8], [1], [8, 7])
    """
    total = max(round(math.log2(num_labels / LEAF)), 1)
    levels = -(-total // MOST_HALVINGS)
    return [total // levels + (at < total % levels) for at in range(levels)]


def plan_tree(vectors: Rows, *, seed: int) -> Plan:
    """Halve the labels by balanced two-means, again and again; several halvings make one level of the tree.

    Args:
        vectors: the sum of the rows of each label.
        seed: random seed of the first centres.
    """
    order, starts = np.arange(vectors.num_rows, dtype=np.int32), np.array([0, vectors.num_rows])
    draw, levels = np.random.default_rng(seed), []
    for times in halvings(vectors.num_rows):
        nodes = len(starts) - 1
        for _ in range(times):
            cuts = [0]
            for first, last in pairwise(starts):
                order[first:last] = _halved(vectors, order[first:last], draw)
                cuts += [(first + last) // 2, last]
            starts = np.array(cuts)
        levels.append(np.arange(nodes + 1, dtype=np.int64) * 2**times)
    return Plan(order, (*levels, starts.astype(np.int64)))


def _halved(vectors: Rows, labels: Array, draw: np.random.Generator) -> Array:
    if len(labels) < 2:
        return labels
    first, second = draw.choice(len(labels), size=2, replace=False)
    return native.halve(vectors, labels, int(first), int(second), most=ROUNDS)


def unit_matrix(inputs: Any) -> tuple[Rows, Array | None]:
    """Sparse rows with length 1; for rows in files also the numbers of the selected rows."""
    if not isinstance(inputs, MappedMatrix):
        return unit_rows(Rows.of(inputs)), None
    matrix = Rows(inputs.offsets, inputs.columns, _unit_values(inputs), inputs.num_columns)
    return matrix, inputs.picked


def _unit_values(rows: MappedMatrix) -> Array:
    """The values of all rows in the files, divided by the length of their row."""
    place = rows.folder / "unit"
    if not (place / ABOUT).exists():
        every = MappedMatrix(rows.folder, rows.offsets, rows.columns, rows.values, rows.num_columns)
        with ArrayLog(place, {"values": "float32"}, key=rows.folder.name) as log:
            for number, block in enumerate(every.blocks()):
                if number >= len(log.records):
                    log.append({"values": unit_rows(Rows.of(block)).values})
            log.finish({})
    return open_arrays(place, {"values": "float32"})[1]["values"]
