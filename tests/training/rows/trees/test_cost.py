"""What a negative costs is chosen on rows that a small tree did not see."""

import re

import numpy as np
import pytest
import torch
from scipy import sparse

from manyhot.engines.native import tree as native
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.trees import cost as tree_cost
from manyhot.training.run.session import RunSession

pytestmark = pytest.mark.skipif(not native.available()[0], reason="the native engine is not built")
SIZES = {"trees": 3, "beam": 5, "passes": 3, "form": "squared_hinge", "threads": 1, "seed": 0}


def made_up(num_rows=400, num_labels=40):
    """Rows with a few labels and the words of these."""
    draw = np.random.default_rng(0)
    lists = [draw.choice(num_labels, size=draw.integers(1, 4), replace=False).tolist() for _ in range(num_rows)]
    x = sparse.lil_matrix((num_rows, 3 * num_labels), dtype=np.float32)
    for row, labels in enumerate(lists):
        for label in labels:
            x[row, 3 * label + draw.integers(0, 3)] = 1
        x[row, draw.integers(0, 3 * num_labels)] = 1
    return TrainingRows(x.tocsr(), SparseLabels.from_lists(lists, num_labels=num_labels))


def session_of(told):
    return RunSession(None, told.append, checkpoint_seconds=1e9, metric="P@1")


def test_the_cost_with_the_best_precision_is_taken(monkeypatch):
    monkeypatch.setattr(tree_cost, "LEAST_ROWS", 100)
    told = []
    found = tree_cost.negative_cost(session_of(told), made_up(), **SIZES)
    values = {float(cost): float(value) for cost, value in re.findall(r"([\d.]+): ([\d.]+)", told[-1].message)}
    assert set(values) == set(tree_cost.NEG_COSTS)
    assert values[found] == max(values.values())
    assert min(values.values()) > 0.2
    assert tree_cost.negative_cost(session_of([]), made_up(), **SIZES) == found


def test_few_rows_and_zlpr_keep_the_usual_cost():
    told = []
    assert tree_cost.negative_cost(session_of(told), made_up(), **SIZES) == tree_cost.NEG_COST
    many = tree_cost.negative_cost(session_of(told), made_up(), **{**SIZES, "form": "zlpr"})
    assert many == tree_cost.NEG_COST
    assert not told


@pytest.mark.parametrize(("gain", "wanted"), [(0.002, tree_cost.NEG_COST), (0.3, 1.0)])
def test_the_usual_cost_stays_unless_the_other_is_better_beyond_chance(gain, wanted, monkeypatch):
    monkeypatch.setattr(tree_cost, "LEAST_ROWS", 100)
    draw, calls = np.random.default_rng(0), []

    def precision(top, labels, *, k, reduction):
        calls.append(k)
        own = torch.from_numpy(draw.random(len(labels)))
        own = own - own.mean() + 0.5
        return own + gain if len(calls) > 3 else own

    monkeypatch.setattr(tree_cost, "precision_at_k", precision)
    assert tree_cost.negative_cost(session_of([]), made_up(), **SIZES) == wanted
