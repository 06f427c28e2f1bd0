"""A training run that is killed again and again, at any moment, ends in the weights of an unbroken one."""

import json
import os
import random
import signal
import time

import pytest
import torch

from cli.forked import Forked
from kill_counts import in_parts
from manyhot import load_span_model, write_span_examples
from manyhot.training.rows.bundle import load_model
from training.problems import feature_examples, same_weights, text_examples, title_examples, write_rows
from training.spans.problems import people

# A checkpoint after every step: most of the time one is being written, so most kills come while one is.
COMMON = ["--batch-size", "8", "--checkpoint-seconds", "0", "--threads", "1", "--quiet"]
# Flags, and epochs for every five kills: a kill comes a few steps after the one before.
RUNS = {
    "mlp": (feature_examples, ["--hidden", "16", "--patience", "0", "--learning-rate", "0.01", *COMMON], 2),
    "linear": (text_examples, COMMON, 1),
    "tree": (title_examples, ["--model", "tree", *COMMON[2:]], 2),
}

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")


def saved(run):
    """What changes when a checkpoint is put in place."""
    try:
        return {path.name: path.stat().st_ino for path in (run / "checkpoints").glob("*.safetensors")}
    except OSError:
        return {}


def kill_at_random(forked, run, draw):
    """Kill the process soon after it got somewhere, or, one time in five, whenever; whether it was killed."""
    before, process = saved(run), forked.process
    anywhere = draw.random() < 0.2
    while process.is_alive() and not anywhere and saved(run) == before:
        time.sleep(0.001)
    process.join(draw.uniform(0, 0.12 if anywhere else 0.015))
    return process.is_alive() and forked.kill().code == -signal.SIGKILL


def train_with_kills(file, run, flags, kills, seed):
    """Kills that hit, until there are enough; then to the end."""
    draw, done = random.Random(seed), 0
    while True:
        begun = (run / "config.toml").exists()
        forked = Forked(*(["train", "--resume", run, "--quiet"] if begun else ["train", file, "--run", run, *flags]))
        if done < kills and kill_at_random(forked, run, draw):
            done += 1
            continue
        ended = forked.done()
        assert ended.code == 0, ended.err
        return done


@pytest.mark.slow
@in_parts(5)
@pytest.mark.parametrize("kind", list(RUNS))
def test_a_run_killed_at_random_moments_ends_in_the_same_weights(kind, part, kills, tmp_path):
    make, flags, epochs = RUNS[kind]
    flags = [*flags, "--epochs", str(epochs * max(kills // 5, 2))]
    if kind == "tree":
        # A tree is the least that is kept, so that there must be more of them than kills.
        flags += ["--trees", str(max(30, 2 * kills))]
    file = tmp_path / "rows.jsonl"
    write_rows(file, make(200))
    assert train_with_kills(file, tmp_path / "unbroken", flags, 0, kind) == 0
    assert train_with_kills(file, tmp_path / "killed", flags, kills, f"{kind} {part}") == kills
    unbroken, killed = load_model(tmp_path / "unbroken"), load_model(tmp_path / "killed")
    assert same_weights(killed, unbroken)
    assert not list((tmp_path / "killed").rglob("*.part"))


@pytest.mark.slow
@in_parts(5)
def test_a_span_run_killed_at_random_moments_ends_in_the_same_weights(part, kills, tmp_path):
    epochs = str(2 * max(kills // 5, 2))
    flags = ["--task", "spans", "--epochs", epochs, "--hidden", "8", "--head-size", "8", "--patience", "0", *COMMON]
    file = tmp_path / "texts.jsonl"
    write_span_examples(people(80), file)
    assert train_with_kills(file, tmp_path / "unbroken", flags, 0, "spans") == 0
    assert train_with_kills(file, tmp_path / "killed", flags, kills, f"spans {part}") == kills
    both = [load_span_model(tmp_path / name) for name in ("unbroken", "killed")]
    assert both[0].settings == both[1].settings
    one, two = (each.network.state_dict() for each in both)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not list((tmp_path / "killed").rglob("*.part"))
    assert not (tmp_path / "killed" / ".lock").exists()


def killed_before_the_report(*arguments):
    """The command in this process, ended where the report would be written: the moment after the model is saved."""

    class KilledError(BaseException):
        pass

    def die(*_, **__):
        raise KilledError

    from manyhot.cli.main import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manyhot.report.files.write_report", die)
        assert main([str(each) for each in arguments]) != 0


@pytest.mark.parametrize("kind", list(RUNS))
def test_a_run_killed_between_model_and_report_gets_its_report_when_it_is_resumed(kind, tmp_path):
    make, flags, _ = RUNS[kind]
    file, run = tmp_path / "rows.jsonl", tmp_path / "run"
    write_rows(file, make(200))
    line = ["train", file, *flags, "--epochs", "2", "--run"]
    killed_before_the_report(*line, run)
    before = load_model(run)
    assert not (run / "report.html").exists()
    assert Forked("train", "--resume", run, "--quiet").done().code == 0
    assert same_weights(load_model(run), before)
    assert Forked(*line, tmp_path / "unbroken").done().code == 0
    reports = [json.loads((folder / "report.json").read_text()) for folder in (run, tmp_path / "unbroken")]
    assert reports[0]["metrics"] == reports[1]["metrics"]
    assert (run / "report.html").is_file()
    report = (run / "report.html").stat().st_mtime_ns
    assert Forked("train", "--resume", run, "--quiet").done().code == 0
    assert (run / "report.html").stat().st_mtime_ns == report, "a report that is there is not made again"
