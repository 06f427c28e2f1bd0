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
from training.problems import feature_examples, same_weights
from training.run.process_runs import in_processes, killed_in_processes, train_until_epoch

KILLS = int(os.environ.get("MANYHOT_KILLS", "2"))
# Batches that one, two and three processes can divide; dropout draws differ from number to number, so there is none there.
SETTINGS = TrainSettings(
    epochs=30, batch_size=12, hidden=16, dropout=0.0, patience=0, threads=1, learning_rate=0.01, checkpoint_seconds=0.0
)
METRICS = ("micro-F1", "macro-F1", "AvgPrec", "RankLoss")

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="signals"), pytest.mark.slow]


def killed(run, examples, settings, seconds, draw):
    """Start two processes and kill one of them; whether the run had been finished before."""
    after, victim = seconds * draw.random(), draw.randrange(2)
    codes = killed_in_processes(train_until_epoch, run, examples, settings, -1, victim=victim, after=after)
    assert codes[victim] in (0, -9)
    return codes == [0, 0]


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(tmp_path):
    examples, settings = feature_examples(120), replace(SETTINGS, dropout=0.3)
    began = time.monotonic()
    assert in_processes(train_until_epoch, tmp_path / "whole", examples, settings, -1) == [0, 0]
    seconds, draw = time.monotonic() - began, random.Random(1)
    for _ in range(KILLS):
        killed(tmp_path / "broken", examples, settings, seconds, draw)
    assert in_processes(train_until_epoch, tmp_path / "broken", examples, settings, -1) == [0, 0]
    assert same_weights(load_model(tmp_path / "broken"), load_model(tmp_path / "whole"))


def test_a_killed_run_is_resumed_by_another_number_of_processes_to_the_same_metrics(tmp_path):
    examples = feature_examples(120)
    began = time.monotonic()
    assert in_processes(train_until_epoch, tmp_path / "whole", examples, SETTINGS, -1) == [0, 0]
    seconds, draw = time.monotonic() - began, random.Random(2)
    whole = load_model(tmp_path / "whole")
    wanted = evaluate(whole, examples, METRICS)
    while killed(tmp_path / "broken", examples, SETTINGS, seconds, draw):
        shutil.rmtree(tmp_path / "broken")
    for count in (1, 3):
        run = shutil.copytree(tmp_path / "broken", tmp_path / f"by{count}")
        assert in_processes(train_until_epoch, run, examples, SETTINGS, -1, count=count) == [0] * count
        model = load_model(run)
        assert evaluate(model, examples, METRICS) == pytest.approx(wanted, abs=1e-6)
        for name, each in whole.body.state_dict().items():
            torch.testing.assert_close(model.body.state_dict()[name], each, rtol=1e-3, atol=1e-4)
