"""Commands that write files: an output is whole or untouched, and never an input."""

import json
import os
import random
import shutil
import threading
import time

import pytest

from cli.forked import Forked
from kill_counts import in_parts
from manyhot._files import StorageError, writing


def _write_and_fail(path):
    with writing(path) as file:
        file.write(b"new")
        raise KeyError


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(KeyError):
        _write_and_fail(path)
    assert path.read_text() == "old"
    with writing(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_keeps_pointing_at_its_file(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    with writing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_directly(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with writing(pipe) as file:
        file.write(b"through")
    reader.join(10)
    assert read == [b"through"]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StorageError, match="nowhere"), writing(tmp_path / "nowhere" / "out.txt"):
        pass


@pytest.fixture
def many_rows(posts, tmp_path):
    """Rows enough that predicting takes a while."""
    path = tmp_path / "many.jsonl"
    path.write_text((posts / "test.jsonl").read_text() * 200)
    return path


def test_predict_refuses_to_write_over_its_input(run, trained, posts, tmp_path):
    file, link = tmp_path / "rows.jsonl", tmp_path / "link.jsonl"
    shutil.copy(posts / "test.jsonl", file)
    link.symlink_to(file)
    before = file.read_bytes()
    for output in (file, link, tmp_path / "." / "rows.jsonl"):
        done = run("predict", trained, file, "--to", output)
        assert done.code == 2
        assert "--to" in done.err
        assert "is an input too" in done.err
        assert file.read_bytes() == before


def test_a_dash_is_no_name_of_an_output(run, trained, posts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("predict", trained, posts / "test.jsonl", "--to", "-")
    assert done.code == 2
    assert "--to must be the name of a file or folder; got -." in done.err
    assert not list(tmp_path.iterdir())


def test_suspects_refuses_to_write_over_its_input(run, posts, tmp_path):
    file = tmp_path / "rows.jsonl"
    shutil.copy(posts / "test.jsonl", file)
    before = file.read_bytes()
    done = run("suspects", file, "--corrected", file, "--folds", "2", "--quiet")
    assert done.code == 2
    assert "is an input too" in done.err
    assert file.read_bytes() == before


def test_a_failed_prediction_leaves_the_old_output(run, trained, posts, tmp_path):
    output = tmp_path / "out.jsonl"
    output.write_text("old\n")
    assert run("predict", trained, tmp_path / "missing.jsonl", "--to", output).code == 1
    assert output.read_text() == "old\n"
    bad = tmp_path / "bad.jsonl"
    bad.write_text((posts / "test.jsonl").read_text() * 60 + '{"text": \n')
    assert run("predict", trained, bad, "--to", output).code == 1
    assert output.read_text() == "old\n"
    assert {path.name for path in tmp_path.iterdir()} == {"out.jsonl", "bad.jsonl"}


def test_a_full_disk_leaves_the_old_output(trained, many_rows, tmp_path):
    output = tmp_path / "out.jsonl"
    output.write_text("old\n")
    done = Forked("predict", trained, many_rows, "--to", output, limit=100_000).done()
    assert done.code == 1
    assert "file size limit is reached" in done.err
    assert str(output) in done.err
    assert output.read_text() == "old\n"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
@in_parts(4)
def test_a_killed_prediction_leaves_the_old_output_or_the_new_one(part, kills, trained, many_rows, tmp_path):
    output = tmp_path / "out.jsonl"
    began = time.monotonic()
    assert Forked("predict", trained, many_rows, "--to", output).done().code == 0
    seconds, whole = time.monotonic() - began, output.read_text()
    draw = random.Random(part)
    for _ in range(kills):
        output.write_text("old\n")
        process = Forked("predict", trained, many_rows, "--to", output)
        time.sleep(draw.random() * seconds)
        process.kill()
        assert output.read_text() in ("old\n", whole)


def test_labels_with_the_separator_in_them_stay_apart(run, tmp_path):
    rows = [{"text": f"{'egg' if k % 2 else 'pan'} number {k}", "labels": ["=a|b"] if k % 2 else ["-c"]} for k in range(60)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("train", file, "--run", tmp_path / "run", "--quiet", "--no-report").code == 0
    done = run("predict", tmp_path / "run", file, "--output-format", "csv")
    assert '"[""=a|b""]"' in done.out


def test_cells_that_begin_like_a_formula_are_guarded(run, tmp_path):
    rows = [
        {"id": f"={k}", "text": f"{'egg' if k % 2 else 'pan'} number {k}", "labels": ["@a"] if k % 2 else ["-c"]}
        for k in range(60)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("train", file, "--run", tmp_path / "run", "--quiet", "--no-report").code == 0
    lines = run("predict", tmp_path / "run", file, "--ids", "id", "--output-format", "csv").out.splitlines()[1:]
    assert {line.split(",")[2] for line in lines} <= {"'@a", "'-c", "'@a|-c", "'-c|@a", ""}
    assert all(line.split(",")[1].startswith("'=") for line in lines)
