"""Cross-fitted scores: each row is scored by a model that was trained without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.labels.split import stratified_folds
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train


def cross_fitted_logits(
    examples: Examples,
    settings: TrainSettings | None = None,
    *,
    folds: int = 5,
    seed: int = 0,
    on_fold: Callable[[int], None] = lambda _: None,
    on_model: Callable[[Tensor, TrainedModel], None] = lambda _rows, _model: None,
) -> Tensor:
    """Logits ``[R, L]``: each row is scored by a model that was trained on the other folds.

    Args:
        examples: rows with their labels.
        settings: the training settings; the rule is not tuned, because only scores are used.
        folds: the number of folds.
        seed: the seed of the folds.
        on_fold: called with the number of each fold before it is trained.
        on_model: called with the rows ``[N]`` that a model has scored, and the model.

    Example:
        >>> from manyhot import SparseLabels
        >>> labels = SparseLabels.from_lists([[0], [1]] * 10, num_labels=2)
        >>> examples = Examples(labels, ("cat", "dog"), texts=["a cat sat", "a dog ran"] * 10)
        >>> cross_fitted_logits(examples, folds=2).argmax(dim=1)[:4].tolist()
        [0, 1, 0, 1]
    """
    chosen = replace(settings or TrainSettings(), tune="none", calibrate="none", min_labels=0)
    logits = torch.zeros(len(examples), examples.num_labels)
    every = torch.arange(len(examples))
    for number, fold in enumerate(stratified_folds(examples.labels, num_folds=folds, seed=seed)):
        on_fold(number)
        rest = every[~torch.isin(every, fold)]
        model = train(examples[rest.numpy()], chosen)
        logits[fold] = model.logits(examples[fold.numpy()])
        on_model(fold, model)
    return logits
