"""Checks of training examples: rows, labels, weights and finite features."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.data.mapped.rows import MappedMatrix
from manyhot.metrics.names import read_metric
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO


def check_examples(examples: Examples, sample_weight: Tensor | None) -> None:
    """Check that there are rows, labels with different names, and one weight for each row."""
    if not isinstance(examples, Examples):
        raise TypeError(
            f"train: `train_examples` must be Examples; got {type(examples).__name__}. Read a file with read_examples."
        )
    if not len(examples) or not examples.num_labels:
        raise ValueError(f"train: `train_examples` must have rows and labels; got {len(examples)} and {examples.num_labels}.")
    if sample_weight is not None and not isinstance(sample_weight, Tensor):
        raise TypeError(f"train: `sample_weight` must be a tensor, one value per row; got {type(sample_weight).__name__}.")
    if sample_weight is not None and tuple(sample_weight.shape) != (len(examples),):
        raise ValueError(
            f"train: `sample_weight` must have one value per row, {len(examples)}; got {list(sample_weight.shape)}."
        )
    if sample_weight is not None and not bool((torch.isfinite(sample_weight) & (sample_weight >= 0)).all()):
        raise ValueError("train: `sample_weight` must be finite numbers >= 0. A weight of 0 leaves a row out.")
    check_finite("train", "train_examples", examples)
    if len(set(examples.label_names)) < examples.num_labels:
        twice = next(name for name, count in Counter(examples.label_names).items() if count > 1)
        raise ValueError(f"train: `train_examples` must have label names that differ; {twice!r} occurs twice.")


def check_settings(settings: TrainSettings, num_labels: int) -> None:
    """Check the type of the settings, and that k of the metric does not exceed the number of labels."""
    if not isinstance(settings, TrainSettings):
        raise TypeError(f"train: `settings` must be TrainSettings; got {type(settings).__name__}.")
    metric = settings.metric
    k = 0 if metric == AUTO else read_metric("train", "metric", metric).k
    if k > num_labels:
        raise ValueError(f"train: k in `metric` must not exceed the number of labels, {num_labels}; got {metric!r}.")


def check_finite(who: str, name: str, examples: Examples) -> None:
    """Check that features and images are finite; NaN among features is a missing value."""
    if isinstance(examples.features, np.ndarray):
        wrong = np.isinf(examples.features).any(axis=1)
    elif isinstance(examples.features, MappedMatrix):
        return  # checked when they were packed
    elif examples.features is not None:
        wrong = np.zeros(len(examples), dtype=bool)
        bad = np.flatnonzero(np.isinf(examples.features.data))
        wrong[np.searchsorted(examples.features.indptr, bad, side="right") - 1] = True
    elif examples.images is not None and examples.images.is_floating_point():
        wrong = ~torch.isfinite(examples.images).flatten(1).all(dim=1).numpy()
    else:
        return
    if wrong.any():
        raise ValueError(
            f"{who}: `{name}` must have finite {examples.kind}; row {int(wrong.argmax())} does not. Correct the row"
            " or leave it out; a missing feature may be NaN."
        )
