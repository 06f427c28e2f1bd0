"""The shape of label trees: balanced, and like labels together."""

import numpy as np
import pytest

from manyhot.engines.native import tree as native
from manyhot.training.rows.inputs.texts import TextInputs
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.trees.growing import MOST_HALVINGS, halvings, label_vectors, plan_tree
from training.problems import title_examples

pytestmark = pytest.mark.skipif(not native.available()[0], reason="the native engine was not built")


@pytest.mark.parametrize("num_labels", [16, 199, 4271, 25_086, 670_091, 3_000_000])
def test_the_last_level_has_about_a_hundred_labels_a_node_and_no_node_has_too_many_children(num_labels):
    levels = halvings(num_labels)
    assert max(levels) <= MOST_HALVINGS
    assert max(levels) - min(levels) <= 1
    assert num_labels / 2 ** sum(levels) <= 142


def test_every_label_has_one_place_and_parts_are_balanced():
    examples = title_examples(800, num_labels=333)
    _, rows = TextInputs.fit(examples, TrainSettings())
    vectors = label_vectors(rows, examples.labels)
    plan = plan_tree(vectors, seed=3)
    assert sorted(plan.labels.tolist()) == list(range(333))
    sizes = np.diff(plan.child_starts[-1])
    assert sizes.max() - sizes.min() <= 1
    assert [len(each) for each in plan.child_starts] == [2, 5]
    assert plan.place_starts(0).tolist() == plan.child_starts[1].tolist()
    assert plan.place_starts(1).tolist() == list(range(334))


def test_labels_with_a_common_word_come_under_one_node_more_often_than_by_chance():
    examples = title_examples(2000, num_labels=400)
    _, rows = TextInputs.fit(examples, TrainSettings())
    plan = plan_tree(label_vectors(rows, examples.labels), seed=0)
    node = np.empty(400, dtype=np.int64)
    node[plan.labels] = np.searchsorted(plan.child_starts[-1], np.arange(400), side="right")
    groups = node.reshape(100, 4)
    together = (groups == groups[:, :1]).all(axis=1).mean()
    assert together > 0.2, "by chance it is 0.02"


def test_the_seed_decides_the_shape():
    examples = title_examples(400, num_labels=120)
    _, rows = TextInputs.fit(examples, TrainSettings())
    vectors = label_vectors(rows, examples.labels)
    one, two, other = (plan_tree(vectors, seed=seed).labels for seed in (1, 1, 2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
