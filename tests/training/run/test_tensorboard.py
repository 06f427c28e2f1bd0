"""Event files: what TensorBoard reads back is what the log says."""

import json
import sys
from pathlib import Path

import pytest

from manyhot.cli.main import main
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import feature_examples, text_examples

SETTINGS = TrainSettings(epochs=3, batch_size=32, hidden=8, learning_rate=0.02, threads=1, members=1, tensorboard=True)


def scalars(folder):
    """Tag to (step, value) pairs of all event files in a folder, read by tensorboard itself."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    found = {}
    for path in sorted(Path(folder).iterdir()):
        for event in LegacyEventFileLoader(str(path)).Load():
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_the_event_file_holds_the_numbers_of_the_log(tmp_path):
    train(feature_examples(80), SETTINGS, run=tmp_path / "run")
    found = scalars(tmp_path / "run" / "tensorboard")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert len(epochs) == 3
    for tag, key in (("loss", "loss"), ("micro-F1", "value"), ("learning_rate", "learning_rate")):
        wanted = [(line["epoch"], pytest.approx(line[key], rel=1e-6)) for line in epochs]
        assert found[f"final/{tag}"] == wanted
    assert set(found) == {"final/loss", "final/micro-F1", "final/learning_rate", "final/rows_per_second"}


def test_a_resumed_run_adds_a_file_and_leaves_the_first_one(tmp_path):
    class StoppedError(Exception):
        pass

    def stop(event):
        if event.kind == "epoch" and event.epoch == 2:
            raise StoppedError

    examples = feature_examples(80)
    with pytest.raises(StoppedError):
        train(examples, SETTINGS, run=tmp_path / "run", progress=stop)
    train(examples, SETTINGS, run=tmp_path / "run", resume=True)
    folder = tmp_path / "run" / "tensorboard"
    assert len(list(folder.iterdir())) == 2
    assert [step for step, _ in scalars(folder)["final/loss"]] == [1, 2, 3]


def test_every_fit_has_its_own_curve(tmp_path):
    rows = tmp_path / "rows.jsonl"
    examples = text_examples(60)
    pairs = zip(examples.texts, examples.label_sets(), strict=True)
    rows.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in pairs))
    assert main(["train", str(rows), "--run", str(tmp_path / "run"), "--tensorboard", "--quiet"]) == 0
    assert "final/loss" in scalars(tmp_path / "run" / "tensorboard")


def test_without_the_flag_there_is_no_event_file(tmp_path):
    train(feature_examples(40), TrainSettings(epochs=1, learning_rate=0.02, threads=1), run=tmp_path / "run")
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(ValueError, match=r"needs the package tensorboard. Install it with: pip install tensorboard"):
        train(feature_examples(40), SETTINGS, run=tmp_path / "run")


def test_event_files_need_a_run_folder():
    with pytest.raises(ValueError, match="`tensorboard` must go with `run`"):
        train(feature_examples(40), SETTINGS)
