"""Full disks, damaged files, hostile rows: each is one line that says what to do, and nothing is lost."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
import torch
from safetensors import safe_open

from cli.forked import Forked
from manyhot.training.rows.bundle import load_model
from manyhot.training.run.checkpoint import pack
from training.problems import same_weights

# A checkpoint of this run has a few hundred kilobytes: some fit into the small places below, two with a model do not.
FLAGS = ["--model", "bag", "--hidden", "128", "--epochs", "4", "--patience", "0", "--learning-rate", "0.01", "--threads", "1"]
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def one_line(done, *words):
    """The error of a command that failed: one line of its own, with ``words`` in it."""
    assert done.code == 1, (done.code, done.err)
    last = done.err.splitlines()[-1]
    assert last.startswith("manyhot: ")
    assert "Traceback" not in done.err
    for word in words:
        assert word in last, last


@pytest.fixture(scope="module")
def file(posts, tmp_path_factory):
    """Many different words, so that there are many weights."""
    path = tmp_path_factory.mktemp("faults") / "rows.jsonl"
    rows = [json.loads(line) for line in (posts / "train.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row["text"] += "".join(f" w{(number * 7 + place) % 240}" for place in range(12))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def unbroken(file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    done = in_a_process("train", file, "--run", folder, *FLAGS, "--quiet")
    assert done.code == 0, done.err
    return load_model(folder)


def in_a_process(*arguments, limit=None):
    """The command to its end."""
    return Forked(*arguments, limit=limit).done()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, and a function that sets its size or makes it read-only."""
    if not ROOT or sys.platform != "linux":
        pytest.skip("only root mounts file systems")
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "none", place], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    yield place, lambda how: subprocess.run(["mount", "-o", f"remount,{how}", place], check=True)
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_is_named_and_the_run_goes_on_when_there_is_space(small_disk, file, unbroken):
    place, remount = small_disk
    done = in_a_process("train", file, "--run", place / "run", *FLAGS)
    one_line(done, str(place), "the disk is full", "Free some space and resume")
    assert "epoch 1/4" in done.err, "the first checkpoint fitted"
    kept = list((place / "run" / "checkpoints").glob("*.safetensors"))
    assert kept
    one_line(in_a_process("train", "--resume", place / "run"), "the disk is full")
    remount("size=20m")
    done = in_a_process("train", "--resume", place / "run")
    assert done.code == 0, done.err
    assert "epoch 1/4" not in done.err, "it goes on from the checkpoint"
    assert same_weights(load_model(place / "run"), unbroken)


def test_a_file_that_may_not_grow_is_named_and_the_run_goes_on_without_the_limit(tmp_path, file, unbroken):
    done = in_a_process("train", file, "--run", tmp_path / "run", *FLAGS, limit=200_000)
    one_line(done, "member-0.safetensors", "file size limit is reached", "resume")
    assert not list(tmp_path.rglob("*.part"))
    done = in_a_process("train", "--resume", tmp_path / "run")
    assert done.code == 0, done.err
    assert same_weights(load_model(tmp_path / "run"), unbroken)


def test_a_read_only_disk_is_named(small_disk, file):
    place, remount = small_disk
    remount("ro")
    one_line(in_a_process("train", file, "--run", place / "run", *FLAGS), str(place), "not permitted", "another folder")


def test_a_checkpoint_that_is_cut_off_loses_nothing(tmp_path, file, unbroken):
    process = Forked("train", file, "--run", tmp_path / "run", *FLAGS)
    while "epoch 2/" not in process.err():
        time.sleep(0.002)
    process.kill()
    for names in (["final.safetensors"], ["final.safetensors", "final.previous.safetensors"]):
        copy = tmp_path / f"damaged{len(names)}"
        shutil.copytree(tmp_path / "run", copy)
        assert list((copy / "checkpoints").glob("final*.safetensors"))
        for name in names:
            path = copy / "checkpoints" / name
            # Killed while a checkpoint takes the place of the one before, a run has only the older one.
            if path.exists():
                path.write_bytes(path.read_bytes()[:1000])
        done = in_a_process("train", "--resume", copy, "--quiet")
        assert done.code == 0, done.err
        assert same_weights(load_model(copy), unbroken)


def test_a_bundle_with_a_wrong_tensor_is_named(run, trained, posts, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    folder = tmp_path / "run" / "model"
    path = folder / json.loads((folder / "model.json").read_text())["weights"]
    with safe_open(path, framework="pt") as weights:
        tensors = {name: weights.get_tensor(name) for name in weights.keys()}  # noqa: SIM118
    tensors["body.head.bias"] = torch.zeros(2)
    path.write_bytes(pack(tensors, {}))
    for verb in ("predict", "evaluate"):
        one_line(run(verb, tmp_path / "run", posts / "test.jsonl"), "'head.bias' must be", "got torch.float32 [2]")


def hundred_megabytes(path):
    with path.open("wb") as target:
        target.write(b'{"text": "a", "labels": ["x"]}\n{"text": "')
        for _ in range(100):
            target.write(b"a" * 2**20)
        target.write(b'", "labels": []}\n')


MIXED = """{"text": "a", "labels": ["x"]}
{"text": "b", "labels": 7}
{"text": "c", "labels": {}}
"""
HOSTILE = {
    "a JSON line of 100 MB": (hundred_megabytes, ("line 2", "must be at most", "raise --max-line-bytes")),
    "invalid UTF-8": (
        lambda path: path.write_bytes(b'{"text": "a", "labels": ["x"]}\n{"text": "caf\xe9", "labels": []}\n'),
        ("line 2", "must be UTF-8", "0xe9", "iconv"),
    ),
    "labels of mixed types": (
        lambda path: path.write_text(MIXED),
        ("line ", "labels"),
    ),
    "an empty file": (lambda path: path.write_bytes(b""), ("empty",)),
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_file_that_cannot_be_read_is_one_line_and_leaves_no_run(name, run, tmp_path):
    write, words = HOSTILE[name]
    path = tmp_path / "rows.jsonl"
    write(path)
    done = run("train", path, "--run", tmp_path / "run", "--quiet")
    one_line(done, str(path), *words)
    assert done.err.count("\n") == 1
    assert not (tmp_path / "run").exists()
