"""The value of a candidate: its metric on held-out rows."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.decisions.rule import decide
from manyhot.labels.sparse import SparseLabels
from manyhot.labels.split import stratified_folds
from manyhot.metrics.info import DECISIONS, PROBABILITIES
from manyhot.metrics.names import parse_metric
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.rules.fitting import Tuning, fit_rule
from manyhot.training.rows.steering import AUTO
from manyhot.training.rows.targets.objective import natural_rule


def value_of(model: TrainedModel, tuning: Tuning | None, labels: SparseLabels) -> float:
    """The metric of the model's settings on held-out rows.

    Each row is decided by a rule that was tuned without it.

    Args:
        model: as trained.
        tuning: its scores of held-out rows.
        labels: hard ones, of all training rows.
    """
    settings = model.settings
    if tuning is None or not len(tuning.labels):
        raise ValueError(
            "train: `budget` must have held-out rows to compare candidates on; there are none. Give validation rows, or leave"
            " out `budget`."
        )
    from manyhot.metrics.sums import Sums

    names = ("micro-F1", "macro-F1") if settings.metric == AUTO else (settings.metric,)
    info = parse_metric(names[0]).info
    scores, link = tuning.all_scores, None
    if info.needs in (DECISIONS, PROBABILITIES):
        scores, link = _cross_fitted(model, tuning, labels, probabilities=info.needs == PROBABILITIES), "identity"
    propensities = model.propensities() if names[0].startswith("PSP@") else None
    measured = Sums(names, num_labels=labels.num_labels, link=link, propensities=propensities)
    measured.update(scores, tuning.labels, tuning.where)
    return sum(float(each) for each in measured.compute().values()) / len(names)


def _cross_fitted(model: TrainedModel, tuning: Tuning, labels: SparseLabels, *, probabilities: bool) -> Tensor:
    """``[R, L]``: 1 for predicted labels and -1 for others, or probabilities; rule and calibration are fitted on other rows."""
    settings, scores = model.settings, tuning.all_scores
    natural = natural_rule(settings, None, cardinality=labels.indices.numel() / max(len(labels), 1))
    others = tuning.others(labels)
    count = len(tuning.labels)
    parts = stratified_folds(tuning.labels, num_folds=5, seed=settings.seed) if count >= 20 else [torch.arange(count)]
    found = torch.empty_like(scores)
    for held in parts:
        kept = torch.full((count,), count < 20)
        kept |= ~torch.isin(torch.arange(count), held)
        where = None if tuning.where is None else tuning.where[kept]
        fold = None if tuning.fold is None else tuning.fold[kept]
        own = Tuning(scores[kept], tuning.labels[kept], where, None, fold)
        rule, calibration, _ = fit_rule(settings, natural, own, others)
        if not probabilities:
            found[held] = 2.0 * decide(scores[held], rule) - 1
        else:
            found[held] = model.to_probabilities(scores[held]) if calibration is None else calibration(scores[held])
    return found
