"""The plain form of label trees in float64: the same as the native engine computes, written for clarity, not speed.

The problem of a block with rows ``x_i``, labels ``y_ik`` in {-1, 1} and costs ``c``:

    min over W, b   1/2 |W|^2 + 1/2 |b|^2 + sum_i w_i sum_k c_ik max(0, 1 - y_ik s_ik)^2        squared hinge
                    1/2 |W|^2 + 1/2 |b|^2 + sum_i w_i c ZLPR(s_i)                                 ZLPR

with ``s_i = W^T x_i + b``. Both are solved by dual coordinate ascent: ``W = sum_i x_i a_i^T``, and a visit to a row changes
only its ``a_i``. For squared hinge it moves each coordinate to its optimum, for ZLPR towards ``-c`` times the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manyhot.engines.tree.problem import BLOCK, Array, BlockProblem, BlockWeights, Level, Rows, SearchSettings, Tree


def solve(problem: BlockProblem) -> BlockWeights:
    """The weights of a block, in float64."""
    columns, local, squares = _local(problem)
    size, num_rows = problem.num_children, len(problem.picked)
    weights, bias, alpha = np.zeros((len(columns), size)), np.zeros(size), np.zeros((num_rows, size))
    change = _hinge_change if problem.form == "squared_hinge" else _zlpr_change
    for i in problem.orders.ravel():
        row_weight = 1.0 if problem.weights is None else float(problem.weights[i])
        if row_weight <= 0:
            continue
        own, values = local[i]
        positive = np.zeros(size, dtype=bool)
        positive[problem.positives[problem.positive_offsets[i] : problem.positive_offsets[i + 1]]] = True
        moved = change(problem, bias + values @ weights[own], alpha[i], positive, squares[i], row_weight)
        bias += moved
        np.add.at(weights, own, values[:, None] * moved)
    kept = np.abs(weights) >= problem.least
    return BlockWeights(
        columns[kept.any(axis=1)].astype(np.int32),
        kept.sum(axis=1)[kept.any(axis=1)].cumsum().astype(np.int64),
        kept.nonzero()[1].astype(np.uint8),
        weights[kept],
        bias,
    )


def _local(problem: BlockProblem) -> tuple[Array, list[tuple[Array, Array]], Array]:
    """The columns that occur, the entries of each row among them, and its squared norm plus 1 for the bias."""
    offsets, all_columns, all_values, _ = problem.rows
    parts = [slice(offsets[row], offsets[row + 1]) for row in problem.picked]
    columns = np.unique(np.concatenate([all_columns[part] for part in parts])) if parts else np.zeros(0, dtype=np.int32)
    local = [(np.searchsorted(columns, all_columns[part]), all_values[part].astype(np.float64)) for part in parts]
    return columns, local, np.array([1 + (values**2).sum() for _, values in local])


def _hinge_change(
    problem: BlockProblem, scores: Array, alpha: Array, positive: Array, square: float, row_weight: float
) -> Array:
    signs = np.where(positive, 1.0, -1.0)
    slack = 0.5 / (np.where(positive, problem.pos_cost, problem.neg_cost) * row_weight)
    moved = np.maximum(alpha - (signs * scores - 1 + slack * alpha) / (square + slack), 0)
    change: Array = (moved - alpha) * signs
    alpha[:] = moved
    return change


def _zlpr_change(
    problem: BlockProblem, scores: Array, alpha: Array, positive: Array, square: float, row_weight: float
) -> Array:
    cost = problem.pos_cost * row_weight
    shares = np.zeros_like(scores)
    for side, sign in ((positive, 1.0), (~positive, -1.0)):
        own = -sign * scores[side]
        shift = max(own.max(initial=0.0), 0.0)
        terms = np.exp(own - shift)
        shares[side] = sign * terms / (np.exp(-shift) + terms.sum())
    change: Array = 2 / (cost * square + 2) * (cost * shares - alpha)
    alpha += change
    return change


def search(trees: Sequence[Tree], rows: Rows, settings: SearchSettings) -> tuple[Array, Array]:
    """``(scores [R, k], labels [R, k])``: the labels with the largest mean probability over the trees, as log odds.

    If the beams reach fewer than k labels, the remaining places have the score -inf and the label -1.
    """
    scores = np.full((rows.num_rows, settings.k), -np.inf, dtype=np.float32)
    labels = np.full((rows.num_rows, settings.k), -1, dtype=np.int64)
    for row in range(rows.num_rows):
        sums: dict[int, float] = {}
        part = slice(rows.offsets[row], rows.offsets[row + 1])
        for tree in trees:
            for label, log_prob in _search_tree(tree, rows.columns[part], rows.values[part], settings):
                sums[label] = sums.get(label, 0.0) + np.exp(log_prob)
        prob = np.clip(np.array(list(sums.values())) / len(trees), 1e-12, 1 - 1e-7)
        odds, names = np.log(prob / (1 - prob)).astype(np.float32), np.array(list(sums), dtype=np.int64)
        best = np.lexsort((names, -odds))[: settings.k]
        scores[row, : len(best)], labels[row, : len(best)] = odds[best], names[best]
    return scores, labels


def _search_tree(tree: Tree, columns: Array, values: Array, settings: SearchSettings) -> list[tuple[int, float]]:
    beam = [(0, 0.0)]
    for depth, level in enumerate(tree.levels, start=1):
        power = 1.0 if depth == len(tree.levels) else settings.power
        found = [
            (child, before + power * -float(np.logaddexp(0, -settings.slope * score)))
            for node, before in beam
            for child, score in node_scores(level, node, columns, values)
        ]
        if depth == len(tree.levels):
            return [(int(tree.labels[child]), log_prob) for child, log_prob in found]
        beam = sorted(found, key=lambda each: (-each[1], each[0]))[: settings.beam]
    return []


def node_scores(level: Level, node: int, columns: Array, values: Array) -> list[tuple[int, float]]:
    """The children of a node with their scores for one row."""
    start, stop = int(level.child_start[node]), int(level.child_start[node + 1])
    scores = level.bias[start:stop].astype(np.float64)
    for number, block in enumerate(range(int(level.block_start[node]), int(level.block_start[node + 1]))):
        first, last = level.feature_start[block], level.feature_start[block + 1]
        for column, value in zip(columns, values, strict=True):
            at = first + np.searchsorted(level.features[first:last], column)
            if at < last and level.features[at] == column:
                own = slice(level.ends[at - 1] if at else 0, level.ends[at])
                np.add.at(scores, number * BLOCK + level.children[own].astype(np.int64), value * level.weights[own])
    return list(zip(range(start, stop), scores.tolist(), strict=True))
