"""The grid in processes: every finished cell is kept, only missing ones run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import manyhot
from comparison.problems import small_plan
from manyhot.comparison.grid import queued_by_device, run_grid, shapes_of
from manyhot.comparison.plan import Plan
from manyhot.comparison.records import CELLS, PLAN, add_cells, merge_cells, read_cells

RUN = """
import json, sys
from pathlib import Path
from manyhot.comparison.grid import queued_by_device, run_grid
from manyhot.comparison.plan import Plan
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    plan = Plan.from_dict(json.loads((folder / "plan.json").read_text()))
    run_grid(plan, folder, workers=2)
"""


def test_a_killed_grid_runs_only_what_is_missing(tmp_path):
    plan = small_plan(tmp_path, losses="zlpr,bce,focal,dice1,dice2,pairwise,asymmetric,two_way", models=["linear", "mlp"])
    (tmp_path / PLAN).write_text(json.dumps(plan.to_dict()))
    (tmp_path / "run.py").write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": str(Path(manyhot.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, str(tmp_path / "run.py"), str(tmp_path)], env=environment)
    path = tmp_path / CELLS
    patience = time.monotonic() + 240
    while len(read_cells(path)) < 2:
        assert time.monotonic() < patience
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with path.open("ab") as file:
        file.write(b'{"key": "toy/mlp/two_way/1", "cut off')
    before = read_cells(path)
    assert 2 <= len(before) < plan.num_cells
    ran = []
    cells = run_grid(plan, tmp_path, workers=1, watch=lambda progress: ran.append(progress.job))
    assert len(cells) == plan.num_cells
    assert sum(len(job.seeds) for job in ran) == plan.num_cells - len(before)
    kept = {cell["key"]: cell for cell in cells}
    assert all(kept[cell["key"]] == cell for cell in before)
    assert not any("error" in cell for cell in cells)


def test_a_complete_grid_runs_nothing(tmp_path):
    plan = small_plan(tmp_path, losses="zlpr", seeds=1)
    first = run_grid(plan, tmp_path, workers=1)
    ran = []
    assert run_grid(plan, tmp_path, workers=1, watch=ran.append) == first
    assert ran == []


def test_more_seeds_run_only_the_new_ones(tmp_path):
    run_grid(small_plan(tmp_path, losses="zlpr", seeds=1), tmp_path, workers=1)
    ran = []
    run_grid(small_plan(tmp_path, losses="zlpr", seeds=3), tmp_path, workers=1, watch=ran.append)
    assert [progress.job.seeds for progress in ran] == [(1, 2)]


def test_a_failed_cell_is_told_and_tried_again(tmp_path):
    plan = small_plan(tmp_path, losses="zlpr,bce", seeds=1)
    path = tmp_path / CELLS
    run_grid(plan, tmp_path, workers=1)
    good = read_cells(path)
    bad = {"key": good[0]["key"], "error": "no memory"}
    add_cells(path, [bad])
    assert len(plan.missing(read_cells(path))) == 1
    assert not any("error" in cell for cell in run_grid(plan, tmp_path, workers=1))


def test_no_job_starts_after_the_deadline(tmp_path):
    plan = small_plan(tmp_path, losses="zlpr,bce")
    assert run_grid(plan, tmp_path, workers=1, minutes=0) == []


def test_methods_that_are_asked_for_first_run_before_all_others(tmp_path):
    plan = small_plan(tmp_path, losses="zlpr,bce,focal", models=["linear", "mlp"], seeds=1)
    ran = []
    run_grid(plan, tmp_path, workers=1, first=["focal"], watch=lambda progress: ran.append(progress.job.method.name))
    assert ran == ["focal", "focal", "zlpr", "bce", "zlpr", "bce"]


def test_processes_take_what_is_asked_for_first_and_then_the_largest_jobs(tmp_path):
    plan = small_plan(tmp_path, losses="zlpr,bce,powerset", models=["linear", "mlp"], seeds=1)
    jobs = plan.missing([])
    queue = queued_by_device(plan, jobs, ["bce"], shapes_of(plan, jobs))["cpu"]
    assert [(job.model, job.method.name) for job in queue[:3]] == [("mlp", "bce"), ("linear", "bce"), ("mlp", "powerset")]
    assert len(queue) == 6


def test_cells_of_several_runs_are_merged_and_a_failure_gives_way(tmp_path):
    one, two = tmp_path / "one.jsonl", tmp_path / "two"
    two.mkdir()
    add_cells(one, [{"key": "a", "error": "x"}, {"key": "b", "value": 1}])
    add_cells(two / CELLS, [{"key": "a", "value": 2}, {"key": "b", "error": "y"}])
    assert merge_cells([one, two], tmp_path / "all.jsonl") == 2
    assert read_cells(tmp_path / "all.jsonl") == [{"key": "a", "value": 2}, {"key": "b", "value": 1}]
    with pytest.raises(ValueError, match="there is no"):
        merge_cells([tmp_path / "nowhere"], tmp_path / "all.jsonl")


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / CELLS
    path.write_text('{"key": "a"}\nnonsense\n{"key": "b"}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_cells(path)


def test_a_plan_survives_json(tmp_path):
    plan = small_plan(tmp_path, losses="zlpr+smoothing=0.1,tlpr")
    again = Plan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert (again.sets, again.methods, again.settings) == (plan.sets, plan.methods, plan.settings)


def test_an_unknown_model_is_a_clear_error(tmp_path):
    with pytest.raises(ValueError, match="`models` must be one of 'linear', 'mlp'"):
        small_plan(tmp_path, models=["lineer"])
