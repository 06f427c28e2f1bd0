"""Every command that writes, with small files to call it on; what must hold of its files whatever happens to it."""

import json
import os
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open

from comparison.problems import write_table
from data.sets.test_openml import running_server
from manyhot.cli.main import main
from manyhot.data.spans.write import write_span_examples
from training.spans.problems import SMALL, people

SPAN_FLAGS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]
SMALL_GRID = ["--models", "linear", "--seeds", "2", "--trials", "1", "--jobs", "1"]
# A command by its name: arguments in the folder of `start`.
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
    "pack": ["pack", "many.jsonl", "--output", "packed", "--quiet"],
    "train": ["train", "rows.jsonl", "--run", "new", "--quiet"],
    "train packed": ["train", "packed-rows", "--run", "new", "--quiet"],
    "train spans": ["train", "--task", "spans", "texts.jsonl", "--run", "new", "--epochs", "2", "--quiet", *SPAN_FLAGS],
    "demo": ["demo", "--rows", "100", "--epochs", "1", "--seeds", "1", "--folder", "demo", "--quiet"],
    "data": ["data", "get", "songs", "--to", "out.jsonl", "--folder", "kept", "--quiet"],
}
# How a call differs after one that was broken off, once the file beside it is there.
AGAIN = {
    "compare": ("comparison/plan.json", ["compare", "--resume", "comparison", "--jobs", "1"]),
    "train": ("new/config.toml", ["train", "--resume", "new"]),
    "train packed": ("new/config.toml", ["train", "--resume", "new"]),
    "train spans": ("new/config.toml", ["train", "--resume", "new"]),
}
# Commands that write no file.
READERS = {"inspect", "show", "losses", "metrics", "explain", "serve", "sample"}


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
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(["train", *given]) == 0
        assert main(["pack", "many.jsonl", "--output", "packed-rows", "--quiet"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture(scope="module")
def openml():
    """What a process of its own does first, so that it asks a local server for public sets."""
    with running_server() as server:
        yield server.point_client


def next_call(name, folder):
    """The arguments that finish what a call left that was broken off."""
    begun, again = AGAIN.get(name, ("", []))
    return again if begun and (folder / begun).is_file() else WRITERS[name]


def contents(folder):
    """Every file with its bytes, but for drafts and locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def check_whole(folder):
    """Every file that is not a draft can be read to its end."""
    for path in folder.rglob("*"):
        # scikit-learn's client downloads into a folder tmp... and moves the whole file from there.
        if path.is_dir() or path.name.startswith(".") or path.parent.name.startswith("tmp"):
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
