"""Label trees by the native engine: the plain form, number by number, for every instruction set."""

import numpy as np
import pytest

from engines.tree.problems import block_problem, random_tree, sparse_rows
from manyhot.engines.native import tree as native
from manyhot.engines.native.library import variants
from manyhot.engines.tree import plain
from manyhot.engines.tree.problem import Rows, SearchSettings, TreeMemoryError

pytestmark = pytest.mark.skipif(not native.available()[0], reason="the native engine was not built")


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("num_children", [1, 16, 37, 128])
@pytest.mark.parametrize("form", ["squared_hinge", "zlpr"])
def test_a_block_is_solved_as_the_plain_form_does(form, num_children, variant):
    weights = np.random.default_rng(3).uniform(0, 2, 60).astype(np.float32)
    weights[5] = 0.0
    problem = block_problem(form, num_children=num_children, weights=weights)
    wanted, found = plain.solve(problem), native.solve(problem, variant=variant)
    assert np.allclose(found.dense(40), wanted.dense(40), atol=2e-5)
    assert np.allclose(found.bias, wanted.bias, atol=2e-5)


@pytest.mark.parametrize("form", ["squared_hinge", "zlpr"])
def test_rows_without_features_and_blocks_without_positives_are_solved(form):
    problem = block_problem(form, num_rows=8, num_columns=5, num_children=3)
    empty = problem.rows._replace(offsets=np.zeros_like(problem.rows.offsets))
    for changed in (
        {**vars(problem), "rows": empty},
        {**vars(problem), "positive_offsets": np.zeros(9, dtype=np.int64)},
        {**vars(problem), "orders": problem.orders[:0]},
    ):
        other = type(problem)(**changed)
        wanted, found = plain.solve(other), native.solve(other)
        assert np.allclose(found.dense(5), wanted.dense(5), atol=1e-5)
        assert np.allclose(found.bias, wanted.bias, atol=1e-5)


def test_large_scores_stay_finite():
    rows = sparse_rows(20, 10, density=0.5)
    large = block_problem("zlpr", num_rows=10, num_columns=10, pos_cost=1e6, passes=30)
    large = type(large)(**{**vars(large), "rows": rows._replace(values=rows.values * 1e3)})
    found = native.solve(large)
    assert np.isfinite(found.weights).all()
    assert np.isfinite(found.bias).all()


@pytest.mark.parametrize(("beam", "k"), [(1, 5), (4, 3), (1000, 300), (7, 300)])
def test_a_search_gives_what_the_plain_form_gives(beam, k):
    trees, rows = [random_tree(12, seed=1), random_tree(12, ((4,), (5,) * 4, (15,) * 20), seed=2)], sparse_rows(25, 12)
    settings = SearchSettings(k=k, beam=beam)
    wanted, found = plain.search(trees, rows, settings), native.search(trees, rows, settings)
    assert np.allclose(found[0], wanted[0], atol=1e-4)
    # Labels with nearly equal scores may change places.
    changed = found[1] != wanted[1]
    assert changed.mean() < 0.01
    assert (found[1] == -1).sum() == (wanted[1] == -1).sum()


def test_rows_are_scored_alike_alone_and_among_many():
    trees, rows = [random_tree(400, seed=1), random_tree(400, ((2,), (150,) * 2), seed=2)], sparse_rows(300, 400, density=0.02)
    # With a steeper slope, many probabilities of these random weights round to 1, and equal ones have no order.
    settings = SearchSettings(k=20, beam=3, slope=3.0)
    scores, labels = native.search(trees, rows, settings)
    for row in (0, 1, 127, 128, 299):
        alone = Rows(rows.offsets[row : row + 2], rows.columns, rows.values, rows.num_columns)
        found = native.search(trees, alone, settings)
        assert np.array_equal(found[0][0], scores[row])
        assert np.array_equal(found[1][0], labels[row])
    wanted = plain.search(trees, rows, settings)
    assert np.allclose(scores, wanted[0], atol=1e-4)
    assert (labels != wanted[1]).mean() < 0.01


def test_features_that_no_node_has_and_rows_without_features_are_allowed():
    trees, rows = [random_tree(12, seed=1)], sparse_rows(25, 12)
    settings = SearchSettings(k=5, beam=4)
    more = rows._replace(columns=np.where(rows.columns == 3, 1_000_000, rows.columns).astype(np.int32), num_columns=0)
    less = rows._replace(values=np.where(rows.columns == 3, 0, rows.values).astype(np.float32))
    assert np.allclose(native.search(trees, more, settings)[0], native.search(trees, less, settings)[0], atol=1e-5)
    empty = rows._replace(offsets=np.zeros_like(rows.offsets))
    assert np.allclose(native.search(trees, empty, settings)[0], plain.search(trees, empty, settings)[0], atol=1e-4)
    none = rows._replace(offsets=rows.offsets[:1])
    assert native.search(trees, none, settings)[0].shape == (0, 5)


def test_labels_are_halved_into_those_that_are_alike():
    vectors = np.zeros((21, 6), dtype=np.float32)
    vectors[:10, :3] = np.random.default_rng(0).uniform(0.5, 1, (10, 3))
    vectors[10:, 3:] = np.random.default_rng(1).uniform(0.5, 1, (11, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    from scipy import sparse

    rows = Rows.of(sparse.csr_matrix(vectors))
    order = np.random.default_rng(2).permutation(21).astype(np.int32)
    ordered = native.halve(rows, order, 0, 7, most=20)
    assert sorted(ordered.tolist()) == list(range(21))
    halves = {frozenset(ordered[:10].tolist()), frozenset(ordered[10:].tolist())}
    assert halves == {frozenset(range(10)), frozenset(range(10, 21))}


def test_memory_that_is_not_there_is_an_error_with_a_remedy(monkeypatch):
    class Failing:
        manyhot_tree_solve = staticmethod(lambda call: 1)  # noqa: ARG005
        manyhot_tree_free = staticmethod(lambda call: None)  # noqa: ARG005

    monkeypatch.setattr(native, "_library", Failing)
    with pytest.raises(TreeMemoryError, match=r"needs 0\.0 GiB at once, and there is not enough memory\. Take fewer threads"):
        native.solve(block_problem("squared_hinge"))
