"""Cells: what one seed of a method gives, alone and beside others."""

import math

import pytest
import torch

from comparison.problems import READING, small_plan, write_table
from manyhot.comparison.attempt import run_job
from manyhot.comparison.budget import batch_size, num_epochs
from manyhot.comparison.cell import JobRun
from manyhot.comparison.ensemble import Ensemble, Shape
from manyhot.comparison.grid import LoadedSets
from manyhot.comparison.job import Job, TooLargeError, check_memory, natural_rule
from manyhot.comparison.methods import parse_method
from manyhot.comparison.objective import MemberLoss
from manyhot.comparison.sets import load_set, pair_files
from manyhot.comparison.settings import CompareSettings
from manyhot.comparison.statistics import MEASURED

ALL = "zlpr,bce,focal,dice2,lsep,two_way,powerset,tlpr,zlpr+smoothing+rdrop,zlpr+mixup,zlpr+pos_weight=auto"


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_a_seed_gives_the_same_alone_and_beside_others(tmp_path, model):
    plan = small_plan(tmp_path, seeds=3, losses="zlpr+rdrop", models=[model])
    sets, method = LoadedSets(plan), plan.methods[0]
    together = run_job(Job("toy", model, method, (0, 1, 2)), plan, sets, "cpu")[1]
    (alone,) = run_job(Job("toy", model, method, (1,)), plan, sets, "cpu")
    for rule in ("natural", "tuned"):
        assert alone["metrics"][rule] == pytest.approx(together["metrics"][rule], abs=1e-4, nan_ok=False)
    assert alone["key"] == together["key"] == f"toy/{model}/zlpr+rdrop/1"


@pytest.mark.parametrize("name", ALL.split(","))
def test_every_kind_of_method_gives_a_whole_record(tmp_path, name):
    plan = small_plan(tmp_path, losses=name, models=["mlp"])
    records = run_job(Job("toy", "mlp", plan.methods[0], (0, 1)), plan, LoadedSets(plan), "cpu")
    assert [record["seed"] for record in records] == [0, 1]
    for record in records:
        for values in record["metrics"].values():
            assert set(values) == {*MEASURED, "empty"} - {"P@5", "PSP@5"}  # there are four labels
            assert all(0 <= value <= 1 for value in values.values() if value is not None)
        assert (record["metrics"]["natural"]["ECE"] is None) == (name in ("lsep", "two_way"))
        assert len(record["trials"]) == 2
        assert record["chosen"]["tuned"]["validation"] == max(trial["tuned"] for trial in record["trials"])
        cost = record["cost"]
        assert cost["parameters"] > 0
        # Weights, gradients and Adam's two means are held whatever the loss.
        assert cost["peak_bytes"] >= 12 * cost["parameters"]
        assert cost["predict_seconds"] > 0


def test_training_learns(tmp_path):
    plan = small_plan(tmp_path, losses="zlpr", epochs=40)
    record = run_job(Job("toy", "linear", plan.methods[0], (0,)), plan, LoadedSets(plan), "cpu")[0]
    assert record["metrics"]["natural"]["micro-F1"] > 0.7
    assert record["metrics"]["natural"]["RankLoss"] < 0.15


def test_the_learned_threshold_is_the_natural_rule(tmp_path):
    plan = small_plan(tmp_path, losses="tlpr")
    record = run_job(Job("toy", "linear", plan.methods[0], (0,)), plan, LoadedSets(plan), "cpu")[0]
    assert record["rules"]["natural"].startswith("s > ")
    assert record["rules"]["natural"] != "s > 0"


@pytest.mark.parametrize("name", ["zlpr+min_labels", "tlpr+min_labels", "zlpr+pos_weight=auto+min_labels"])
def test_at_least_one_label_leaves_no_row_empty(tmp_path, name):
    plan = small_plan(tmp_path, losses=name)
    record = run_job(Job("toy", "linear", plan.methods[0], (0,)), plan, LoadedSets(plan), "cpu")[0]
    assert record["metrics"]["natural"]["empty"] == 0
    assert record["rules"]["natural"].endswith(", at least 1")


def test_the_automatic_weight_gives_rows_not_trained_on_as_many_labels_as_training_rows_have():
    method = parse_method("zlpr+pos_weight=auto")
    loss = MemberLoss(method, [{"learning_rate": 0.1}] * 2, seeds=1, num_labels=5, device=torch.device("cpu"))
    held = torch.randn(2, 40, 5, generator=torch.Generator().manual_seed(0)) - 4
    loss.bound(0, held, 0.3)
    assert (held > loss.boundary[0, :, None, None]).sum(dim=(1, 2)).tolist() == [60, 60]
    loss.cut.value.fill_(-9.0)
    assert loss.boundary.tolist() == [[-9.0, -9.0]]


def test_an_ensemble_is_its_members(tmp_path):
    del tmp_path
    shape = Shape(5, 3, 4, 0.0)
    members = Ensemble(shape, torch.zeros(2, 3), trials=3, seeds=(0, 1), device=torch.device("cpu"))
    with torch.no_grad():
        for weight in members.weights:
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(7)))
    inputs = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(8))
    logits = members(inputs)
    first, offset, head, bias = members.weights
    for seed in range(2):
        for trial in range(3):
            hidden = (inputs[seed] @ first[seed, :, trial] + offset[seed, trial]).relu()
            wanted = hidden @ head[seed, trial] + bias[seed, trial]
            torch.testing.assert_close(logits[seed, :, trial], wanted)
            torch.testing.assert_close(members.one(members.weights, inputs[seed], seed, trial), wanted)
            torch.testing.assert_close(members.scores_of(members.weights, inputs[seed], seed)[trial], wanted)


def test_losses_that_only_rank_take_as_many_labels_as_rows_have():
    assert natural_rule(parse_method("lsep"), 2.4).top_k == 2
    assert natural_rule(parse_method("pairwise"), 0.2).top_k == 1
    assert natural_rule(parse_method("bce"), 2.4).top_k is None


def test_budgets_follow_the_rows():
    settings = CompareSettings(epochs=60, steps=1500)
    assert [batch_size(rows, settings) for rows in (10, 100, 1000, 100_000)] == [10, 16, 64, 128]
    assert [num_epochs(steps, settings) for steps in (5, 50, 500)] == [60, 30, 8]


def test_members_that_do_not_fit_are_refused_before_they_are_made():
    with pytest.raises(TooLargeError, match="GiB"):
        check_memory(Shape(20_000, 12_000, 0, 0.0), 30)


def test_one_file_is_split_anew_for_each_seed(tmp_path):
    write_table(tmp_path / "whole.csv", 100, 0)
    (files,) = pair_files([str(tmp_path / "whole.csv")], READING)
    data = load_set(files, range(3), CompareSettings())
    assert data.inputs.shape[0] == 3
    assert len({tuple(rows.test.tolist()) for rows in data.rows}) == 3
    for rows in data.rows:
        assert sorted(torch.cat(list(rows)).tolist()) == list(range(100))
    run = JobRun(Job("whole", "linear", parse_method("zlpr"), (2,)), data, (2,), CompareSettings(trials=1), torch.device("cpu"))
    run.train_epoch()
    assert math.isfinite(float(run.ensemble.weights[0].detach().sum()))


def test_test_rows_do_not_touch_the_scales_of_the_inputs(tmp_path):
    write_table(tmp_path / "a-train.csv", 60, 0)
    write_table(tmp_path / "a-test.csv", 30, 1)
    (files,) = pair_files([str(tmp_path / "a-train.csv"), str(tmp_path / "a-test.csv")], READING)
    data = load_set(files, range(2), CompareSettings())
    torch.testing.assert_close(data.inputs[0, :60].mean(dim=0), torch.zeros(6), atol=1e-5, rtol=0)
    assert data.inputs[0, 60:].mean(dim=0).abs().max() > 1e-3


def test_files_pair_up_by_their_names():
    found = pair_files(["x/flags-train.arff.gz", "y.csv", "x/flags-test.arff.gz", "z/train.jsonl", "z/test.jsonl"], {})
    assert [(each.name, len(each.test)) for each in found] == [("flags", 1), ("y", 0), ("z", 1)]
    with pytest.raises(ValueError, match="two data sets would be named 'a'"):
        pair_files(["p/a.csv", "q/a.csv"], {})
