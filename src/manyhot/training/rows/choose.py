"""What the data decides where the settings do not: body, weights, epochs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.inputs.prepare import Inputs
from manyhot.training.rows.settings import AUTO, TrainSettings

# A linear table of features times labels above this many numbers is fitted slower than a hidden layer, and is larger.
LARGEST_LINEAR = 50_000_000
# In texts a positive weighs as much as all other labels of its row, up to this. With a tuned rule that gains 0.1 to 0.4 points
# of micro-F1 on three text sets and ranks better; on sparse features it loses as much, so that they go without.
MOST_WEIGHT = 100
# About so many rows are visited by plain steps, over and again where there are fewer: rare labels need the repetition, and
# short texts with many labels are learned by heart by more of it. Read off 5, 10 and 15 passes on one split of the training
# rows of reuters21578 and of cooking_stackexchange; the value between them was not searched for.
LINEAR_VISITS = 75_000
# The same for bags; 8 passes over eurlex57k were tried.
BAG_VISITS = 350_000
# The same for other bodies with hidden layers, which stop earlier by the rows held out; set for time, its effect is not
# measured.
HIDDEN_VISITS = 500_000
# A linear step over fewer scores than this is over before a second thread has woken up.
SMALL_STEP = 1 << 17
# Share of hidden units dropped; a bag without an activation is already held back by its few visits.
USUAL_DROPOUT, BAG_DROPOUT = 0.3, 0.0
FITTING = {"texts": ("linear", "bag", "encoder"), "features": ("linear", "mlp"), "images": ("conv",)}


def body_for(settings: TrainSettings, examples: Examples, inputs: Inputs) -> str:
    """The body's name."""
    fitting = FITTING[examples.kind]
    if settings.model == "auto":
        sparse = examples.kind == "texts" or not isinstance(examples.features, np.ndarray)
        small = inputs.width * examples.num_labels <= LARGEST_LINEAR
        return fitting[0] if len(fitting) == 1 or (sparse and small) else fitting[1]
    if settings.model not in fitting:
        raise ValueError(f"train: `model` must be {' or '.join(fitting)} for {examples.kind}; got {settings.model!r}.")
    return settings.model


def resolved(settings: TrainSettings, examples: Examples) -> TrainSettings:
    """The settings with what can be said before the inputs are prepared filled in."""
    sparse = examples.kind == "texts" or (examples.kind == "features" and not isinstance(examples.features, np.ndarray))
    if settings.model == "encoder":
        return settings
    if settings.pos_weight is None:
        settings = replace(settings, pos_weight=_weight_for(settings, examples))
    if not sparse:
        return settings
    small = settings.batch_size * examples.num_labels <= SMALL_STEP
    if settings.threads == 0 and settings.model in ("auto", "linear") and small:
        settings = replace(settings, threads=1)
    return settings


def _weight_for(settings: TrainSettings, examples: Examples) -> float | str | None:
    """The weight of the positives where none is given: a cut that follows training stands in for a rule that is not tuned."""
    if settings.tune == "none":
        return AUTO if settings.loss == "zlpr" and not settings.learn_threshold else None
    weighed = examples.kind == "texts" and settings.loss in ("zlpr", "tlpr")
    return float(min(examples.num_labels, MOST_WEIGHT)) if weighed else None


def num_epochs(body: str, sparse: bool, num_rows: int) -> int:
    """Passes over the data: few for plain steps on sparse rows, fewer where there are many rows."""
    if body == "bag":
        return min(max(round(BAG_VISITS / max(num_rows, 1)), 5), 20)
    if body != "linear" or not sparse:
        return min(max(round(HIDDEN_VISITS / max(num_rows, 1)), 10), 40)
    return min(max(round(LINEAR_VISITS / max(num_rows, 1)), 3), 10)


def dropout_for(settings: TrainSettings, body: str) -> float:
    """The share of hidden units that are dropped."""
    usual = BAG_DROPOUT if body == "bag" else USUAL_DROPOUT
    return usual if settings.dropout is None else settings.dropout


def log_odds(labels: SparseLabels, unknown: SparseLabels | None) -> Tensor:
    """``log(p / (1 - p))`` of each label's share of the rows that know it, half a row added to both sides."""
    positive = torch.bincount(labels.indices, minlength=labels.num_labels)
    known = torch.full_like(positive, len(labels))
    if unknown is not None:
        known = known - torch.bincount(unknown.indices, minlength=labels.num_labels)
    return ((positive + 0.5) / (known - positive + 0.5)).log()
