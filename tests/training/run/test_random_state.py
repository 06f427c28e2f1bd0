"""Trainings in threads: each gives the model it gives alone, and the caller's random state is as before."""

import threading
from dataclasses import replace

import torch

from manyhot import TrainSettings, train
from training.problems import feature_examples, same_weights

SETTINGS = TrainSettings(epochs=3, hidden=16, dropout=0.5, learning_rate=0.02, batch_size=16, threads=1)


def test_trainings_in_threads_give_the_models_that_they_give_alone():
    examples, alone, found = feature_examples(120), {}, {}
    for seed in range(3):
        alone[seed] = train(examples, replace(SETTINGS, seed=seed))
    torch.manual_seed(7)
    before = torch.get_rng_state()

    def fit(seed):
        found[seed] = train(examples, replace(SETTINGS, seed=seed))

    threads = [threading.Thread(target=fit, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same_weights(found[seed], alone[seed]) for seed in range(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_two_runs_with_one_seed_write_the_same_bytes(tmp_path):
    examples = feature_examples(60)
    for name in ("one", "two"):
        train(examples, SETTINGS).save(tmp_path / name)
    files = [sorted((path.name, path.read_bytes()) for path in (tmp_path / name).iterdir()) for name in ("one", "two")]
    assert [name for name, _ in files[0]] == [name for name, _ in files[1]]
    weights = [content for name, content in files[0] if name.startswith("weights-")]
    assert weights == [content for name, content in files[1] if name.startswith("weights-")]
