"""The slider's counts are those of the rule at every position, and survive being packed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhot.decisions.rule import DecisionRule, decide
from manyhot.report.run.judged import Judged
from manyhot.report.run.sweep import pack_counts, slider_shifts, threshold_sweep, unpack_counts
from report.problems import judged

INF = float("inf")
RULES = {
    "per label": None,
    "one for all": DecisionRule(threshold=0.2),
    "never": DecisionRule(threshold=(0.1, INF, 0.0, -0.5, -INF)),
    "at least": DecisionRule(threshold=(0.1, 0.9, 0.0, -0.5, 0.3), min_labels=1),
    "at least and at most": DecisionRule(threshold=0.0, min_labels=1, max_labels=2),
}


@pytest.mark.parametrize("unknown", [0.0, 0.2])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_position_counts_what_the_shifted_rule_predicts(rule, unknown):
    case = judged(rule=rule, unknown=unknown)
    sweep = threshold_sweep(case)
    truth = case.positives.dense(torch.bool)
    known = torch.ones_like(truth) if case.where is None else case.where
    for place, shift in enumerate(sweep.shifts.tolist()):
        own = case.rule.threshold
        moved = tuple(cut + shift for cut in own) if isinstance(own, tuple) else own + shift
        limits = {"min_labels": case.rule.min_labels, "max_labels": case.rule.max_labels}
        said = decide(case.logits, DecisionRule(threshold=moved, **limits), where=case.where)
        assert sweep.predicted[:, place].tolist() == said.sum(dim=0).tolist()
        assert sweep.hits[:, place].tolist() == (said & truth).sum(dim=0).tolist()
        assert int(sweep.exact_rows[place]) == int(((said == truth) | ~known).all(dim=1).sum())
        assert int(sweep.empty_rows[place]) == int((~said.any(dim=1)).sum())


def test_the_own_position_is_the_rule_itself():
    case = judged()
    sweep = threshold_sweep(case)
    assert sweep.shifts[sweep.own] == 0
    hits, predicted, _ = case.confusion[1]
    assert sweep.hits[:, sweep.own].equal(hits)
    assert sweep.predicted[:, sweep.own].equal(predicted)


def test_a_rule_of_the_best_labels_has_no_own_position_and_a_slider_over_one_threshold():
    case = judged(rule=DecisionRule(top_k=2))
    sweep = threshold_sweep(case)
    assert sweep.own == -1
    at = int((sweep.shifts == 0).nonzero()[0])
    assert sweep.predicted[:, at].tolist() == (case.logits > 0).sum(dim=0).tolist()


@given(scale=st.floats(1e-6, 1e6), rows=st.integers(0, 30), places=st.integers(5, 200))
def test_shifts_are_round_rising_few_and_hold_zero(scale, rows, places):
    case = judged(rows=rows)
    scaled = Judged(case.logits * scale, case.labels, None, DecisionRule(), "hard", None, case.label_names)
    shifts = slider_shifts(scaled, positions=places)
    assert 0.0 in shifts.tolist()
    assert len(shifts) <= max(places, 21)
    assert bool((shifts.diff() > 0).all())


def test_nan_and_infinite_scores_are_never_and_always_predicted():
    case = judged(rows=4, rule=DecisionRule())
    logits = case.logits.clone()
    logits[:, 0], logits[:, 1], logits[:, 2] = float("nan"), INF, -INF
    sweep = threshold_sweep(Judged(logits, case.labels, None, case.rule, "hard", None, case.label_names))
    assert sweep.predicted[0].max() == 0
    assert sweep.predicted[1].min() == 4
    assert sweep.predicted[2].max() == 0


@given(st.lists(st.lists(st.integers(0, 100_000), min_size=7, max_size=7), min_size=1, max_size=5))
def test_packed_counts_come_back(steps):
    counts = torch.tensor(steps).flip(-1).cumsum(-1).flip(-1)
    assert unpack_counts(pack_counts(counts), 7).equal(counts)


def test_packing_is_small_where_little_happens():
    assert len(pack_counts(torch.zeros(1000, 161, dtype=torch.int64))) < 10
