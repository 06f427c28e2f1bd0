"""Cuts found from listed scores are those found by sorting: in the interpreter everywhere, on the device where there is one."""

import math

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import tune_rule
from manyhot.decisions.tuning import additive, floor, one_cut, pooled
from manyhot.decisions.tuning.balanced import balanced_thresholds
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.rows import scored_rows

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from decisions.test_listed import check_cuts, hostile
from manyhot.engines.triton import columns, counts, listing, pooled
counts.TILES, counts.DENSE, counts.PROGRAMS = dict.fromkeys(counts.TILES, (16, 16, 4)), 16, 4
listing.TILE, listing.ROOM = 64, 50
columns.TILE, columns.LISTED_ROWS, columns.LISTED_LABELS, columns.LABELS, columns.BLOCK = 256, 32, 8, 8, 64
columns.FEW_FROM, columns.FEW_LABELS, pooled.BLOCK = 9, 8, 64
for seed in range(16):
    scores, labels, where = hostile(seed, num_labels=7 if seed < 12 else 40)
    check_cuts(scores, labels, where, 20 if seed % 2 else 1 << 21)
print("checked")
"""


def hostile(seed, rows=30, num_labels=7):
    """Scores with ties, gaps narrower than rounding, infinities and NaN; labels from rare to frequent."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.rand(rows, num_labels, generator=draw) < (0.05, 0.3, 0.6)[seed % 3] * torch.rand(num_labels, generator=draw)
    scores = (1.0, 0.01, 3.0, 1e-4)[seed % 4] * torch.randn(rows, num_labels, generator=draw) + (seed % 4 < 2) * truth - 1
    scores = (scores * 4).round() / 4 if seed % 5 == 0 else scores
    if seed % 3 == 0:
        for value, share in ((-math.inf, 0.1), (math.inf, 0.05), (math.nan, 0.05)):
            scores[torch.rand(rows, num_labels, generator=draw) < share] = value
    return scores, truth, torch.rand(rows, num_labels, generator=draw) < 0.8 if seed % 4 == 0 else None


def all_cuts(scores, labels, where):
    """Thresholds for every objective, for all labels and per label."""
    found = [tune_rule(scores, labels, objective=name, where=where, folds=0).rule.threshold for name in OBJECTIVES]
    for name in (name for name, goal in OBJECTIVES.items() if goal.per_label):
        for shrink, flood in ((5.0, 5.0), (0.0, math.inf)):
            tuned = tune_rule(scores, labels, objective=name, per_label=True, shrink=shrink, flood=flood, where=where, folds=0)
            found.append(tuned.rule.threshold)
    return [*found, balanced_thresholds(scores, labels, where=where)]


def check_cuts(scores, labels, where, sampled):
    """What is found with kernels is what is found without them; a small sample comes with few gaps to choose from."""
    kept = floor.SAMPLED, pooled.SAMPLED, pooled.NEIGHBOURS
    floor.SAMPLED, pooled.SAMPLED, pooled.NEIGHBOURS = sampled, 2 * sampled, 3 if sampled < 1000 else 1000
    try:
        assert all_cuts(scores, labels, where) == plainly(lambda: all_cuts(scores, labels, where))
    finally:
        floor.SAMPLED, pooled.SAMPLED, pooled.NEIGHBOURS = kept


def plainly(call):
    """The result of a call without kernels."""
    from manyhot.engines.triton.launch.gate import GATE

    assert not GATE.failure, GATE.failure
    GATE.failure = "turned off by a test"
    try:
        return call()
    finally:
        GATE.failure = ""


@pytest.mark.slow
def test_listed_scores_give_the_cuts_that_sorted_ones_give_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(12))
def test_listed_scores_give_the_cuts_that_sorted_ones_give_on_the_device(seed):
    scores, labels, where = hostile(seed, rows=400, num_labels=60)
    check_cuts(scores.cuda(), labels.cuda(), None if where is None else where.cuda(), 500 if seed % 2 else 1 << 21)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["micro-F1", "hamming-error"])
def test_one_threshold_of_many_scores_is_found_in_one_read_on_the_device(name):
    draw = torch.Generator(device="cuda").manual_seed(0)
    labels = torch.rand(2000, 20_000, generator=draw, device="cuda") < 0.0002
    scores = torch.randn(2000, 20_000, generator=draw, device="cuda") - 2 + 3 * labels
    data = scored_rows("test", scores, labels, None)
    found = pooled.listed_cut(data, OBJECTIVES[name])
    assert found is not None
    assert found == pooled.sorted_cut(data, OBJECTIVES[name], pooled.steps_of(data))


@pytest.mark.parametrize("seed", range(12))
def test_labels_without_positives_change_no_cut(seed, monkeypatch):
    scores, labels, where = hostile(seed, num_labels=40)
    labels[:, torch.arange(40) % 4 > 0] = False
    scores[:, 20:] -= 2
    found = all_cuts(scores, labels, where)
    monkeypatch.setattr(one_cut, "_with_positives", lambda _: None)
    monkeypatch.setattr(additive, "_own_labels", lambda *_: None)
    assert found == all_cuts(scores, labels, where)


@pytest.mark.parametrize("share", [0.2, 0.8])
@pytest.mark.parametrize("seed", range(5))
def test_labels_without_positives_get_the_common_cut_for_macro_f1(seed, share):
    draw = torch.Generator().manual_seed(seed)
    labels = (torch.rand(20, 400, generator=draw) < 0.1) & (torch.rand(400, generator=draw) < share)
    scores = torch.randn(20, 400, generator=draw) - 2 + 3 * labels
    common = tune_rule(scores, labels, objective="macro-F1", folds=0).rule.threshold
    cuts = torch.tensor(tune_rule(scores, labels, objective="macro-F1", per_label=True, folds=0).rule.threshold)
    near = (scores - common).abs().amin(dim=0) < 1e-3
    few = ~labels.any(dim=0) & ((scores > common).sum(dim=0) <= 5) & ~near
    assert few.sum() > 20
    assert (cuts[few] == common).all()


def test_labels_leave_the_common_cut_if_lower_ones_are_better_for_pseudo_positives(monkeypatch):
    draw = torch.Generator().manual_seed(1)
    labels = torch.rand(40, 60, generator=draw) < 0.01
    scores = torch.randn(40, 60, generator=draw) + 2 * labels
    data = scored_rows("test", scores, labels, None)
    p = data.per_group("labels")
    given = {"shrink": 50.0, "common": float(scores[labels].max()) - 0.1}
    limit = torch.full_like(p, 3.0)
    found = additive.additive_cuts(data, "micro-F1", p, limit, **given)
    assert torch.equal(found, additive.additive_cuts(data, "micro-F1", p, limit, all_labels=True, **given))
    assert additive._own_labels(data, p, given["common"]) is not None
    looked_at = []
    kept = additive.candidates
    monkeypatch.setattr(additive, "candidates", lambda part, *rest: looked_at.append(part) or kept(part, *rest))
    additive.additive_cuts(data, "micro-F1", p, limit, **given)
    assert [part.scores.shape[1] < 60 for part in looked_at] == [True, False]


@pytest.mark.parametrize("number", [1, 2, 40, 5000])
@pytest.mark.parametrize("rows", [3, 700])
def test_the_highest_scores_below_a_score_are_those_of_a_sort(rows, number):
    draw = torch.Generator().manual_seed(0)
    scores = (100 * torch.randn(rows, 200, generator=draw)).round() / 100
    scores[0, :5] = -math.inf
    data = scored_rows("test", scores, torch.zeros(rows, 200), None)
    for least in (-9.0, -1.0, 0.5, 9.0):
        lower = scores[(scores < least) & (scores > -math.inf)].sort().values
        wanted = [-math.inf, *lower.tolist()][-number:]
        assert pooled.highest_below(data, torch.tensor(least), number).tolist() == wanted
