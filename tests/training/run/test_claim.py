"""One training at a time in a run folder; a refused run leaves nothing, and takes nothing away but its own."""

import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from manyhot import TrainSettings, load_model, train
from manyhot.training.run.claim import FolderInUseError, RunClaim
from training.problems import feature_examples

SETTINGS = TrainSettings(epochs=2, learning_rate=0.02, hidden=8, threads=1)


def test_a_second_training_is_refused_and_leaves_the_first_as_it_is(tmp_path):
    seen = []

    def try_again(event):
        if event.kind == "epoch" and not seen:
            before = sorted(path.name for path in (tmp_path / "run").iterdir())
            with pytest.raises(FolderInUseError, match="no other training writes to"):
                train(feature_examples(60), SETTINGS, run=tmp_path / "run", resume=True)
            with pytest.raises(FolderInUseError):
                train(feature_examples(60), replace(SETTINGS, seed=1), run=tmp_path / "run")
            seen.append(sorted(path.name for path in (tmp_path / "run").iterdir()) == before)

    train(feature_examples(60), SETTINGS, run=tmp_path / "run", progress=try_again)
    assert seen == [True]
    load_model(tmp_path / "run")
    assert not (tmp_path / "run" / ".lock").exists()


def test_of_two_threads_that_claim_at_once_one_gets_the_folder(tmp_path):
    held, release, refused = threading.Event(), threading.Event(), []

    def hold():
        with RunClaim(tmp_path / "run"):
            held.set()
            release.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    with pytest.raises(FolderInUseError), RunClaim(tmp_path / "run"):
        refused.append("not reached")
    assert (tmp_path / "run").is_dir()
    release.set()
    thread.join()
    with RunClaim(tmp_path / "run") as claim:
        assert claim.new
    assert not refused


def test_the_lock_of_a_killed_process_is_no_lock(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from manyhot.training.run.claim import RunClaim;"
        "claim = RunClaim(Path(sys.argv[1])).__enter__(); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script, tmp_path / "run"]).returncode == 9
    assert (tmp_path / "run" / ".lock").exists()
    with RunClaim(tmp_path / "run") as claim:
        assert claim.new


@pytest.mark.parametrize("error", [ValueError, TypeError, RuntimeError, MemoryError, ImportError])
def test_a_new_run_that_is_refused_leaves_no_folder(error, tmp_path):
    folder = tmp_path / "runs" / "deep" / "mine"

    def refuse():
        with RunClaim(folder):
            for name in ("settings.json", "config.toml", "metrics.jsonl"):
                (folder / name).write_text("")
            (folder / "checkpoints").mkdir()
            raise error("no")

    with pytest.raises(error):
        refuse()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kept", ["mine.txt", "checkpoints/final.safetensors", "model/model.json"])
def test_a_refused_run_takes_nothing_away_that_it_did_not_make_or_that_was_trained(kept, tmp_path):
    (tmp_path / "run").mkdir()

    def refuse():
        with RunClaim(tmp_path / "run"):
            (tmp_path / "run" / "settings.json").write_text("")
            (tmp_path / "run" / kept).parent.mkdir(exist_ok=True)
            (tmp_path / "run" / kept).write_text("")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        refuse()
    assert (tmp_path / "run" / kept).is_file()


def test_an_interrupted_run_and_one_that_ran_out_of_disk_stay(tmp_path):
    for error in (KeyboardInterrupt, OSError):
        folder = tmp_path / error.__name__

        def end(folder=folder, error=error):
            with RunClaim(folder):
                (folder / "settings.json").write_text("")
                raise error

        with pytest.raises(error):
            end()
        assert (folder / "settings.json").is_file()
        with RunClaim(folder) as claim:
            assert not claim.new
