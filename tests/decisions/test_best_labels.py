"""The best labels of long rows, found in groups: what is decided is what the plain way decides, ties, NaN and all."""

import itertools

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import DecisionRule, decide
from manyhot.decisions import best_labels
from manyhot.decisions.rule import decide_sparse
from manyhot.scores.best import FEW
from manyhot.scores.top import TopScores

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from decisions.test_best_labels import check_rules, check_lists
check_rules("cpu", torch.float32, 3 * 512 + 5)
check_lists("cpu", torch.float32, 3 * 512 + 5)
print("checked")
"""


def hostile_scores(dtype, num_labels, rows=6):
    """Scores with many ties, infinities and NaN; a row of nothing but NaN, and one that is never predicted."""
    draw = torch.Generator().manual_seed(num_labels)
    scores = torch.randint(-40, 41, (rows, num_labels), generator=draw).float() / 4
    scores[0, ::7], scores[1, ::5], scores[2, 3::11] = torch.nan, -torch.inf, torch.inf
    scores[3], scores[4] = torch.nan, -torch.inf
    scores[5, ::3] = -0.0
    return scores.to(dtype), torch.rand(rows, num_labels, generator=draw) < 0.3


def check_rules(device, dtype, num_labels):
    """Rules with limits on the number of labels decide as on scores whose rows are sorted whole."""
    scores, where = hostile_scores(dtype, num_labels)
    cuts = torch.linspace(-3, 12, num_labels)
    cuts[::13], cuts[5::17] = torch.inf, -torch.inf
    rules = [DecisionRule(top_k=3), DecisionRule(top_k=1), DecisionRule(threshold=9.0, max_labels=3)]
    rules += [DecisionRule(threshold=9.0, min_labels=1), DecisionRule(threshold=9.8, min_labels=2, max_labels=3)]
    rules += [
        DecisionRule(threshold=tuple(cuts.tolist()), min_labels=1, max_labels=3),
        DecisionRule(threshold=20.0, min_labels=3),
    ]
    for rule, mask in itertools.product(rules, (None, where)):
        own = None if mask is None else mask.to(device)
        got = decide(scores.to(device), rule, where=own)
        wanted = sorted_whole(scores, rule, mask)
        assert torch.equal(got.cpu(), wanted), (rule.top_k, rule.min_labels, rule.max_labels)
        assert torch.equal(decide_sparse(scores.to(device), rule, where=own).dense().cpu().bool(), wanted)


def sorted_whole(scores, rule, where):
    """The predictions from a stable sort of every row."""
    chosen = torch.zeros(scores.shape, dtype=torch.bool)
    cut = torch.tensor(rule.threshold, dtype=torch.float64).expand(scores.shape[1])
    for row, values in enumerate(scores.double()):
        margin = (values.float() - cut.float() if isinstance(rule.threshold, tuple) else values).double()
        counts = ~margin.isnan() & (margin > -torch.inf)
        counts = counts if where is None else counts & where[row]
        order = torch.where(counts, margin, -torch.inf).sort(descending=True, stable=True).indices
        order = order[counts[order]]
        above = order[values[order] > cut[order]]
        most = rule.top_k or rule.max_labels
        taken = order[: rule.top_k] if rule.top_k else above[:most]
        chosen[row, taken] = True
        chosen[row, order[: rule.min_labels]] = True
    return chosen


def check_lists(device, dtype, num_labels):
    """The best of dense scores, ties to the lower number, in the type of the scores."""
    draw = torch.Generator().manual_seed(0)
    scores = (torch.randint(-400, 400, (2, 3, num_labels), generator=draw) / 8).to(dtype)
    top = TopScores.from_dense(scores.to(device), k=3)
    values, order = scores.reshape(6, num_labels).sort(dim=1, descending=True, stable=True)
    assert top.values.dtype == dtype
    assert torch.equal(top.values.cpu(), values[:, :3])
    assert torch.equal(top.indices.cpu(), order[:, :3])


@pytest.mark.slow
def test_long_rows_are_decided_as_short_ones_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_labels", [3 * FEW, 50_003, 600_001])
def test_long_rows_are_decided_as_short_ones_on_the_device(num_labels, dtype):
    check_rules("cuda", dtype, num_labels)
    check_lists("cuda", dtype, num_labels)


@pytest.mark.parametrize("num_labels", [7, 60])
def test_the_plain_way_decides_as_a_sort_does(num_labels):
    check_rules("cpu", torch.float32, num_labels)
    check_rules("cpu", torch.bfloat16, num_labels)


def test_rows_in_several_blocks_are_decided_as_in_one(monkeypatch):
    scores, where = hostile_scores(torch.float32, 60)
    wanted = decide(scores, DecisionRule(threshold=2.0, max_labels=4), where=where)
    monkeypatch.setattr(best_labels, "CHUNK_ELEMENTS", 120)
    assert torch.equal(decide(scores, DecisionRule(threshold=2.0, max_labels=4), where=where), wanted)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_decisions_on_the_device_do_not_wait_for_it():
    scores = torch.randn(64, 100_000, device="cuda")
    rules = [DecisionRule(), DecisionRule(top_k=5), DecisionRule(threshold=3.0, min_labels=1, max_labels=10)]
    for rule in rules:
        decide(scores, rule)
    TopScores.from_dense(scores, k=5)
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        for rule in rules:
            decide(scores, rule)
        TopScores.from_dense(scores, k=5)
    finally:
        torch.cuda.set_sync_debug_mode("default")
