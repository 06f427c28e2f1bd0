"""The range test: where the loss falls it finds a rate, where it cannot tell it takes the usual one."""

from dataclasses import replace

import numpy as np
import torch

from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.fit import USUAL_RATE
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import feature_examples

SETTINGS = TrainSettings(model="mlp", epochs=1, hidden=16, threads=1)


def test_a_rate_is_found_where_the_loss_falls():
    rate = train(feature_examples(), replace(SETTINGS, batch_size=64)).about["learning_rate"]
    assert rate != USUAL_RATE
    assert 1e-4 < rate < 0.1


def test_noise_is_not_taken_for_a_lowest_loss():
    examples = feature_examples(600)
    coins = np.random.default_rng(1).random((600, 4)) < 0.3
    noise = replace(examples, labels=SparseLabels.from_dense(torch.from_numpy(coins)))
    found = [train(noise, replace(SETTINGS, batch_size=4, members=1, seed=seed)).about["learning_rate"] for seed in range(4)]
    assert min(found) >= USUAL_RATE / 10
