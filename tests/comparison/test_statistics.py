"""What is said of a comparison."""

import json

import pytest

from manyhot.comparison.statistics import summarise
from manyhot.comparison.table import comparison_text


def make_cells(table, metric="SubACC", seeds=3):
    """Cells of ``table[method][group]``, seeds one thousandth apart."""
    cells = []
    for method, row in table.items():
        for number, (group, value) in enumerate(row.items()):
            data, model = group.split("/")
            for seed in range(seeds):
                metrics = {metric: value + (seed - 1) * 0.001}
                cells.append(
                    {
                        "key": f"{group}/{method}/{seed}",
                        "data": data,
                        "model": model,
                        "method": method,
                        "seed": seed,
                        "title": method.upper(),
                        "family": "f",
                        "facts": {"num_labels": 2**number, "imbalance": number + 1.0, "cardinality": 1.0 + number},
                        "metrics": {"natural": metrics, "tuned": metrics},
                        "cost": {"seconds": 1.0 + seed},
                    }
                )
    return cells


GROUPS = [f"d{number}/linear" for number in range(6)]
TABLE = {
    "zlpr": dict(zip(GROUPS, [0.5, 0.6, 0.7, 0.4, 0.5, 0.6], strict=True)),
    "bce": dict(zip(GROUPS, [0.49, 0.58, 0.67, 0.36, 0.45, 0.54], strict=True)),
    "dice2": dict(zip(GROUPS, [0.5, 0.7, 0.6, 0.41, 0.3, 0.2], strict=True)),
}


def test_counts_of_wins_and_best_groups():
    tests = summarise(make_cells(TABLE))["tests"]["natural"]["SubACC"]
    assert tests["win_tie_loss"] == {"bce": [6, 0, 0], "dice2": [3, 1, 2]}
    assert tests["plain_wins"]["dice2"] == [3, 1, 2]
    assert tests["best_in"] == {"zlpr": 4, "bce": 0, "dice2": 3}
    assert tests["wilcoxon"]["bce"]["p"] == pytest.approx(0.03125)
    assert tests["wilcoxon"]["bce"]["p_holm"] == pytest.approx(0.0625)


def test_for_an_error_smaller_is_the_win():
    tests = summarise(make_cells(TABLE, "RankLoss"))["tests"]["natural"]["RankLoss"]
    assert tests["win_tie_loss"]["bce"] == [0, 0, 6]
    assert tests["wilcoxon"]["bce"]["median_difference"] < 0


def test_a_lead_that_grows_with_the_labels_shows_as_an_effect():
    effects = summarise(make_cells(TABLE))["effects"]["natural"]["SubACC"]
    assert effects["bce"]["num_labels"]["rho"] == pytest.approx(1.0)


def test_spread_is_over_seeds():
    value = summarise(make_cells(TABLE))["values"]["natural"]["SubACC"]["d0/linear"]["zlpr"]
    assert value == {"mean": pytest.approx(0.5), "std": pytest.approx(0.001), "n": 3}


def test_methods_missing_in_a_group_are_left_out_of_the_tests_alone():
    table = {**TABLE, "focal": {"d0/linear": 0.9}}
    found = summarise(make_cells(table))
    assert "focal" not in found["tests"]["natural"]["SubACC"]["methods"]
    assert found["ranks"]["natural"]["SubACC"]["d0/linear"]["focal"] == 1.0


def test_failed_cells_count_as_missing():
    cells = [*make_cells(TABLE), {"key": "x", "data": "d0", "model": "mlp", "method": "bce", "seed": 0, "error": "why"}]
    assert "d0/mlp" not in summarise(cells)["groups"]


def test_only_what_seeds_prove_is_called_best():
    table = {"zlpr": {"a/linear": 0.5}, "bce": {"a/linear": 0.4999}, "dice2": {"a/linear": 0.3}}
    tests = summarise(make_cells(table))["tests"]["natural"]["SubACC"]
    assert tests["significant_best"] == {"a/linear": ["zlpr", "bce"]}
    assert tests["friedman"] is None


def test_the_summary_is_json_and_makes_a_table():
    found = summarise(make_cells(TABLE))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    text = comparison_text(found)
    assert "| ZLPR | **1.42** |" in text
    assert "**50.0 ± 0.1**" in text


def test_no_cells_give_an_empty_summary():
    assert summarise([])["groups"] == []
