"""Small problems that every body can learn, and the same model twice."""

import json

import numpy as np
import torch
from scipy import sparse

from manyhot.data.examples import Examples
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.settings import TrainSettings

WORDS = ("salt", "bread", "water", "knife", "oven", "apple")


def text_examples(rows=300, *, seed=0):
    """A label is there when its word is, among words that mean nothing."""
    draw = np.random.default_rng(seed)
    truth = draw.random((rows, len(WORDS))) < 0.25
    texts = [
        " ".join([w for w, there in zip(WORDS, row, strict=True) if there] + [f"noise{n}" for n in draw.integers(0, 40, 4)])
        for row in truth
    ]
    return Examples(SparseLabels.from_dense(torch.from_numpy(truth)), WORDS, texts=texts)


def title_examples(rows=300, *, seed=0, num_labels=40, as_sparse=False):
    """Many labels, each with a word of its own and one that it shares with its neighbours."""
    draw = np.random.default_rng(seed)
    lists = [sorted(draw.choice(num_labels, size=draw.integers(1, 4), replace=False).tolist()) for _ in range(rows)]
    labels = SparseLabels.from_lists(lists, num_labels=num_labels)
    names = tuple(f"label{number}" for number in range(num_labels))
    if as_sparse:
        features = np.zeros((rows, num_labels + num_labels // 4 + 1), dtype=np.float32)
        for row, own in enumerate(lists):
            features[row, own] = draw.uniform(0.5, 2, len(own))
            features[row, [num_labels + label // 4 for label in own]] = 1
        return Examples(labels, names, features=sparse.csr_matrix(features))
    texts = [
        " ".join([f"word{label} near{label // 4}" for label in own] + [f"noise{n}" for n in draw.integers(0, 20, 2)])
        for own in lists
    ]
    return Examples(labels, names, texts=texts)


def feature_examples(rows=300, *, seed=0, as_sparse=False):
    """Labels are half-spaces of the features."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(rows, 8)).astype(np.float32)
    planes = np.random.default_rng(99).normal(size=(8, 4))
    labels = SparseLabels.from_dense(torch.from_numpy(features @ planes > 1))
    if as_sparse:
        features = sparse.csr_matrix(np.where(np.abs(features) > 0.5, features, 0))
    return Examples(labels, tuple("abcd"), features=features)


def image_examples(rows=200, *, seed=0):
    """A label is there when its channel has a bright pixel."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(rows, 2, generator=generator) < 0.4
    images = 0.1 * torch.rand(rows, 2, 8, 8, generator=generator)
    images[:, :, 3, 4] += truth.float()
    return Examples(SparseLabels.from_dense(truth), ("left", "right"), images=images)


def same_weights(one, two):
    """Whether two models have bit by bit the same parameters and rule."""
    mine, other = one.body.state_dict(), two.body.state_dict()
    return one.rule == two.rule and mine.keys() == other.keys() and all(torch.equal(mine[k], other[k]) for k in mine)


def write_rows(path, examples):
    """Examples as a file for the command."""
    inputs = [{"text": text} for text in examples.texts or []] or [
        {f"x{place}": float(value) for place, value in enumerate(row)} for row in examples.features
    ]
    rows = zip(inputs, examples.label_sets(), strict=True)
    path.write_text("".join(json.dumps({**own, "labels": labels}) + "\n" for own, labels in rows))


EVERY_STEP = {"checkpoint_seconds": 0.0, "threads": 1}
RUNS = {
    "mlp": (feature_examples, TrainSettings(epochs=40, batch_size=16, hidden=16, patience=0, **EVERY_STEP)),
    "linear": (text_examples, TrainSettings(epochs=6, batch_size=8, **EVERY_STEP)),
    "bag": (text_examples, TrainSettings(model="bag", epochs=6, batch_size=8, hidden=8, dropout=0.1, **EVERY_STEP)),
}
