"""Very many labels: the table of held-out scores stays within bounds."""

import resource
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from manyhot import TrainSettings, train
from manyhot.training.rows import phases
from training.problems import feature_examples, text_examples

CASES = {
    "linear": (text_examples, TrainSettings(epochs=2)),
    "bag": (text_examples, TrainSettings(model="bag", epochs=2, hidden=8)),
    "mlp": (feature_examples, TrainSettings(epochs=2, hidden=8, learning_rate=0.02)),
}


@pytest.mark.parametrize("kind", list(CASES))
def test_rows_to_tune_on_are_drawn_where_all_would_be_too_large_a_table(kind, monkeypatch):
    make, settings = CASES[kind]
    examples, seen, told = make(300), [], []
    monkeypatch.setattr(phases, "LARGEST_TABLE", 20 * examples.num_labels)
    model = train(examples, settings, progress=told.append, held_out=lambda _, tuning: seen.append(tuning))
    tuning = seen[0]
    assert 15 <= len(tuning.labels) <= 20
    assert tuple(tuning.logits.shape) == (len(tuning.labels), examples.num_labels)
    assert torch.equal(tuning.labels.dense(), examples.labels[tuning.rows].dense())
    assert isinstance(model.rule.threshold, float), "one threshold for all labels"
    assert any("too large a table" in event.message for event in told)


def test_scores_by_fold_are_in_the_order_of_the_rows():
    examples, seen = text_examples(120), []
    train(examples, replace(CASES["linear"][1], folds=3), held_out=lambda _, tuning: seen.append(tuning))
    assert seen[0].rows.tolist() == list(range(120))
    assert seen[0].fold.bincount().tolist() == [40, 40, 40]
    assert bool(torch.isfinite(seen[0].logits).all())


MANY = """
import resource
import numpy as np
from manyhot import Examples, SparseLabels, TrainSettings, train
draw, labels = np.random.default_rng(0), 100_000
lists = [sorted(set(draw.integers(0, labels, 5).tolist())) for _ in range(2000)]
texts = [" ".join(f"w{k % 100}" for k in own) for own in lists]
names = tuple(f"l{k}" for k in range(labels))
train(Examples(SparseLabels.from_lists(lists, num_labels=labels), names, texts=texts), TrainSettings(epochs=1, batch_size=512))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_two_thousand_rows_with_a_hundred_thousand_labels_take_a_few_gigabytes():
    limit = 8 << 30

    def bounded():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, preexec_fn=bounded)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 3000
