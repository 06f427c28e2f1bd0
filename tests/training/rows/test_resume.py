"""A run that is killed, cut off or out of disk loses nothing: it goes on to the same weights, or says what is wrong."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from manyhot._files import StorageError, write_whole
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from manyhot.training.run.checkpoint import Checkpoints
from training.problems import RUNS, same_weights, text_examples


class KilledError(Exception):
    pass


@pytest.mark.parametrize("kind", list(RUNS))
def test_a_run_stopped_after_any_epoch_ends_in_the_same_weights(kind, tmp_path):
    make, settings = RUNS[kind]
    settings = replace(settings, epochs=4)
    unbroken = train(make(), settings)

    def stop(event):
        if event.kind == "epoch":
            raise KilledError

    for _ in range(40):
        try:
            resumed = train(make(), settings, run=tmp_path / "run", resume=True, progress=stop)
            break
        except KilledError:
            continue
    assert same_weights(resumed, unbroken)


def test_what_a_killed_process_left_half_written_is_taken_away(tmp_path):
    (tmp_path / ".fit.safetensors.123.part").write_bytes(b"half")
    Checkpoints(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_a_clear_error_and_the_last_checkpoint_survives(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("fit", {"weight": torch.ones(5)}, {"epoch": 1})
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(StorageError, match="could not be written"):
            checkpoints.save("fit", {"weight": torch.ones(5000)}, {"epoch": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert checkpoints.load("fit")[1] == {"epoch": 1}
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_disk_without_space_is_named():
    from manyhot._files import append_line

    with pytest.raises(StorageError, match="the disk is full"):
        append_line(Path("/dev/full"), "x" * 100_000)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    place = tmp_path / "file"
    place.write_text("not a folder")
    with pytest.raises(StorageError, match="could not be written"):
        train(text_examples(30), run=place / "run")
    if os.geteuid() != 0:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        with pytest.raises(StorageError, match="not permitted"):
            train(text_examples(30), run=closed / "run")


def test_a_file_is_the_old_one_or_the_new_one(tmp_path):
    path = tmp_path / "a.json"
    write_whole(path, b"old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_run_is_resumed_with_its_own_settings_and_data_or_not_at_all(tmp_path):
    examples, settings = text_examples(40), TrainSettings(threads=1)
    first = train(examples, settings, run=tmp_path / "run")
    assert same_weights(train(examples, settings, run=tmp_path / "run", resume=True), first)
    with pytest.raises(ValueError, match="holds a run"):
        train(examples, settings, run=tmp_path / "run")
    with pytest.raises(ValueError, match="`epochs` was None, now 7"):
        train(examples, replace(settings, epochs=7), run=tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="the data changed"):
        train(text_examples(40, seed=3), settings, run=tmp_path / "run", resume=True)
