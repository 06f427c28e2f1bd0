"""Points lie on the exact curve."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, precision_recall_curve

from manyhot.report.run.pr_curves import exact_curve, measure_curves, thinned
from report.problems import judged


@pytest.mark.parametrize("seed", range(3))
def test_the_curve_and_its_area_are_scikit_learns_with_ties(seed):
    draw = np.random.default_rng(seed)
    truth, scores = draw.random(200) < 0.3, np.round(draw.normal(size=200), 1)
    recall, precision, area = exact_curve(torch.from_numpy(scores), torch.from_numpy(truth))
    theirs = precision_recall_curve(truth, scores)
    on_curve = {(round(r, 9), round(p, 9)) for p, r in zip(theirs[0], theirs[1], strict=True)}
    assert {(round(r, 9), round(p, 9)) for r, p in zip(recall.tolist(), precision.tolist(), strict=True)} <= on_curve
    assert area == pytest.approx(average_precision_score(truth, scores))


def test_a_thinned_curve_keeps_both_ends_and_only_points_of_the_curve():
    recall = torch.linspace(0.001, 1, 1000, dtype=torch.float64)
    precision = 1 - recall / 2
    few = thinned(recall, precision, points=50)
    assert len(few[0]) <= 50
    assert few[0][0] == recall[0]
    assert few[0][-1] == 1
    assert bool((few[1] == 1 - few[0] / 2).all())


def test_no_positive_is_an_empty_curve():
    recall, _, area = exact_curve(torch.ones(3), torch.zeros(3, dtype=torch.bool))
    assert len(recall) == 0
    assert area == 0


def test_chosen_curves_are_all_labels_the_most_frequent_the_best_and_the_worst():
    case = judged(rows=300, unknown=0.1)
    areas = torch.tensor([0.5, 0.9, 0.3, 0.7, 0.6], dtype=torch.float64)
    curves = measure_curves(case, areas)
    assert [(curve["name"], curve["why"]) for curve in curves] == [
        ("all labels", "every entry"),
        ("label 0", "most frequent"),
        ("label 1", "best average precision"),
        ("label 4", "median"),
        ("label 2", "worst average precision"),
    ]
    assert curves[0]["positives"] == case.positives.indices.numel()
