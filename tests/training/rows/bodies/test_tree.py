"""The tree body: its scores, its best labels, and what it refuses to load."""

import numpy as np
import pytest
import torch

from engines.tree.problems import random_tree, sparse_rows
from manyhot.training.rows.bodies.tree import UNREACHED, TreeBody, sizes_of, unit_rows
from manyhot.training.rows.inputs.row_batches import SparseRows


def batch_of(rows):
    return SparseRows(torch.from_numpy(rows.columns).long(), torch.from_numpy(rows.offsets), torch.from_numpy(rows.values))


@pytest.fixture
def body():
    return TreeBody.of([random_tree(12, seed=1), random_tree(12, ((20,), (15,) * 20), seed=2)], beam=3)


def test_the_best_labels_have_the_scores_of_the_whole_table(body):
    batch = batch_of(sparse_rows(9, 12, density=0.5))
    best, whole = body.top(batch, 5), body(batch)
    assert whole.shape == (9, 300)
    assert torch.equal(whole.gather(1, best.indices), best.values)
    assert torch.equal(whole.topk(5).values, best.values)
    assert bool((whole == UNREACHED).any())


def test_labels_past_those_that_a_beam_reaches_have_the_number_minus_one():
    body = TreeBody.of([random_tree(12, seed=1)], beam=1)
    best = body.top(batch_of(sparse_rows(4, 12)), 50)
    assert bool((best.indices[:, -1] == -1).all())
    assert bool(best.values[:, -1].isneginf().all())


def test_threads_change_no_score(body):
    batch, threads = batch_of(sparse_rows(400, 12)), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = body(batch)
        torch.set_num_threads(3)
        assert torch.equal(body(batch), one)
    finally:
        torch.set_num_threads(threads)


def test_rows_of_zeros_stay_zeros():
    rows = sparse_rows(5, 4)
    assert np.isfinite(unit_rows(rows._replace(values=rows.values * 0)).values).all()


def test_a_body_is_made_again_from_its_sizes(body):
    other = TreeBody(300, sizes_of(body.trees()), beam=3)
    other.load_state_dict(body.state_dict())
    batch = batch_of(sparse_rows(5, 12))
    assert torch.equal(other(batch), body(batch))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("child_start_0_0", lambda part: part + 1, "the children of the nodes must follow each other"),
        ("child_start_0_1", lambda part: part.flip(0), "the children of the nodes must follow each other"),
        ("feature_start_0_1", lambda part: part * 3, "the features of the blocks must follow each other"),
        ("ends_0_1", lambda part: part * 1000, "the weights of the features must follow each other"),
        ("ends_1_0", lambda part: part.flip(0), "the weights of the features must follow each other"),
        ("children_0_1", lambda part: part + 200, "a weight must belong to a child of its block"),
        ("labels_1", lambda part: part * 0, "every label must have one place in each tree"),
    ],
)
def test_arrays_that_point_outside_of_each_other_are_refused(body, name, change, message):
    state = body.state_dict()
    state[name] = change(state[name])
    with pytest.raises(ValueError, match=message):
        TreeBody(300, sizes_of(body.trees()), beam=3).load_state_dict(state)


def test_a_body_without_gradients_is_not_explained_and_says_so(tmp_path):
    from manyhot.data.examples import Examples
    from manyhot.labels.sparse import SparseLabels
    from manyhot.training.rows.settings import TrainSettings
    from manyhot.training.rows.train import train

    names = tuple(f"label{number}" for number in range(20))
    texts = [f"word{number % 20} word{(number + 1) % 20}" for number in range(200)]
    labels = SparseLabels.from_lists([[number % 20] for number in range(200)], num_labels=20)
    model = train(Examples(labels, names, texts=texts), TrainSettings(model="tree", epochs=1, tune="none"))
    with pytest.raises(ValueError, match="'tree' does not"):
        model.explain(["word1"])
