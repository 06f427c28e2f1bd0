"""The rows that the beam search leads to a node, and what they change."""

import json

import numpy as np
import pytest
import torch
from scipy import sparse

from engines.tree.problems import random_tree
from manyhot import TrainSettings, load_model, train
from manyhot.data.mapped.rows import MappedMatrix
from manyhot.engines.native import tree as native
from manyhot.engines.tree import plain
from manyhot.engines.tree.problem import Rows, SearchSettings, Tree
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.bodies.tree import EARLIER_POWER, EARLIER_SLOPE, unit_rows
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.trees import fit, reached
from manyhot.training.rows.trees.reached import ReachedRows, reached_rows
from manyhot.training.run.session import RunSession
from training.problems import title_examples

pytestmark = pytest.mark.skipif(not native.available()[0], reason="the native engine was not built")


def some_rows(count=90, columns=50):
    return sparse.random(count, columns, 0.2, format="csr", random_state=3, dtype=np.float32)


def lists_of(found, nodes):
    return [found.of(node).tolist() for node in range(nodes)]


def ignore(line):
    """Takes progress lines and drops them."""


@pytest.mark.parametrize("depth", [1, 2])
def test_rows_are_listed_under_the_nodes_that_the_plain_search_finds(depth, monkeypatch):
    monkeypatch.setattr(reached, "PART_ROWS", 20)
    rows, levels = some_rows(), random_tree(50).levels[:depth]
    nodes = len(levels[-1].bias)
    upper = Tree(levels, np.arange(nodes, dtype=np.int32))
    wanted = [[] for _ in range(nodes)]
    _, visited = plain.search([upper], unit_rows(Rows.of(rows)), SearchSettings(k=5, beam=5))
    for row, own in enumerate(visited):
        for node in own[own >= 0]:
            wanted[node].append(row)
    for threads in (1, 3):
        assert lists_of(reached_rows(levels, rows, beam=5, threads=threads, tell=ignore), nodes) == wanted


def test_rows_in_files_reach_the_same_nodes(tmp_path):
    rows, levels = some_rows(), random_tree(50).levels[:1]
    inputs = MappedMatrix(tmp_path, rows.indptr.astype(np.int64), rows.indices, rows.data, rows.shape[1], np.arange(0, 90, 3))
    found = reached_rows(levels, inputs, beam=4, threads=1, tell=ignore)
    assert lists_of(found, 150) == lists_of(reached_rows(levels, rows[::3], beam=4, threads=1, tell=ignore), 150)


def test_every_row_reaches_every_node_if_there_are_few():
    levels = random_tree(50, ((3,), (2, 2, 2))).levels[:1]
    found = reached_rows(levels, some_rows(), beam=10, threads=2, tell=ignore)
    assert lists_of(found, 3) == [list(range(90))] * 3


def test_a_search_of_many_rows_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr(reached, "PART_ROWS", 10)
    monkeypatch.setattr(reached, "SECONDS_BETWEEN_EVENTS", 0)
    told = []
    reached_rows(random_tree(50).levels[:1], some_rows(), beam=4, threads=1, tell=told.append)
    assert told == ["40 of 90 rows searched", "80 of 90 rows searched", "90 of 90 rows searched"]


def test_blocks_are_fitted_to_the_rows_that_reach_their_node(monkeypatch):
    examples, seen = title_examples(400, num_labels=300, as_sparse=True), []
    monkeypatch.setattr(native, "solve", lambda problem, solve=native.solve: seen.append(problem) or solve(problem))
    rows = TrainingRows(examples.features, examples.labels)
    session = RunSession(None, None, checkpoint_seconds=1e9, metric="P@1")
    sizes = {"trees": 1, "passes": 1, "form": "squared_hinge", "seed": 0, "threads": 1}
    counts = {}
    for beam in (1, 2, 4):
        seen.clear()
        fit.TreeFit(session, rows, beam=beam, **sizes).run()
        counts[beam] = [len(problem.picked) for problem in seen]
        assert all(len(np.unique(problem.picked)) == len(problem.picked) for problem in seen)
    root, *last = counts[4]
    assert root == 400
    assert last == [400] * len(last), "four nodes, and each row reaches four"
    assert all(one <= two <= 400 for one, two in zip(counts[1][1:], counts[2][1:], strict=True))
    assert sum(counts[1]) < sum(counts[2])


def test_rows_led_to_a_node_by_mistake_get_lower_scores_there(monkeypatch):
    draw = np.random.default_rng(0)
    lists = [[int(draw.integers(0, 40))] for _ in range(1200)]
    features = sparse.lil_matrix((1200, 40), dtype=np.float32)
    for row, (label,) in enumerate(lists):
        features[row, label] = 1.0
        features[row, int(draw.integers(0, 40))] = 0.9  # the word of another label
    rows = TrainingRows(features.tocsr(), SparseLabels.from_lists(lists, num_labels=40))
    without = wrong_scores(rows, lists, monkeypatch, ReachedRows(np.zeros(0, dtype=np.int64), np.zeros(3, dtype=np.int64)))
    assert wrong_scores(rows, lists, monkeypatch) < without - 0.2


def wrong_scores(rows, lists, monkeypatch, found=None):
    """The mean best score of a row in the node that does not hold its label; ``found`` replaces the rows that reach nodes."""
    session = RunSession(None, None, checkpoint_seconds=1e9, metric="P@1")
    sizes = {"trees": 1, "beam": 2, "passes": 6, "form": "squared_hinge", "seed": 0, "threads": 1}
    with monkeypatch.context() as patch:
        if found is not None:
            patch.setattr(fit, "reached_rows", lambda *_, **__: found)
        (tree,) = fit.TreeFit(session, rows, **sizes).run().trees()
    home = np.empty(40, dtype=np.int64)
    home[tree.labels] = np.searchsorted(tree.levels[1].child_start, np.arange(40), side="right") - 1
    unit, best = unit_rows(Rows.of(rows.inputs)), []
    for row, (label,) in enumerate(lists[:200]):
        part = slice(unit.offsets[row], unit.offsets[row + 1])
        scores = plain.node_scores(tree.levels[1], int(1 - home[label]), unit.columns[part], unit.values[part])
        best.append(max(score for _, score in scores))
    return np.mean(best)


@pytest.mark.parametrize(("name", "earlier"), [("power", EARLIER_POWER), ("slope", EARLIER_SLOPE)])
def test_a_model_saved_without_a_power_or_a_slope_keeps_the_one_of_its_time(name, earlier, tmp_path):
    examples = title_examples(300, num_labels=300)
    model = train(examples, TrainSettings(model="tree", threads=1, trees=2), run=tmp_path / "run")
    assert getattr(load_model(tmp_path / "run").body, name) == getattr(model.body, name) == model.shape[name] != earlier
    path = tmp_path / "run" / "model" / "model.json"
    described = json.loads(path.read_text())
    del described["shape"][name]
    path.write_text(json.dumps(described))
    before = load_model(tmp_path / "run")
    assert getattr(before.body, name) == earlier
    assert not torch.equal(before.logits(examples), model.logits(examples))
