"""Cuts keep clear of the scores that they were found among: a row is decided alike in another batch and in exported form."""

import math

import numpy as np
import pytest
import torch

from manyhot import SparseLabels, TopScores, decide
from manyhot.decisions.cuts import best_gap, clear_cut, clearance, just_above, midway, rounding
from manyhot.decisions.tune import tune_rule
from manyhot.decisions.tuning.balanced import balanced_thresholds
from manyhot.decisions.tuning.top_cut import tune_top

INF = math.inf
# Units of rounding; scores of the same row were seen to differ by a hundred.
CLEAR = 250
OBJECTIVES = ("micro-F1", "macro-F1", "MLC-F1", "SubACC", "jaccard", "hamming-error")
LABELS = ("micro-F1", "macro-F1", "hamming-error")


def crowded(rows=1500, labels=4, spread=0.5, level=-2.0, seed=0):
    """Scores so close to each other that many gaps are narrower than rounding, many of them doubled, as of a weak encoder."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(rows, labels, generator=generator) < torch.tensor([0.4, 0.2, 0.05, 0.002])
    scores = level + spread * (torch.randn(rows, labels, generator=generator) + 1.5 * truth)
    scores[rows // 2 :] = scores[: rows - rows // 2]
    return scores, truth


def nearest(scores, cuts):
    """How far the closest score is from its cut, in units of rounding; ``cuts`` is a number or one per label."""
    cuts = torch.tensor(cuts, dtype=torch.float64)
    return float(((scores.double() - cuts).abs() / scores.double().abs().clamp(min=1)).min() / torch.finfo(scores.dtype).eps)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_cut_for_all_labels_is_clear_of_every_score(objective):
    scores, truth = crowded()
    rule = tune_rule(scores, truth, objective=objective, folds=0).rule
    assert nearest(scores, rule.threshold) >= CLEAR


@pytest.mark.parametrize("objective", [*LABELS, "balanced"])
def test_cuts_of_labels_are_clear_of_every_score_of_theirs(objective):
    scores, truth = crowded()
    if objective == "balanced":
        cuts = balanced_thresholds(scores, truth)
    else:
        cuts = tune_rule(scores, truth, objective=objective, per_label=True, folds=0).rule.threshold
    assert nearest(scores, cuts) >= CLEAR


@pytest.mark.parametrize("objective", LABELS)
def test_where_no_gap_is_wide_enough_a_cut_lies_in_a_wide_one(objective):
    scores, truth = crowded(spread=0.02)
    for per_label in (False, True):
        tuned = tune_rule(scores, truth, objective=objective, per_label=per_label, folds=0)
        cuts = tuned.rule.threshold
        assert nearest(scores, cuts) >= 16


def test_averaged_cuts_of_parts_are_clear_too():
    scores, truth = crowded(rows=3000)
    cuts = balanced_thresholds(scores, truth, averaged=True)
    assert nearest(scores, cuts) >= CLEAR


def test_cuts_of_top_lists_are_clear_too():
    scores, truth = crowded()
    rule, _ = tune_top(TopScores.from_dense(scores, k=3), SparseLabels.from_dense(truth))
    assert nearest(scores, rule.threshold) >= CLEAR


@pytest.mark.parametrize("objective", LABELS)
def test_scores_moved_by_rounding_are_decided_alike(objective):
    scores, truth = crowded()
    for per_label in (False, True):
        rule = tune_rule(scores, truth, objective=objective, per_label=per_label, folds=0).rule
        wanted = decide(scores, rule)
        for seed in range(5):
            moved = torch.randint(-100, 101, scores.shape, generator=torch.Generator().manual_seed(seed)) * 2.0**-23
            assert torch.equal(decide(scores + moved, rule), wanted)


def test_a_label_that_is_best_not_predicted_is_cut_above_its_scores_and_not_on_one():
    scores = torch.tensor([[1.0, -3.0], [2.0, -2.5], [-1.0, -2.0]])
    truth = torch.tensor([[1, 0], [1, 1], [0, 0]])
    cut = tune_rule(scores, truth, objective="hamming-error", per_label=True, shrink=0, flood=INF, folds=0).rule.threshold[1]
    assert cut >= -2.0 + float(rounding(scores[2, 1]))


def test_a_wider_gap_costs_no_more_than_the_slack():
    # 300,000 scores: one gap in ten is wide enough, and in scores a tenth as large none is.
    generator = torch.Generator().manual_seed(1)
    scores = 2 * torch.randn(300, 1000, generator=generator)
    truth = torch.rand(300, 1000, generator=generator) < torch.sigmoid(2 * scores - 8)
    tuned = tune_rule(scores, truth, folds=0)
    assert nearest(scores, tuned.rule.threshold) >= CLEAR
    assert nearest(scores / 10, tune_rule(scores / 10, truth, folds=0).rule.threshold) >= 16
    order = scores.flatten().argsort(descending=True)
    found = truth.flatten()[order].cumsum(0).double()
    best = float((2 * found / (torch.arange(1, 300_001) + truth.sum())).max())
    assert tuned.value >= best * (1 - 1e-3)


def test_gaps_that_matter_are_cut_however_narrow():
    low, high = torch.tensor(0.1), torch.tensor(0.1).nextafter(torch.tensor(1.0))
    assert float(clearance(high, low)) < 0.01
    value, clear = torch.tensor([0.9, 0.4, 0.8999]), torch.tensor([0.1, 1.0, 0.2], dtype=torch.float64)
    assert best_gap(value, clear) == 2
    assert best_gap(torch.tensor([0.9, 0.4, 0.8]), clear) == 0
    assert best_gap(torch.tensor([0.9, 0.8999, 0.8]), clear) == 1


def test_the_middle_of_a_gap_is_finite_and_excludes_its_lower_end():
    ends = torch.tensor([-INF, -1e30, -2.0, 0.0, 1.0, 1.0000001, 1e30, INF])
    for place, low in enumerate(ends[:-1]):
        for high in ends[place + 1 :]:
            cut = float(midway(high, low))
            assert math.isfinite(cut)
            assert float(low) <= cut < float(high)
    assert float(just_above(torch.tensor(-INF))) == 0.0
    assert float(just_above(torch.tensor(3.0))) > 3.0


def test_a_cut_from_elsewhere_moves_only_where_it_must():
    scores = torch.tensor([-1.0, 0.0, 0.05, 2.0])
    assert clear_cut(scores, 1.0) == 1.0
    assert clear_cut(scores, 0.05) == pytest.approx(1.025) or clear_cut(scores, 0.05) == pytest.approx(0.025)
    assert clear_cut(scores, 2.0) == pytest.approx(2.0 + float(rounding(scores[3])))
    dense = torch.from_numpy(np.linspace(-0.01, 0.01, 20_001, dtype=np.float32))
    assert not -0.01 <= clear_cut(torch.cat([dense, dense.new_tensor([-1.0, 1.0])]), 0.0) <= 0.01
    far = torch.tensor([1e6, 1e6 + 1])
    assert abs(clear_cut(far, 1e6) - 1e6) > float(rounding(far[0])) / 2
