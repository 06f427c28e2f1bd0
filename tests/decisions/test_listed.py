"""Cuts found from listed scores are those found by sorting: in the interpreter everywhere, on the device where there is one."""

import math

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import tune_rule
from manyhot.decisions.tuning import floor
from manyhot.decisions.tuning.balanced import balanced_thresholds
from manyhot.decisions.tuning.goals import OBJECTIVES

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from decisions.test_listed import check_cuts, hostile
from manyhot.engines.triton import columns, counts, listing
counts.TILES, counts.DENSE, counts.PROGRAMS = dict.fromkeys(counts.TILES, (16, 16, 4)), 16, 4
listing.TILE, listing.ROOM = 64, 50
columns.TILE, columns.LISTED_ROWS, columns.LISTED_LABELS, columns.LABELS, columns.BLOCK = 256, 32, 8, 8, 64
for seed in range(12):
    scores, labels, where = hostile(seed)
    sampled = 20 if seed % 2 else 1 << 21
    check_cuts(scores, labels, where, sampled)
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
    """What is found with kernels is what is found without them."""
    kept, floor.SAMPLED = floor.SAMPLED, sampled
    try:
        assert all_cuts(scores, labels, where) == plainly(lambda: all_cuts(scores, labels, where))
    finally:
        floor.SAMPLED = kept


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
def test_many_labels_are_tuned_on_the_device_as_on_the_cpu():
    draw = torch.Generator().manual_seed(0)
    labels = torch.rand(3000, 9000, generator=draw) < 0.0007
    scores = torch.randn(3000, 9000, generator=draw) - 2 + 3 * labels
    for name in ("micro-F1", "macro-F1", "MLC-F1"):
        here, there = (
            tune_rule(s, t, objective=name, folds=0).rule for s, t in ((scores, labels), (scores.cuda(), labels.cuda()))
        )
        assert here == there
