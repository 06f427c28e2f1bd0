"""The disk is full for every command that writes: one line says so, old files stay, and the next call succeeds.

The disk is a limit on the size of files, below one that the command writes: one file after the other fails.
"""

import os
import shutil
from pathlib import Path

import pytest

from cli.forked import Forked
from cli.writers import WRITERS, check_whole, contents, next_call, openml, start  # noqa: F401 - two are fixtures

# Of a command's files so many are made to fail, from the smallest to the largest.
FAILURES = 3

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="limits"), pytest.mark.slow]


def sizes_of_new_files(before, after):
    """The sizes of what a command wrote, some of them, all different."""
    sizes = sorted({len(content) for name, content in after.items() if before.get(name) != content} - {0, 1})
    step = max(len(sizes) - 1, 1) / max(min(len(sizes), FAILURES) - 1, 1)
    return sorted({sizes[round(place * step)] for place in range(min(len(sizes), FAILURES))})


@pytest.mark.parametrize("name", list(WRITERS))
def test_a_full_disk_is_one_line_and_old_files_stay(name, start, openml, tmp_path, monkeypatch):  # noqa: F811
    old = contents(start)
    whole = tmp_path / "whole"
    shutil.copytree(start, whole)
    monkeypatch.chdir(whole)
    done = Forked(*WRITERS[name], before=openml).done()
    assert done.code == 0, done.err
    new = contents(whole)
    limits = sizes_of_new_files(old, new)
    assert limits, "the command writes nothing"
    for size in limits:
        folder = tmp_path / f"limit{size}"
        shutil.copytree(start, folder)
        monkeypatch.chdir(folder)
        # Times of the clock are in some files: their sizes differ a little from call to call.
        done = Forked(*WRITERS[name], before=openml, limit=size * 9 // 10).done()
        assert done.code == 1, (size, done)
        assert done.err.count("manyhot: ") == 1, done.err
        assert "Traceback" not in done.err
        assert "file size limit is reached" in done.err, done.err
        check_whole(folder)
        assert not list(folder.rglob(".*.part"))
        # A file is the old one, or one that was written whole before the disk was full.
        for path, content in old.items():
            assert (folder / path).read_bytes() == content or len((folder / path).read_bytes()) < size
        done = Forked(*next_call(name, folder), before=openml).done()
        assert done.code == 0, done.err
        check_whole(folder)
        assert contents(folder).keys() == new.keys()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "run", "rows.jsonl"],
        ["predict", "run", "rows.jsonl", "--to", "/dev/full"],
        ["predict", "spans", "texts.jsonl"],
        ["explain", "run", "rows.jsonl", "--json"],
        ["sample", "run", "rows.jsonl", "--json"],
        ["suspects", "rows.jsonl", "--folds", "2", "--json"],
        ["inspect", "rows.jsonl", "--json"],
        ["evaluate", "run", "rows.jsonl", "--json"],
        ["show", "run"],
        ["losses"],
    ],
    ids=" ".join,
)
def test_a_full_disk_behind_the_standard_output_is_an_error(arguments, start, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(start)
    done = Forked(*arguments, out="/dev/full").done()
    assert done.code == 1
    assert done.err.count("manyhot: ") == 1, done.err
    assert "Traceback" not in done.err
    assert "Exception ignored" not in done.err


# An output that is one of the inputs.
OVER_INPUTS = {
    "predict": ["predict", "run", "rows.jsonl", "--to", "rows.jsonl"],
    "predict, the model": ["predict", "run", "rows.jsonl", "--to", "run/model/model.json"],
    "predict folder": ["predict", "run", "rows.jsonl", "many.jsonl", "--to-folder", "rows.jsonl"],
    "predict folder, the model": ["predict", "run", "rows.jsonl", "many.jsonl", "--to-folder", "run/model"],
    "predict spans": ["predict", "spans", "texts.jsonl", "--to", "texts.jsonl"],
    "predict spans, the page": ["predict", "spans", "texts.jsonl", "--html", "texts.jsonl"],
    "predict spans, twice": ["predict", "spans", "texts.jsonl", "--html", "page", "--to", "page"],
    "evaluate": ["evaluate", "run", "rows.jsonl", "--report", "rows.jsonl"],
    "evaluate, the run": ["evaluate", "run", "rows.jsonl", "--report", "run"],
    "tune": ["tune", "run/config.toml", "rows.jsonl"],
    "report": ["report", "run", "--to", "rows.jsonl"],
    "compare": ["compare", "table.csv", "--labels", "y*", "--out", "table.csv", *WRITERS["compare"][-8:]],
    "suspects": ["suspects", "rows.jsonl", "--corrected", "rows.jsonl", "--folds", "2"],
    "suspects, a run": ["suspects", "run", "--corrected", "run/model/model.json"],
    "export": ["export", "run", "rows.jsonl", "--to", "weights", "--folder", "run"],
    "export, a file": ["export", "run", "rows.jsonl", "--to", "weights", "--folder", "rows.jsonl"],
    "train": ["train", "rows.jsonl", "--run", "rows.jsonl"],
    "train, a run": ["train", "rows.jsonl", "--run", "run"],
    "train packed": ["train", "packed-rows", "--run", "packed-rows"],
    "pack": ["pack", "rows.jsonl", "--output", "rows.jsonl"],
    "train spans": ["train", "--task", "spans", "texts.jsonl", "--run", "texts.jsonl"],
    "demo": ["demo", "--rows", "100", "--epochs", "1", "--seeds", "1", "--folder", "rows.jsonl"],
    "data": ["data", "get", "songs", "--to", "rows.jsonl/songs.jsonl", "--folder", "kept"],
}


@pytest.mark.parametrize("name", list(OVER_INPUTS))
def test_an_output_that_is_an_input_is_refused_and_nothing_is_lost(name, start, openml, tmp_path, monkeypatch):  # noqa: F811
    folder = tmp_path / "folder"
    shutil.copytree(start, folder)
    monkeypatch.chdir(folder)
    done = Forked(*OVER_INPUTS[name], before=openml).done()
    assert done.code in (1, 2)
    assert done.err.count("manyhot: ") == 1, done.err
    assert "Traceback" not in done.err
    after = contents(folder)
    assert {path: content for path, content in after.items() if not path.startswith("kept/")} == contents(start)


def test_every_writing_command_is_tried_with_an_input_as_its_output():
    assert {name.split(",")[0] for name in OVER_INPUTS} == set(WRITERS)
