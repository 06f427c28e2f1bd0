"""Help, catalogs, exit codes, and the one line that an error is."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import manyhot
from cli.processes import real
from manyhot.losses.catalog import LOSSES
from manyhot.metrics.catalog import METRICS

SOURCE = Path(manyhot.__file__).parent
VERBS = ("demo", "inspect", "train", "evaluate", "predict", "tune", "show", "losses", "metrics", "data")


def test_help_lists_the_verbs_in_the_order_a_person_works(run):
    done = run("--help")
    places = [done.out.index(f"│ {verb} ") for verb in VERBS]
    assert done.code == 0
    assert places == sorted(places)


def test_python_runs_the_package_as_the_command():
    done = subprocess.run([sys.executable, "-m", "manyhot", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"manyhot {manyhot.__version__}\n"


@pytest.mark.parametrize("module", ["manyhot", "manyhot.cli"])
def test_a_failure_is_told_to_the_shell(module, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", module, "evaluate", str(tmp_path / "none"), "rows.csv"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "there is no such folder" in done.stderr


def test_the_bare_command_prints_help(run):
    assert "Usage: manyhot" in run().out


@pytest.mark.parametrize("verb", [*VERBS[:-1], "data get"])
def test_every_verb_has_help_that_fits_80_columns(run, monkeypatch, verb):
    monkeypatch.setenv("COLUMNS", "80")
    done = run(*verb.split(), "--help")
    assert done.code == 0
    assert f"Usage: manyhot {verb}" in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 80


def test_every_training_setting_is_a_flag_with_its_default(run):
    from dataclasses import fields

    from manyhot.training.rows.settings import TrainSettings

    shown = run("train", "--help").out
    for each in fields(TrainSettings):
        assert "--" + each.name.replace("_", "-") in shown
    text = " ".join(shown.replace("│", " ").split())
    assert "Rows per step. Default: 128, 4096 for wide" in text
    assert f"(not for linear on sparse inputs). Default: {TrainSettings().weight_decay}." in text


@pytest.mark.parametrize(("verb", "catalog"), [("losses", LOSSES), ("metrics", METRICS)])
def test_catalogs_are_listed_for_people_and_for_machines(run, verb, catalog):
    text = run(verb).out
    assert all(f"\n{name} " in text for name in catalog)
    listed = run(verb, "--json").json()
    assert [entry["name"] for entry in listed] == list(catalog)
    assert all(entry["summary"] for entry in listed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trian"], "Did you mean 'train'?"),
        (["train", "x.csv", "--los", "bce"], "Did you mean '--loss'?"),
        (["inspect", "x.csv", "--jsn"], "Did you mean '--json'?"),
        (["train", "x.csv", "--loss", "zlrp"], "Did you mean 'zlpr'?"),
        (["train", "x.csv", "--epochs", "many"], "--epochs"),
        (["train", "x.csv", "--epochs", "0"], "--epochs must be a whole number >= 1; got 0"),
        (["train"], "name a file of examples"),
        (["inspect"], "Missing argument"),
        (["train", "--resume", "nowhere"], "no config.toml"),
        (["data", "get", "emotions", "--version", "new"], "--version must be a number or active"),
    ],
)
def test_wrong_usage_is_one_line_with_the_nearest_name_and_exit_code_2(run, arguments, said):
    done = run(*arguments)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert done.err.startswith("manyhot: ")
    assert done.out == ""


@pytest.mark.parametrize("verb", ["show", "evaluate", "predict", "tune"])
def test_a_model_that_is_not_there_is_one_line_and_exit_code_1(run, verb, tmp_path):
    rows = [] if verb == "show" else ["rows.jsonl"]
    done = run(verb, tmp_path / "none", *rows)
    assert done.code == 1
    assert "there is no such folder" in done.err
    assert done.err.count("\n") == 1


def test_the_process_ends_with_the_exit_code_and_no_traceback(tmp_path):
    done = real("inspect", tmp_path / "missing.csv")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "there is no such file" in done.err


def test_shell_completion_is_offered(run):
    assert "--install-completion" in run("--help").out


def test_only_the_command_line_imports_typer_and_rich():
    for path in SOURCE.rglob("*.py"):
        if "cli" in path.relative_to(SOURCE).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"typer", "rich"}, path


@pytest.mark.parametrize("verb", ["evaluate", "tune"])
def test_rows_that_the_model_was_trained_on_are_remarked(run, trained, posts, verb):
    extra = ["--dry-run"] if verb == "tune" else []
    remark = "the model was trained on these rows"
    assert remark in run(verb, trained, posts / "train.jsonl", *extra).err
    assert remark not in run(verb, trained, posts / "test.jsonl", *extra).err
    assert remark not in run(verb, trained, posts / "train.jsonl", "--quiet", *extra).err
