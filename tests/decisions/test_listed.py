"""Cuts found from listed scores are those found by sorting: in the interpreter everywhere, on the device where there is one."""

import math

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import tune_rule
from manyhot.decisions.tuning import floor, one_cut, pooled
from manyhot.decisions.tuning.balanced import balanced_thresholds
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.rows import scored_rows

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from decisions.test_listed import check_cuts, hostile
from manyhot.engines.triton import columns, counts, listing
counts.TILES, counts.DENSE, counts.PROGRAMS = dict.fromkeys(counts.TILES, (16, 16, 4)), 16, 4
listing.TILE, listing.ROOM = 64, 50
columns.TILE, columns.LISTED_ROWS, columns.LISTED_LABELS, columns.LABELS, columns.BLOCK = 256, 32, 8, 8, 64
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


def test_labels_without_positives_change_no_cut(monkeypatch):
    for seed in range(8):
        scores, labels, where = hostile(seed, num_labels=30)
        labels[:, ::2] = False
        chosen = [tune_rule(scores, labels, objective="macro-F1", where=where, folds=0).rule]
        chosen.append(tune_rule(scores, labels, objective="macro-F1", per_label=True, where=where, folds=0).rule)
        with monkeypatch.context() as patch:
            patch.setattr(one_cut, "_with_positives", lambda _data: None)
            assert chosen[0] == tune_rule(scores, labels, objective="macro-F1", where=where, folds=0).rule
            assert chosen[1] == tune_rule(scores, labels, objective="macro-F1", per_label=True, where=where, folds=0).rule


@pytest.mark.gpu
def test_many_labels_are_tuned_on_the_device_as_on_the_cpu():
    draw = torch.Generator().manual_seed(0)
    labels = torch.rand(3000, 9000, generator=draw) < 0.0007
    scores = torch.randn(3000, 9000, generator=draw) - 2 + 3 * labels
    for name in ("micro-F1", "macro-F1", "MLC-F1"):
        here, there = (
            tune_rule(s, t, objective=name, folds=0).rule for s, t in ((scores, labels), (scores.cuda(), labels.cuda()))
        )
        assert here == there
