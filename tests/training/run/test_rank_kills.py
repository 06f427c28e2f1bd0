"""Runs of several processes of which one is killed at a random moment, again and again: they are resumed to the same end.

Two kills, or as many as the environment's MANYHOT_KILLS says.
"""

import os
import random
import shutil
import time
from dataclasses import replace

import pytest
import torch

from manyhot import evaluate, load_model
from manyhot.training.rows.settings import TrainSettings
from training.problems import feature_examples, same_weights, title_examples
from training.run.process_runs import in_processes, killed_in_processes, train_until_epoch

KILLS = int(os.environ.get("MANYHOT_KILLS", "2"))
# Batches that one, two and three processes can divide; dropout draws differ from number to number, so there is none there.
# On the CPU: a machine may have fewer GPUs than a test has processes.
SETTINGS = TrainSettings(
    epochs=30,
    batch_size=12,
    hidden=16,
    dropout=0.0,
    patience=0,
    threads=1,
    learning_rate=0.01,
    checkpoint_seconds=0.0,
    device="cpu",
)
# Every process has all rows, so that dropout is the same for any number of them.
SHARDS = replace(SETTINGS, model="wide", epochs=4, batch_size=32, dropout=0.1, learning_rate=0.1, label_shards=2, patience=6)
RUNS = {
    "rows divided": (lambda: feature_examples(120), SETTINGS),
    "labels divided": (lambda: title_examples(120, num_labels=21), SHARDS),
}
METRICS = ("micro-F1", "macro-F1", "AvgPrec", "RankLoss")

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="signals"), pytest.mark.slow]


def with_count(settings, count):
    """The settings of a run that ``count`` processes go on with."""
    return replace(settings, label_shards=count) if settings.label_shards else settings


def killed(run, examples, settings, seconds, draw, count=2):
    """Start some processes and kill one of them; whether it was. A run that was finished before is started anew."""
    after, victim = seconds * draw.random(), draw.randrange(count)
    own = with_count(settings, count)
    codes = killed_in_processes(train_until_epoch, run, examples, own, -1, count=count, victim=victim, after=after)
    assert codes[victim] in (0, -9)
    if codes == [0] * count:
        shutil.rmtree(run)
    return codes[victim] == -9


@pytest.mark.parametrize("kind", list(RUNS))
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(kind, tmp_path):
    make, settings = RUNS[kind]
    examples, settings = make(), replace(settings, dropout=0.3)
    began = time.monotonic()
    assert in_processes(train_until_epoch, tmp_path / "whole", examples, settings, -1) == [0, 0]
    seconds, draw = time.monotonic() - began, random.Random(1)
    kills = 0
    while kills < KILLS:
        kills += killed(tmp_path / "broken", examples, settings, seconds, draw)
    assert in_processes(train_until_epoch, tmp_path / "broken", examples, settings, -1) == [0, 0]
    assert same_weights(load_model(tmp_path / "broken"), load_model(tmp_path / "whole"))


@pytest.mark.parametrize("kind", list(RUNS))
def test_a_run_that_is_killed_again_and_again_is_resumed_by_other_numbers_of_processes_to_the_same_metrics(kind, tmp_path):
    """Before each kill the run goes on with one, two or three processes."""
    make, settings = RUNS[kind]
    examples = make()
    began = time.monotonic()
    assert in_processes(train_until_epoch, tmp_path / "whole", examples, settings, -1) == [0, 0]
    seconds, draw = time.monotonic() - began, random.Random(2)
    whole = load_model(tmp_path / "whole")
    wanted = evaluate(whole, examples, METRICS)
    kills = 0
    while kills < KILLS:
        kills += killed(tmp_path / "broken", examples, settings, seconds, draw, count=draw.choice((1, 2, 3)))
    for count in (1, 3):
        run = shutil.copytree(tmp_path / "broken", tmp_path / f"by{count}")
        own = with_count(settings, count)
        assert in_processes(train_until_epoch, run, examples, own, -1, count=count) == [0] * count
        model = load_model(run)
        assert evaluate(model, examples, METRICS) == pytest.approx(wanted, abs=1e-6)
        for name, each in whole.body.state_dict().items():
            torch.testing.assert_close(model.body.state_dict()[name], each, rtol=1e-3, atol=1e-4)
