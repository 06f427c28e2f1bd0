"""The plain form of label trees against what it claims: the optimum of each block, and every path of a tree."""

import numpy as np
import pytest
from scipy import optimize

from engines.tree.problems import block_problem, random_tree, sparse_rows
from manyhot.engines.tree import plain
from manyhot.engines.tree.problem import POWER, SLOPE, SearchSettings


def objective(problem):
    """The function that a block minimises, of W and b in one vector, with its gradient; in float64 and for all rows at once."""
    offsets, columns, values, width = problem.rows
    x = np.zeros((len(problem.picked), width))
    truth = np.zeros((len(problem.picked), problem.num_children), dtype=bool)
    for place, row in enumerate(problem.picked):
        x[place, columns[offsets[row] : offsets[row + 1]]] = values[offsets[row] : offsets[row + 1]]
        truth[place, problem.positives[problem.positive_offsets[place] : problem.positive_offsets[place + 1]]] = True
    x = np.hstack([x, np.ones((len(x), 1))])
    weights = np.ones(len(x)) if problem.weights is None else problem.weights.astype(np.float64)
    signs = np.where(truth, 1.0, -1.0)

    def hinge(s):
        costs = np.where(truth, problem.pos_cost, problem.neg_cost)
        slack = np.maximum(0, 1 - signs * s)
        return (costs * slack**2).sum(axis=1), -2 * costs * slack * signs

    def zlpr(s):
        value, slope = np.zeros(len(s)), np.zeros_like(s)
        for side, sign in ((truth, 1.0), (~truth, -1.0)):
            terms = np.where(side, np.exp(-sign * s), 0.0)
            total = 1 + terms.sum(axis=1)
            value += np.log(total)
            slope -= sign * terms / total[:, None]
        return problem.pos_cost * value, problem.pos_cost * slope

    def value_and_slope(flat):
        w = flat.reshape(x.shape[1], -1)
        value, slope = (hinge if problem.form == "squared_hinge" else zlpr)(x @ w)
        return 0.5 * (w**2).sum() + weights @ value, (w + x.T @ (weights[:, None] * slope)).ravel()

    return value_and_slope, x.shape[1] * problem.num_children


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["squared_hinge", "zlpr"])
def test_many_passes_end_at_the_optimum_that_a_general_solver_finds(form, weighted):
    weights = np.random.default_rng(3).uniform(0, 2, 30).astype(np.float32) if weighted else None
    problem = block_problem(form, num_rows=30, num_columns=15, num_children=6, passes=400, weights=weights)
    value_and_slope, size = objective(problem)
    best = optimize.minimize(
        value_and_slope, np.zeros(size), jac=True, method="L-BFGS-B", options={"maxiter": 5000, "gtol": 1e-9}
    )
    found = plain.solve(problem)
    own = np.vstack([found.dense(15), found.bias])
    value, slope = value_and_slope(own.ravel())
    assert value == pytest.approx(best.fun, rel=1e-8)
    assert np.abs(slope).max() < 1e-5


def test_every_pass_comes_nearer_to_the_optimum():
    value_and_slope, size = objective(block_problem("squared_hinge"))
    best = optimize.minimize(value_and_slope, np.zeros(size), jac=True, method="L-BFGS-B").fun
    start = value_and_slope(np.zeros(size))[0]
    shares = []
    for passes in (1, 6, 30, 120):
        found = plain.solve(block_problem("squared_hinge", passes=passes))
        reached = value_and_slope(np.vstack([found.dense(40), found.bias]).ravel())[0]
        shares.append((reached - best) / (start - best))
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.01


def test_small_weights_are_dropped_and_features_without_any_with_them():
    problem = block_problem("squared_hinge", least=0.3)
    whole = plain.solve(block_problem("squared_hinge"))
    pruned = plain.solve(problem)
    dense = whole.dense(40)
    assert np.array_equal(pruned.dense(40), np.where(np.abs(dense) >= 0.3, dense, 0))
    assert len(pruned.features) < len(whole.features) or (np.abs(dense) >= 0.3).any(axis=1).all()


def test_a_beam_as_wide_as_the_tree_scores_every_path():
    trees, rows = [random_tree(12, seed=1), random_tree(12, ((20,), (15,) * 20), seed=2)], sparse_rows(9, 12, density=0.5)
    num_labels = 300
    scores, labels = plain.search(trees, rows, SearchSettings(k=num_labels, beam=1000))
    x = np.zeros((9, 12))
    for row in range(9):
        part = slice(rows.offsets[row], rows.offsets[row + 1])
        x[row, rows.columns[part]] = rows.values[part]
    total = np.zeros((9, num_labels))
    for tree in trees:
        total[:, tree.labels] += np.exp(exhaustive(tree, x))
    prob = np.clip(total / 2, 1e-12, 1 - 1e-7)
    assert (np.sort(labels, axis=1) == np.arange(num_labels)).all()
    wanted = np.take_along_axis(np.log(prob / (1 - prob)), labels, axis=1)
    assert np.allclose(scores, wanted, atol=1e-4)
    assert (np.diff(scores, axis=1) <= 0).all()


def exhaustive(tree, x, slope=SLOPE, power=POWER):
    """Log probabilities of all places of the last level, by dense products."""
    before = np.zeros((len(x), 1))
    for depth, level in enumerate(tree.levels, start=1):
        blocks = []
        for node in range(len(level.child_start) - 1):
            for number, block in enumerate(range(level.block_start[node], level.block_start[node + 1])):
                first = level.child_start[node] + 128 * number
                dense = np.zeros((x.shape[1], min(128, level.child_start[node + 1] - first)))
                for at in range(level.feature_start[block], level.feature_start[block + 1]):
                    own = slice(level.ends[at - 1] if at else 0, level.ends[at])
                    dense[level.features[at], level.children[own]] = level.weights[own]
                blocks.append(dense)
        scores = x @ np.hstack(blocks) + level.bias
        share = -np.logaddexp(0, -slope * scores) * (1.0 if depth == len(tree.levels) else power)
        before = np.repeat(before, np.diff(level.child_start), axis=1) + share
    return before
