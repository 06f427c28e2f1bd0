"""What a negative costs is chosen on rows that a small tree did not see."""

import re

import numpy as np
import pytest
import torch
from scipy import sparse

from manyhot.engines.native import tree as native
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.trees import choice
from manyhot.training.rows.trees.choice import FULL_COST, negative_cost
from manyhot.training.rows.trees.fit import NEG_COST
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
    monkeypatch.setattr(choice, "LEAST_ROWS", 100)
    told = []
    # Enough held-out rows for a difference beyond chance.
    rows = made_up(2_000)
    found = negative_cost(session_of(told), rows, **SIZES)
    values = {float(cost): float(value) for value, cost in re.findall(r"([\d.]+) with ([\d.]+)", told[-1].message)}
    assert set(values) == {NEG_COST, FULL_COST}
    assert values[found] == max(values.values())
    assert min(values.values()) > 0.2
    assert negative_cost(session_of([]), rows, **SIZES) == found


def test_few_rows_and_zlpr_keep_the_usual_cost():
    told = []
    assert negative_cost(session_of(told), made_up(), **SIZES) == NEG_COST
    assert negative_cost(session_of(told), made_up(), **{**SIZES, "form": "zlpr"}) == NEG_COST
    assert not told


@pytest.mark.parametrize(("gain", "wanted"), [(0.002, NEG_COST), (0.3, FULL_COST), (-0.3, NEG_COST)])
def test_the_usual_cost_stays_unless_the_full_cost_is_better_beyond_chance(gain, wanted, monkeypatch):
    monkeypatch.setattr(choice, "LEAST_ROWS", 100)
    draw, calls = np.random.default_rng(0), []

    def precision(top, labels, *, k, reduction):
        calls.append(k)
        own = torch.from_numpy(draw.random(len(labels)))
        return own - own.mean() + 0.5 + (0.0, gain)[(len(calls) - 1) // 3]

    monkeypatch.setattr(choice, "precision_at_k", precision)
    assert negative_cost(session_of([]), made_up(), **SIZES) == wanted
    assert len(calls) == 6


@pytest.mark.parametrize(("gain", "sizes"), [(0.9, [100, 100]), (-0.9, [100, 100]), (0.02, [100, 100, 364, 364])])
def test_trees_of_few_rows_decide_if_the_difference_is_clear(gain, sizes, monkeypatch):
    monkeypatch.setattr(choice, "LEAST_ROWS", 100)
    monkeypatch.setattr(choice, "FIRST_ROWS", 100)
    fitted, draw = [], np.random.default_rng(0)

    class Counting(choice.TreeFit):
        def __init__(self, session, rows, **settings):
            fitted.append((len(rows), settings["neg_cost"]))
            super().__init__(session, rows, **settings)

    def precision(top, labels, *, k, reduction):
        own = torch.from_numpy(draw.random(len(labels)))
        return own - own.mean() + 0.5 + (gain if fitted[-1][1] == 1.0 else 0.0)

    monkeypatch.setattr(choice, "TreeFit", Counting)
    monkeypatch.setattr(choice, "precision_at_k", precision)
    found = negative_cost(session_of([]), made_up(), **SIZES)
    assert [size for size, _ in fitted] == sizes
    assert (found == FULL_COST) == (gain == 0.9)
