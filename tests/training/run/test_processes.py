"""Several processes: the weights of one, divided work, one writer, and an end when one of them ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cli.processes import environment
from manyhot import SpanSettings, load_span_model, train_spans
from manyhot.cli.main import main
from manyhot.training.rows.bundle import load_model
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from manyhot.training.run.processes import Processes, ProcessesError, several_processes
from training.problems import feature_examples, image_examples, same_weights, text_examples, title_examples, write_rows
from training.run.process_runs import (
    die_early,
    in_processes,
    tell_error,
    train_and_save,
    train_spans_and_save,
    train_until_epoch,
)
from training.spans.problems import people

# On the CPU: a machine may have fewer GPUs than a test has processes.
PLAIN = TrainSettings(epochs=3, batch_size=16, hidden=16, dropout=0.0, patience=0, threads=1, device="cpu")
TEXTS = TrainSettings(epochs=3, batch_size=16, threads=1, device="cpu")


def close(one, two):
    mine, other = one.body.state_dict(), two.body.state_dict()
    return mine.keys() == other.keys() and all(torch.allclose(mine[k], other[k], rtol=1e-4, atol=1e-5) for k in mine)


def weights_of(examples):
    return torch.linspace(0.1, 2, len(examples))


CASES = {
    # 65 rows: the last batch has one, so that the second process has none of its own.
    "mlp": (lambda: feature_examples(65), PLAIN, False),
    "mlp-weighted": (lambda: feature_examples(65), replace(PLAIN, learning_rate=0.02), True),
    "bag": (lambda: text_examples(70), replace(TEXTS, model="bag", hidden=16, learning_rate=0.02), False),
}


@pytest.mark.parametrize("name", list(CASES))
def test_two_processes_give_the_weights_of_one_with_the_same_batches(name, tmp_path):
    make, settings, weighted = CASES[name]
    examples = make()
    options = {"validation": make()[:33], "sample_weight": weights_of(examples) if weighted else None}
    alone = train(examples, settings, **options)
    assert in_processes(train_and_save, tmp_path, examples, settings, options) == [0, 0]
    both = [load_model(tmp_path / f"rank{rank}") for rank in (0, 1)]
    assert close(both[0], alone)
    assert same_weights(*both)
    assert both[0].about["learning_rate"] == pytest.approx(alone.about["learning_rate"])


def test_two_processes_train_one_span_network(tmp_path):
    settings = SpanSettings(hidden=8, head_size=8, epochs=2, batch_size=7, dropout=0.0, word_dropout=0.0, threads=1)
    examples = people(45)
    alone = train_spans(examples, settings)
    assert in_processes(train_spans_and_save, tmp_path, examples, settings) == [0, 0]
    both = [load_span_model(tmp_path / f"rank{rank}").network.state_dict() for rank in (0, 1)]
    own = alone.network.state_dict()
    for name, each in own.items():
        assert torch.equal(both[0][name], both[1][name])
        torch.testing.assert_close(both[0][name], each, rtol=1e-3, atol=1e-4)
    assert load_span_model(tmp_path / "run").type_names == alone.type_names
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert sum('"kind": "epoch"' in line for line in lines) == 2, "one process writes"


def test_running_means_are_the_same_on_all_processes(tmp_path):
    settings = replace(PLAIN, epochs=1, learning_rate=0.01, dropout=0.2)
    assert in_processes(train_and_save, tmp_path, image_examples(50), settings, {}) == [0, 0]
    assert same_weights(*(load_model(tmp_path / f"rank{rank}") for rank in (0, 1)))


def test_two_processes_that_end_early_are_resumed_to_the_same_weights(tmp_path):
    settings = replace(PLAIN, epochs=4, learning_rate=0.02, dropout=0.3, checkpoint_seconds=0.0, members=1)
    examples = feature_examples(100)
    assert in_processes(train_until_epoch, tmp_path / "unbroken", examples, settings, 99) == [0, 0]
    assert in_processes(train_until_epoch, tmp_path / "broken", examples, settings, 2) == [7, 7]
    assert in_processes(train_until_epoch, tmp_path / "broken", examples, settings, 99) == [0, 0]
    assert same_weights(load_model(tmp_path / "broken"), load_model(tmp_path / "unbroken"))
    lines = (tmp_path / "unbroken" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines if '"epoch",' in line] == [1, 2, 3, 4], "one process writes"
    assert in_processes(train_until_epoch, tmp_path / "broken", examples, settings, 99) == [0, 0], "a finished run is loaded"


def test_when_one_process_ends_the_other_says_so(tmp_path):
    codes = in_processes(die_early, tmp_path, feature_examples(100), replace(PLAIN, epochs=50, learning_rate=0.02))
    assert codes == [1, 9]
    told = (tmp_path / "told.txt").read_text()
    assert told.startswith("train: another process of the run ended")
    assert "--resume" in told


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (text_examples, TEXTS, "`model` must not be linear for several processes"),
        (
            text_examples,
            replace(TEXTS, model="wide"),
            "`model` wide must have `label_shards` 2 in several processes: its weights are updated",
        ),
        (
            title_examples,
            TrainSettings(model="tree", threads=1),
            "`model` must not be tree for several processes; one takes all",
        ),
        (text_examples, replace(TEXTS, label_shards=3), "`label_shards` must be the number of processes, 2; got 3"),
        (text_examples, replace(TEXTS, model="bag", label_shards=2), "needs the scores of all labels at once; wide does not"),
        (feature_examples, replace(PLAIN, label_shards=2), "must be left out: the body mlp on dense inputs"),
        (feature_examples, replace(PLAIN, loss="two_way"), "`loss` must judge each row by itself"),
        (feature_examples, replace(PLAIN, batch_size=15), "`batch_size` must be a multiple of the number of processes, 2"),
    ],
)
def test_what_cannot_be_divided_is_said_on_every_process(make, settings, words, tmp_path):
    assert in_processes(tell_error, tmp_path, make(40), settings) == [0, 0]
    for rank in (0, 1):
        assert words in (tmp_path / f"rank{rank}.txt").read_text()


@given(rows=st.integers(1, 60), local=st.integers(1, 6), count=st.integers(1, 4))
def test_every_row_is_taken_once_in_batches_that_fit_together(rows, local, count):
    size = local * count
    taken = [Processes(rank=rank, count=count).own_places(rows, size) for rank in range(count)]
    places = [np.arange(rows)[own] for own, _ in taken]
    batches = {-(-len(own) // local) for own in places}
    assert batches == {-(-rows // size)}, "all processes take as many batches"
    seen = []
    for own, (_, weights) in zip(places, taken, strict=True):
        kept = np.ones(len(own), bool) if weights is None else weights.numpy() > 0
        seen.append(own[kept])
        for batch, first in enumerate(range(0, len(own), local)):
            assert set(own[first : first + local] // size) == {batch}, "a batch's rows are in the same batch everywhere"
    assert sorted(np.concatenate(seen).tolist()) == list(range(rows))


def test_alone_nothing_is_joined():
    with several_processes() as processes:
        assert (processes.rank, processes.count, processes.first) == (0, 1, True)
    assert processes.from_first(b"x") == b"x"
    with pytest.raises(ProcessesError, match="multiple"):
        Processes(count=2).own_size(3)


def torchrun(*arguments, cwd):
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    return subprocess.Popen(
        [*line, "manyhot.cli", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=cwd, text=True,
    )  # fmt: skip


def children_of(parent):
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = status.read_text().splitlines()
        except OSError:
            continue
        if f"PPid:\t{parent}" in lines:
            found.append(int(status.parent.name))
    return sorted(found)


ROW_FLAGS = (
    "--device",
    "cpu",
    "--epochs",
    "60",
    "--patience",
    "0",
    "--learning-rate",
    "0.001",
    "--batch-size",
    "8",
    "--hidden",
    "8",
)
LABEL_FLAGS = (
    "--device",
    "cpu",
    "--label-shards",
    "2",
    "--epochs",
    "6",
    "--batch-size",
    "16",
    "--hidden",
    "8",
    "--checkpoint-seconds",
    "0.1",
)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize(
    ("make", "flags"), [(feature_examples, ROW_FLAGS), (title_examples, LABEL_FLAGS)], ids=["rows divided", "labels divided"]
)
def test_torchrun_trains_a_killed_process_ends_the_run_and_it_is_resumed(make, flags, tmp_path):
    """The command as it is given: one process prints, one that is killed ends the others, and one process resumes the run."""
    write_rows(tmp_path / "rows.jsonl", make(120))
    process = torchrun("train", "rows.jsonl", "--run", "run", *flags, cwd=tmp_path)
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("epoch 3/"):
            break
    assert sum(re.match(r"120 rows, \d+ labels", line) is not None for line in said) == 1, "one process prints"
    ranks = [pid for pid in children_of(process.pid) if b"manyhot.cli" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(ranks) == 2, said[-5:]
    os.kill(ranks[1], signal.SIGKILL)
    begun = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert time.monotonic() - begun < 45
    assert "Signal 9" in err or "another process of the run ended" in err
    assert main(["train", "--resume", str(tmp_path / "run"), "--quiet"]) == 0
    load_model(tmp_path / "run")


def test_label_shards_without_as_many_processes_are_refused_by_the_command(tmp_path, capsys):
    write_rows(tmp_path / "rows.jsonl", title_examples(40))
    assert main(["train", str(tmp_path / "rows.jsonl"), "--run", str(tmp_path / "run"), "--label-shards", "2"]) == 1
    assert "torchrun --nproc-per-node 2" in " ".join(capsys.readouterr().err.split())
