"""A report from top lists agrees with one from all scores as far as the lists reach."""

import json
from dataclasses import replace

import pytest
import torch

from manyhot.decisions.rule import DecisionRule
from manyhot.report.run.listed_sweep import listed_sweep
from manyhot.report.run.markdown import run_markdown
from manyhot.report.run.measure import measure_run
from manyhot.report.run.page import run_page
from manyhot.report.run.sweep import threshold_sweep
from manyhot.scores.top import TopScores
from report.problems import judged, model_for, origin

RULES = [DecisionRule(threshold=0.2), DecisionRule(threshold=0.1, min_labels=1, max_labels=3), DecisionRule(top_k=2)]


def listed(case, k):
    return replace(case, logits=TopScores.from_dense(case.logits, k=k))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_whole_lists_give_the_counts_of_all_scores(rule):
    case = judged(rows=90, labels=7, rule=rule)
    wanted, found = threshold_sweep(case), listed_sweep(listed(case, 7))
    assert torch.equal(found.shifts, wanted.shifts)
    assert found.own == wanted.own
    if rule.top_k is None:
        for name in ("hits", "predicted", "exact_rows", "empty_rows"):
            assert torch.equal(getattr(found, name), getattr(wanted, name)), name


def test_scores_that_are_not_listed_are_given_as_the_lowest_listed_one():
    case = judged(rows=20, labels=7)
    rows, columns = torch.arange(20).repeat_interleave(7), torch.arange(7).repeat(20)
    found = listed(case, 3).scores_at(rows, columns).view(20, 7)
    lowest = case.logits.topk(3).values[:, -1:].double()
    torch.testing.assert_close(found, case.logits.double().maximum(lowest))


@pytest.mark.parametrize("rule", RULES[1:], ids=str)
def test_a_report_from_lists_leaves_out_what_needs_all_scores_and_keeps_the_rest(rule):
    case = judged(rows=90, labels=7, rule=rule)
    model = model_for(case)
    whole, short = (measure_run(model, each, origin(case)) for each in (case, listed(case, 5)))
    values = {each["name"]: each["value"] for each in whole["metrics"]}
    names = [each["name"] for each in short["metrics"]]
    assert {"micro-F1", "macro-F1", "SubACC", "P@1", "P@5", "PSP@3", "hamming-error"} <= set(names)
    assert not {"mAP", "AvgPrec", "RankLoss", "ECE"} & set(names)
    for each in short["metrics"]:
        assert each["value"] == pytest.approx(values[each["name"]]), each["name"]
    assert short["missed"] == whole["missed"]
    page = run_page(json.loads(json.dumps(short)), title="lists")
    assert 'id="labels"' in page
    assert 'id="curves"' not in page
    assert "Probabilities" not in run_markdown(short, title="lists")
