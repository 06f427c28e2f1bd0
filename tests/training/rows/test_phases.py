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
    assert any("too many scores" in event.message for event in told)


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


def test_a_model_of_several_fits_has_the_mean_of_their_logits_and_tunes_on_rows_each_did_not_see(monkeypatch):
    examples, seen, fits = feature_examples(), [], []
    run = phases.RowSession.fit
    monkeypatch.setattr(phases.RowSession, "fit", lambda *given, **more: fits.append(run(*given, **more)) or fits[-1])
    settings = replace(CASES["mlp"][1], members=4, validation=0.25)
    model = train(examples, settings, held_out=lambda _, tuning: seen.append(tuning))
    assert len(fits) == 4
    inputs = torch.from_numpy(model.inputs.rows(examples))
    with torch.inference_mode():
        wanted = torch.stack([fit.body.eval()(inputs) for fit in fits]).mean(dim=0)
    torch.testing.assert_close(model.logits(examples), wanted, rtol=1e-5, atol=1e-5)
    assert sorted(seen[0].rows.tolist()) == list(range(len(examples)))
    for place, fit in enumerate(fits):
        apart = seen[0].rows[seen[0].fold == place]
        torch.testing.assert_close(seen[0].logits[seen[0].fold == place], fit.body(inputs[apart]).detach())
        assert len(fit.rows) == len(examples) - len(apart)


def test_many_rows_are_fitted_once():
    usual = phases.get_body("mlp").members
    assert [usual.on(rows, held_out=0.1) for rows in (20_000, 20_001)] == [5, 1]
    assert [usual.on(100, held_out=share) for share in (0.0, 0.2, 0.35, 0.6)] == [5, 5, 2, 1]


def test_more_fits_than_there_are_parts_of_the_rows_to_leave_out_are_refused():
    with pytest.raises(ValueError, match="3 fits cannot each hold out a different"):
        train(feature_examples(), replace(CASES["mlp"][1], members=3, validation=0.4))


def test_a_step_at_which_the_loss_diverges_is_passed_over(monkeypatch):
    monkeypatch.setattr(phases, "STEPS", (1e30, 1.0))
    told = []
    settings = TrainSettings(epochs=2, loss="squared_hinge", batch_size=64, threads=1)
    train(text_examples(120), settings, progress=lambda event: told.append(event.message))
    assert any("too large" in line for line in told)
