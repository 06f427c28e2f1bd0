"""The command `manyhot compare`."""

import json

import pytest

from comparison.problems import write_table

BUDGET = ("--trials", 2, "--epochs", 3, "--hidden", 8, "--labels", "y*", "--features", "x*", "--device", "cpu")


@pytest.fixture
def tables(tmp_path):
    write_table(tmp_path / "toy-train.csv", 90, 0)
    write_table(tmp_path / "toy-test.csv", 40, 1)
    return tmp_path / "toy-train.csv", tmp_path / "toy-test.csv"


def test_one_command_gives_cells_statistics_and_a_table(run, tables, tmp_path):
    out = tmp_path / "out"
    done = run("compare", *tables, "--losses", "zlpr,bce,powerset", "--seeds", 2, "--out", out, "--jobs", 1, *BUDGET)
    assert done.code == 0, done.err
    assert "label powerset" in done.out
    assert "average ranks" in done.out
    assert "percent, natural rule" in done.out
    assert sorted(path.name for path in out.iterdir()) == ["cells.jsonl", "plan.json", "statistics.json", "table.md"]
    statistics = json.loads((out / "statistics.json").read_text())
    assert statistics["groups"] == ["toy/linear", "toy/mlp"]
    assert "± " in (out / "table.md").read_text()


def test_a_second_run_into_the_folder_is_refused_and_resume_runs_nothing_twice(run, tables, tmp_path):
    out = tmp_path / "out"
    first = run("compare", *tables, "--losses", "zlpr", "--models", "linear", "--seeds", 1, "--out", out, "--jobs", 1, *BUDGET)
    assert first.code == 0, first.err
    cells = (out / "cells.jsonl").read_bytes()
    again = run("compare", *tables, "--losses", "zlpr", "--out", out, *BUDGET)
    assert again.code == 2
    assert f"manyhot compare --resume {out}" in again.err
    resumed = run("compare", "--resume", out, "--jobs", 1, "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json()["left"] == 0
    assert (out / "cells.jsonl").read_bytes() == cells


def test_a_dry_run_runs_nothing_and_tells_the_time(run, tables, tmp_path):
    out = tmp_path / "out"
    done = run("compare", *tables, "--losses", "zlpr,bce", "--seeds", 2, "--out", out, "--dry-run", "--json", *BUDGET)
    assert done.code == 0, done.err
    told = done.json()
    assert (told["cells"], told["missing"]) == (8, 8)
    assert told["core_seconds"] > 0
    assert not out.exists()


def test_what_is_missing_is_told_with_the_way_on(run, tables, tmp_path):
    out = tmp_path / "out"
    done = run("compare", *tables, "--losses", "zlpr", "--models", "linear", "--out", out, "--minutes", 0, "--jobs", 1, *BUDGET)
    assert done.code == 1
    assert f"5 cells are missing. Run them with: manyhot compare --resume {out}" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--losses", "zlpr,bcee"), "--losses: unknown loss 'bcee'. Did you mean 'bce'?"),
        (("--losses", "zlpr,bce", "--reference", "focal"), "--reference must be one of the losses compared, zlpr, bce"),
        (("--models", "lineer"), "--models must be one of 'linear', 'mlp'"),
        (("--losses", "zlpr+smoothin"), "Did you mean 'smoothing'?"),
        (("--trials", 0), "--trials must be a whole number >= 1"),
        (("--seeds", 0), "seeds"),
    ],
)
def test_bad_names_end_with_one_clear_line(run, tables, arguments, words):
    done = run("compare", *tables, *arguments)
    assert done.code == 2
    assert words in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_no_file_a_missing_file_and_no_plan_are_usage_errors(run, tmp_path):
    assert "name at least one file" in run("compare").err
    assert "there is no such file" in run("compare", tmp_path / "nowhere.csv").err
    assert "not a comparison that can be resumed" in run("compare", "--resume", tmp_path).err
    for given in (["x.csv"], ["--models", "mlp"], ["--seeds", "3"], ["--losses", "bce"], ["--skip-bad"], ["--trials", "2"]):
        assert "with its own settings" in run("compare", *given, "--resume", tmp_path).err


def test_bad_rows_can_be_skipped_and_are_listed(run, tmp_path):
    rows = ['{"text": "salt the water", "labels": ["salt"]}', '{"text": "slice bread", "labels": ["bread"]}'] * 20
    (tmp_path / "rows.jsonl").write_text("\n".join(["{", *rows]))
    out = tmp_path / "out"
    budget = ["--trials", "1", "--epochs", "1", "--seeds", "1", "--jobs", "1", "--models", "linear", "--losses", "bce"]
    assert run("compare", tmp_path / "rows.jsonl", "--out", out, *budget).code == 1
    assert not out.exists()
    done = run("compare", tmp_path / "rows.jsonl", "--out", out, "--skip-bad", *budget)
    assert done.code == 0, done.err
    assert "rows.jsonl: 1 bad rows were skipped" in done.err
    assert "line 1" in done.err
    assert run("compare", "--resume", out).code == 0


def test_a_file_that_cannot_be_read_is_an_error_before_anything_is_told_or_written(run, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"features": {"a": 1}, "labels": ["x"]}\n{"features": {"a": \n')
    done = run("compare", path, "--out", tmp_path / "out")
    assert done.code != 0
    assert len(done.err.strip().splitlines()) == 1
    assert "rows.jsonl" in done.err
    assert "line 2" in done.err or ":2" in done.err
    assert not (tmp_path / "out").exists()
