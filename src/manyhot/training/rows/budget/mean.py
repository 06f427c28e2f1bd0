"""The mean of candidates: one body whose scores are the mean of those of several models, each on the scale of log odds."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch

from manyhot.decisions.calibrate import fit_calibration
from manyhot.decisions.rule import DecisionRule
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.rules.fitting import Tuning, fit_rule

Scored = tuple[TrainedModel, Tuning]


def can_be_averaged(trained: Sequence[Scored]) -> bool:
    """Whether models have bodies of one kind that can be joined, the same inputs, and scores of the same rows."""
    (first, tuning), *others = trained
    if not others or get_body(first.shape["body"]).join is None or len(tuning.labels.indices) == 0:
        return False
    return all(
        "strategy" not in model.shape
        and model.shape["body"] == first.shape["body"]
        and model.inputs.width == first.inputs.width
        and _same_rows(own, tuning)
        for model, own in trained
    )


def mean_model(trained: Sequence[Scored], labels: SparseLabels) -> Scored:
    """``(model, scores its rule is tuned on)`` of the mean.

    Losses give scores on different scales, so each model's scores are first mapped to log odds by Platt scaling on held-out
    rows. The link is then that of log odds, whatever the losses were.

    Args:
        trained: models with their scores of held-out rows; see ``can_be_averaged``.
        labels: hard ones, of all training rows.
    """
    bodies, scores = [], []
    for model, tuning in trained:
        platt = fit_calibration(tuning.all_scores, tuning.labels, kind="platt", where=tuning.where)
        slope, intercept = float(platt.slope), float(platt.intercept)
        body = copy.deepcopy(model.body)
        with torch.no_grad():
            body.get_parameter("head.weight").mul_(slope)
            body.get_parameter("head.bias").mul_(slope).add_(intercept)
        bodies.append(body)
        scores.append(slope * tuning.all_scores + intercept)
    first, tuning = trained[0]
    entry = get_body(first.shape["body"])
    assert entry.join is not None
    joined = entry.join(bodies)
    shape = {**first.shape, "hidden": joined.get_submodule("head").in_features} if entry.hidden else dict(first.shape)
    tuning = tuning._replace(logits=torch.stack(scores).mean(dim=0))
    rule, calibration, found = fit_rule(first.settings, DecisionRule(min_labels=first.settings.min_labels), tuning, labels)
    model = TrainedModel(
        joined,
        shape,
        first.inputs,
        first.label_names,
        first.settings,
        link="hard",
        rule=rule,
        calibration=calibration,
        about={**first.about, "tuned": found},
        reading=first.reading,
        label_counts=first.label_counts,
    )
    return model, tuning


def _same_rows(one: Tuning, other: Tuning) -> bool:
    if one.rows is None or other.rows is None:
        return one.rows is other.rows
    return torch.equal(one.rows, other.rows)
