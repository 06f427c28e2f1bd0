"""Label trees as a body: a beam search scores the labels that it reaches. Trees are not trained by gradient steps.

Labels are the leaves of a few trees. A node has a linear score for each child; the probability of a label in a tree is the
product along its path, and its score is the log odds of the mean over the trees. ``manyhot.engines.tree.plain`` has the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.engines.native import tree as native
from manyhot.engines.tree import plain
from manyhot.engines.tree.problem import BLOCK, POWER, SLOPE, Array, Level, Rows, SearchSettings, Tree, block_starts
from manyhot.scores.top import TopScores
from manyhot.training.rows.inputs.row_batches import SparseRows

# The score of labels that no beam reaches, below all others.
UNREACHED = -40.0
# The power and the slope of models that were saved without them.
EARLIER_POWER, EARLIER_SLOPE = 0.5, 3.0
# With fewer rows, starting a second thread takes longer than the search.
ROWS_A_THREAD = 64
_KINDS = {
    "child_start": torch.int64,
    "feature_start": torch.int64,
    "features": torch.int32,
    "ends": torch.int64,
    "children": torch.uint8,
    "weights": torch.float32,
    "bias": torch.float32,
}


class TreeBody(nn.Module):
    """Sparse rows to scores ``[B, L]``.

    Args:
        num_labels: L.
        sizes: for each tree and level, the sizes of its arrays.
        beam: nodes that are followed at each depth.
        power: of the probabilities above the last level, see ``SearchSettings``.
        slope: from scores to probabilities.
    """

    def __init__(
        self,
        num_labels: int,
        sizes: Sequence[Sequence[dict[str, int]]],
        *,
        beam: int,
        power: float = POWER,
        slope: float = SLOPE,
    ) -> None:
        super().__init__()
        self.num_labels, self.beam, self.power, self.slope = num_labels, beam, power, slope
        self.depths = [len(levels) for levels in sizes]
        for number, levels in enumerate(sizes):
            self.register_buffer(f"labels_{number}", torch.zeros(num_labels, dtype=torch.int32))
            for depth, level in enumerate(levels):
                for name, kind in _KINDS.items():
                    empty = torch.zeros(level[name], dtype=kind)
                    held = nn.Parameter(empty, requires_grad=False) if empty.is_floating_point() else None
                    key = f"{name}_{number}_{depth}"
                    self.register_buffer(key, empty) if held is None else self.register_parameter(key, held)
        self.register_load_state_dict_post_hook(_check_loaded)  # type: ignore[no-untyped-call]

    @classmethod
    def of(cls, trees: Sequence[Tree], *, beam: int) -> TreeBody:
        """A body of fitted trees."""
        body = cls(trees[0].num_labels, sizes_of(trees), beam=beam)
        for number, tree in enumerate(trees):
            setattr(body, f"labels_{number}", torch.from_numpy(tree.labels))
            for depth, level in enumerate(tree.levels):
                for name in _KINDS:
                    getattr(body, f"{name}_{number}_{depth}").data = torch.from_numpy(getattr(level, name))
        return body

    def trees(self) -> list[Tree]:
        """The trees, sharing the tensors' memory."""
        found = []
        for number, depth in enumerate(self.depths):
            levels = []
            for at in range(depth):
                parts = {name: _array(getattr(self, f"{name}_{number}_{at}")) for name in _KINDS}
                levels.append(Level(block_start=block_starts(parts["child_start"]), **parts))
            found.append(Tree(tuple(levels), _array(getattr(self, f"labels_{number}"))))
        return found

    def top(self, batch: SparseRows, k: int) -> TopScores:
        """The ``k`` best labels of each row. If the beams reach fewer, the rest have the label -1 and the score -inf."""
        rows = unit_rows(Rows(_array(batch.offsets), _array(batch.columns.int()), _array(batch.values), 0))
        settings = SearchSettings(k=min(k, self.num_labels), beam=self.beam, slope=self.slope, power=self.power)
        values, labels = search(self.trees(), rows, settings)
        return TopScores(torch.from_numpy(values), torch.from_numpy(labels), self.num_labels)

    def forward(self, batch: SparseRows) -> Tensor:
        """``[B, L]``; labels that no beam reaches have the score ``UNREACHED``."""
        widest = sum(self.beam * int(np.diff(tree.levels[-1].child_start).max()) for tree in self.trees())
        best = self.top(batch, widest)
        scores = torch.full((len(best), self.num_labels + 1), UNREACHED)
        # The label -1 is the last column, which is cut off.
        scores.scatter_(1, best.indices % (self.num_labels + 1), best.values.clamp(min=UNREACHED))
        return scores[:, :-1].contiguous().to(batch.values.device)


def search(trees: Sequence[Tree], rows: Rows, settings: SearchSettings) -> tuple[Array, Array]:
    """``plain.search``, by the native engine on several threads if it is available."""
    if not native.available()[0]:
        return plain.search(trees, rows, settings)
    threads = max(min(torch.get_num_threads(), rows.num_rows // ROWS_A_THREAD), 1)
    cuts = np.linspace(0, rows.num_rows, threads + 1).astype(int).tolist()
    parts = [
        Rows(rows.offsets[first : last + 1], rows.columns, rows.values, rows.num_columns) for first, last in pairwise(cuts)
    ]
    if threads == 1:
        return native.search(trees, rows, settings)
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda part: native.search(trees, part, settings), parts))
    scores, labels = (np.concatenate([each[side] for each in found]) for side in (0, 1))
    return scores, labels


def unit_rows(rows: Rows) -> Rows:
    """The same rows with length 1; rows of zeros stay."""
    lengths = np.diff(rows.offsets)
    row = np.repeat(np.arange(rows.num_rows), lengths)
    norms = np.sqrt(np.bincount(row, weights=rows.values.astype(np.float64) ** 2, minlength=rows.num_rows))
    scale = np.where(norms > 0, norms, 1.0)
    return rows._replace(values=(rows.values / scale[row]).astype(np.float32))


def sizes_of(trees: Sequence[Tree]) -> list[list[dict[str, int]]]:
    """The sizes of the arrays of each tree and level, for a body's description."""
    return [[{name: len(getattr(level, name)) for name in _KINDS} for level in tree.levels] for tree in trees]


def make_tree(shape: dict[str, Any]) -> TreeBody:
    """A tree body from its description."""
    power, slope = float(shape.get("power", EARLIER_POWER)), float(shape.get("slope", EARLIER_SLOPE))
    sizes, beam = _checked_sizes(shape.get("trees")), int(shape.get("beam", 0))
    return TreeBody(int(shape["num_labels"]), sizes, beam=beam, power=power, slope=slope)


def _checked_sizes(sizes: Any) -> list[list[dict[str, int]]]:
    levels = [level for tree in sizes for level in tree] if isinstance(sizes, list) else []
    if not levels or not all(isinstance(level, dict) and set(level) == set(_KINDS) for level in levels):
        raise ValueError("TreeBody: `trees` must list the sizes of each tree's levels.")
    if not all(isinstance(size, int) and 0 <= size < 2**40 for level in levels for size in level.values()):
        raise ValueError("TreeBody: `trees` must list sizes >= 0.")
    return list(sizes)


def _array(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


def _check_loaded(body: nn.Module, keys: Any) -> None:
    """Check that all indices are in range, because the native engine does not."""
    del keys
    assert isinstance(body, TreeBody)
    for tree in body.trees():
        places, nodes = body.num_labels, 1
        for level in tree.levels:
            if len(level.child_start) != nodes + 1 or not _is_offsets(level.child_start, len(level.bias)):
                raise ValueError("TreeBody: the children of the nodes must follow each other.")
            blocks = int(level.block_start[-1])
            if len(level.feature_start) != blocks + 1 or not _is_offsets(level.feature_start, len(level.features)):
                raise ValueError("TreeBody: the features of the blocks must follow each other.")
            if not _is_offsets(np.concatenate([[0], level.ends]), len(level.weights)) or len(level.ends) != len(level.features):
                raise ValueError("TreeBody: the weights of the features must follow each other.")
            own = np.repeat(_block_sizes(level), _weights_of_blocks(level))
            if len(own) != len(level.children) or (level.children >= own).any():
                raise ValueError("TreeBody: a weight must belong to a child of its block.")
            nodes = len(level.bias)
        if nodes != places or not np.array_equal(np.sort(tree.labels), np.arange(places)):
            raise ValueError("TreeBody: every label must have one place in each tree.")


def _is_offsets(starts: Array, total: int) -> bool:
    return bool(starts[0] == 0 and starts[-1] == total and (np.diff(starts) >= 0).all())


def _block_sizes(level: Level) -> Array:
    counts, blocks = np.diff(level.child_start), np.diff(level.block_start)
    number = np.arange(int(blocks.sum())) - np.repeat(level.block_start[:-1], blocks)
    sizes: Array = np.minimum(np.repeat(counts, blocks) - number * BLOCK, BLOCK)
    return sizes


def _weights_of_blocks(level: Level) -> Array:
    ends = np.concatenate([[0], level.ends])
    counts: Array = np.diff(ends[level.feature_start])
    return counts
