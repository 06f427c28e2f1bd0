"""What a report measures is what the library measures, and all of it is fit for JSON."""

import json
from dataclasses import replace

import pytest
import torch

from manyhot.decisions.rule import DecisionRule
from manyhot.evaluation import evaluate
from manyhot.metrics.catalog import METRICS
from manyhot.metrics.names import parse_metric
from manyhot.report.run.charts import learning_figures
from manyhot.report.run.judged import Judged, Origin, drawn_rows
from manyhot.report.run.measure import learning_curves, listed_labels, measure_run
from manyhot.report.run.page import run_page
from manyhot.report.run.slider import slider_values
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from report.problems import judged, model_for, origin, run_report
from training.problems import feature_examples


def test_the_metrics_are_those_of_evaluate():
    case = judged()
    report = run_report(case)
    examples = origin(case).examples
    names = [each["name"] for each in report["metrics"]]
    assert {"P@1", "PSP@1", "PSP@3", "PSP@5"} <= set(names)
    asked = [name for name in names if name != "ECE"]
    wanted = evaluate(case.logits, examples, asked, rule=case.rule, propensities=case.propensities)
    for each in report["metrics"]:
        if each["name"] != "ECE":
            assert each["value"] == pytest.approx(wanted[each["name"]], abs=1e-12), each["name"]


@pytest.mark.parametrize(
    ("asked", "first"), [("jaccard", "jaccard"), ("P@1", "P@1"), ("P@9", "micro-F1"), ("auto", "micro-F1")]
)
def test_the_metric_that_the_model_was_trained_for_comes_first_and_once(asked, first):
    case = judged()
    model = model_for(case)
    model.settings = replace(model.settings, metric=asked)
    names = [each["name"] for each in measure_run(model, case, origin(case))["metrics"]]
    assert names[0] == first
    assert len(set(names)) == len(names)


def test_a_report_of_a_model_without_label_counts_leaves_propensity_metrics_out():
    case = replace(judged(), propensities=None)
    names = [each["name"] for each in run_report(case)["metrics"]]
    assert "P@5" in names
    assert not any(name.startswith("PSP") for name in names)


@pytest.mark.parametrize("most", [1000, 3])
def test_the_slider_at_the_own_rule_gives_the_metrics_also_where_not_all_labels_are_listed(most):
    report = run_report(most=most)
    named = {each["name"]: each["value"] for each in report["metrics"]}
    micro, macro = slider_values(report)
    own = report["slider"]["own"]
    assert len(report["labels"]["listed"]["name"]) == min(most, 5)
    assert bool(report["labels"]["cut"]) == (most == 3)
    assert micro[own] == pytest.approx(named["micro-F1"], abs=1e-12)
    assert macro[own] == pytest.approx(named["macro-F1"], abs=1e-12)
    assert report["slider"]["exact_rows"][own] / report["rows"]["count"] == pytest.approx(named["SubACC"])


def test_of_many_labels_those_with_most_rows_and_most_mistakes_are_listed():
    case = judged(rows=400, labels=40)
    listed, words = listed_labels(case, most=10)
    hits, predicted, positive = case.confusion[1]
    frequent = positive.argsort(descending=True, stable=True)[:7]
    assert set(frequent.tolist()) <= set(listed.tolist())
    assert "10 of 40 labels" in words
    rest = torch.ones(40, dtype=torch.bool)
    rest[listed] = False
    mistakes = predicted + positive - 2 * hits
    chosen = [label for label in listed.tolist() if label not in frequent.tolist()]
    assert mistakes[chosen].min() >= mistakes[rest].max()


@pytest.mark.parametrize(
    "rule",
    [DecisionRule(top_k=2), DecisionRule(threshold=float("inf")), DecisionRule(threshold=(0.0, float("inf"), 0.0, 0.0, -1.0))],
)
def test_a_report_is_plain_json_whatever_the_rule(rule):
    case = judged(rule=rule, unknown=0.1)
    json.dumps(run_report(case), allow_nan=False)


def test_a_report_of_no_positives_or_one_row_is_plain_json():
    case = judged(rows=1, labels=1)
    nothing = Judged(torch.full((3, 1), -1.0), case.labels[[0, 0, 0]], None, case.rule, "hard", None, case.label_names)
    for each in (case, nothing):
        json.dumps(measure_run(model_for(each), each, origin(each)), allow_nan=False)


def test_learning_curves_take_the_last_of_a_repeated_pass_and_survive_half_a_line(tmp_path):
    log = tmp_path / "metrics.jsonl"
    lines = [
        {"kind": "start", "message": "x"},
        {"kind": "epoch", "epoch": 1, "loss": 3.0, "fit": "final", "metric": "micro-F1", "value": 0.1},
        {"kind": "epoch", "epoch": 2, "loss": 9.0, "fit": "final"},
        {"kind": "epoch", "epoch": 2, "loss": 2.0, "fit": "final"},
    ]
    log.write_text("\n".join(map(json.dumps, lines)) + '\n{"kind": "epo')
    assert learning_curves(log) == [
        {"fit": "final", "metric": "micro-F1", "better": "more", "epoch": [1, 2], "loss": [3.0, 2.0], "value": [0.1, None]}
    ]
    assert learning_curves(tmp_path / "none") == []


@pytest.mark.parametrize("name", [name.replace("@k", "@2") for name in METRICS])
def test_the_learning_curve_has_the_values_of_the_metric_and_marks_the_best(name, tmp_path):
    settings = TrainSettings(metric=name, mean_of="none", epochs=3, hidden=8, threads=1)
    train(feature_examples(120), settings, run=tmp_path / "run")
    curves = learning_curves(tmp_path / "run" / "metrics.jsonl")
    final = next(each for each in curves if each["fit"] == "final")
    falls = parse_metric(settings.stop_metric).info.direction == "down"
    assert final["better"] == ("less" if falls else "more")
    assert all(value >= 0 for value in final["value"])
    best = (min if falls else max)(final["value"])
    assert f"epoch {final['epoch'][final['value'].index(best)]}: {best:.4g}" in str(learning_figures(curves)[-1])


def test_the_place_of_a_row_goes_through_the_rows_held_out():
    case = judged()
    assert Origin("held out", origin(case).examples, torch.tensor([4, 2])).place(1) == 2
    assert Origin("test", origin(case).examples).place(1) == 1


def test_rows_drawn_from_too_many_are_in_order_each_once_and_told():
    drawn = drawn_rows(60, 5, most=100)
    assert len(drawn) == 20
    assert bool((drawn.diff() > 0).all())
    case = judged()
    part = Origin("test", origin(case).examples, drawn, ("posts.jsonl",), 60)
    report = measure_run(model_for(case), case.rows(drawn), part)
    assert report["rows"]["count"] == 20
    assert "a random sample of 60" in run_page(report, title="t")
    assert all(each["text"] == f"text of row {each['row'] - 1}" for each in report["worst"])
