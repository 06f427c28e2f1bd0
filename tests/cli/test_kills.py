"""Every command that writes is killed at random moments: no file is half-written under its name, and the next call succeeds.

Two kills a command, or as many as the environment's MANYHOT_KILLS says. Training has tests of its own (training/run).
"""

import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest
from safetensors import safe_open

from cli.forked import Forked
from comparison.problems import write_table
from manyhot.cli.commands import COMMANDS
from manyhot.cli.main import main
from manyhot.data.spans.write import write_span_examples
from training.spans.problems import SMALL, people

KILLS = int(os.environ.get("MANYHOT_KILLS", "2"))
SPAN_FLAGS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="signals"), pytest.mark.slow]


@pytest.fixture(scope="module")
def start(posts, trained, tmp_path_factory):
    """A folder with everything the commands read and write over."""
    folder = tmp_path_factory.mktemp("start")
    shutil.copytree(trained, folder / "run")
    shutil.copy(posts / "test.jsonl", folder / "rows.jsonl")
    (folder / "many.jsonl").write_text((posts / "test.jsonl").read_text() * 60)
    (folder / "out.jsonl").write_text('{"old": true}\n')
    write_table(folder / "table.csv", 60, 0)
    write_span_examples(people(), folder / "texts.jsonl")
    given = ["--task", "spans", "texts.jsonl", "--run", "spans", "--epochs", "2", "--quiet", *SPAN_FLAGS]
    _here(folder, ["train", *given])
    return folder


SMALL_GRID = ["--models", "linear", "--seeds", "2", "--trials", "1", "--jobs", "1"]
# A command by its name: arguments in the folder above, and how a call after a kill differs.
WRITERS = {
    "predict": ["predict", "run", "many.jsonl", "--to", "out.jsonl"],
    "predict folder": ["predict", "run", "many.jsonl", "rows.jsonl", "--to-folder", "predicted"],
    "predict spans": ["predict", "spans", "texts.jsonl", "--to", "out.jsonl", "--html", "page.html"],
    "evaluate": ["evaluate", "run", "rows.jsonl", "--report", "test-report"],
    "tune": ["tune", "run", "rows.jsonl", "--always", "--per-label", "--calibrate", "platt"],
    "report": ["report", "run", "--to", "again"],
    "compare": ["compare", "table.csv", "--out", "comparison", "--labels", "y*", "--losses", "zlpr,bce", *SMALL_GRID],
    "suspects": ["suspects", "rows.jsonl", "--corrected", "out.jsonl", "--folds", "2", "--quiet"],
    "export": ["export", "run", "rows.jsonl", "--to", "weights", "--folder", "exported"],
    "train spans": ["train", "--task", "spans", "texts.jsonl", "--run", "new", "--epochs", "2", "--quiet", *SPAN_FLAGS],
}
AGAIN = {"compare": ["compare", "--resume", "comparison", "--jobs", "1"], "train spans": ["train", "--resume", "new"]}
BEGUN = {"compare": "comparison/plan.json", "train spans": "new/config.toml"}
# Commands that write nothing, and those whose kills are tested elsewhere.
ELSEWHERE = {"demo", "inspect", "show", "losses", "metrics", "train", "data", "explain", "serve", "sample"}


def _here(folder, arguments):
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(arguments) == 0
    finally:
        os.chdir(before)


def check_whole(folder):
    """Every file that is not a draft can be read to its end."""
    for path in folder.rglob("*"):
        if path.is_dir() or path.name.startswith("."):
            continue
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.name == "cells.jsonl" or path.name == "metrics.jsonl":
            # Logs may lose their last line; the next call mends them.
            for line in path.read_text().splitlines()[:-1]:
                json.loads(line)
        elif path.suffix == ".jsonl":
            text = path.read_text()
            assert text.endswith("\n"), path
            for line in text.splitlines():
                json.loads(line)
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>"), path
        elif path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as weights:
                assert weights.keys()
        else:
            assert path.stat().st_size > 0, path


@pytest.mark.parametrize("name", list(WRITERS))
def test_a_killed_command_leaves_whole_files_and_can_be_called_again(name, start, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    shutil.copytree(start, whole)
    monkeypatch.chdir(whole)
    began = time.monotonic()
    done = Forked(*WRITERS[name]).done()
    seconds = time.monotonic() - began
    assert done.code == 0, done.err
    check_whole(whole)
    draw = random.Random(name)
    for kill in range(KILLS):
        folder = tmp_path / f"kill{kill}"
        shutil.copytree(start, folder)
        monkeypatch.chdir(folder)
        process = Forked(*WRITERS[name])
        # Most writing is done towards the end.
        process.process.join(seconds * draw.random() ** 0.5)
        process.kill()
        check_whole(folder)
        begun = name in BEGUN and (folder / BEGUN[name]).is_file()
        done = Forked(*(AGAIN[name] if begun else WRITERS[name])).done()
        assert done.code == 0, done.err
        check_whole(folder)
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(folder)


def test_every_command_is_tested_for_kills_or_writes_nothing():
    assert {name.split()[0] for name in WRITERS} | ELSEWHERE == set(COMMANDS)
