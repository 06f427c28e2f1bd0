"""Averages fits with several losses. Each loss makes different errors, so that the mean is better than each of them.

Losses give scores on different scales. Before they are averaged, the scores of each loss are mapped to log odds, by Platt
scaling on held-out rows. To try another loss, add its name to ``MEAN`` in ``steering``.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from manyhot.data.examples import Examples
from manyhot.decisions.calibrate import fit_calibration
from manyhot.labels.powerset import label_scores
from manyhot.training.rows.bodies.info import CROSSED, HELD_OUT, BodyInfo
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.choose import ROWS_A_FOLD, folds_for
from manyhot.training.rows.kept_losses import kept_losses, row_values
from manyhot.training.rows.rules.fitting import LARGEST_TABLE, Tuning
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO, HINGE, NONE, steering_of
from manyhot.training.rows.strategies import (
    MEAN_READER,
    POWERSET,
    MeanReader,
    ReadBody,
    SetReader,
    get_strategy,
    without_reader,
)
from manyhot.training.run.processes import Processes

if TYPE_CHECKING:
    from manyhot.training.rows.fit import TrainingRows
    from manyhot.training.rows.phases import Fitted, RowSession

SETS = "powerset"
# Multiples of the learning rate that each loss of a linear body on sparse features tries, for as long as the smaller one is
# better. On training rows of corel5k BCE has a RankLoss of 10.2 with a tenth and of 13.0 with a third.
SMALLER_STEPS: tuple[float, ...] = (1.0, 1 / 3, 1 / 10, 1 / 30, 1 / 100)
# Multiples of the learning rate that label powerset tries, if the losses of the mean are chosen on held-out rows. The range
# test may give it a rate that is ten times too large; early stopping then keeps the first epoch.
SETS_STEPS = (1.0, 1 / 3, 1 / 10)
# Label powerset takes part if there are at least this many rows per label set.
ROWS_A_SET = 2
LEAST_BATCH = 16
MEAN_VALIDATION = 0.2
# Settings of a single loss, which the mean of several losses does not support.
OF_ONE_LOSS = (
    *("loss", "loss_option", "strategy", "pos_weight", "propensity_weights", "smoothing", "flip", "mixup", "rdrop"),
    *("learn_threshold", "row_threshold", "teacher"),
)
# Settings that apply to every loss of ``mean_of``; given without ``mean_of``, they imply one loss.
OF_EACH_LOSS = ("learning_rate", "members")


class MeanPlan(NamedTuple):
    """How a mean is fitted.

    ``hinge_threads`` solve the labels of the squared hinge one by one, in ``passes`` (0: gradient steps). ``folds``: as given,
    None for the default of each loss. ``chooses``: whether losses may be left out, and learning rates tried, by held-out rows.
    """

    hinge_threads: int
    passes: int
    folds: int | None
    chooses: bool


def with_mean_of(
    settings: TrainSettings, given: TrainSettings, body: BodyInfo, examples: Examples, *, sparse: bool
) -> TrainSettings:
    """The resolved settings with the losses to average (``none`` for one loss), and the batch size and held-out share of fits.

    The batch size is a sixteenth of the rows, from 16 to 128: with 128, a few hundred rows would get too few steps. Each fit
    holds out a different fifth of the rows, so that the rule is tuned on all rows.

    Args:
        settings: resolved ones.
        given: the same as they were given.
        body: the body.
        examples: the training rows.
        sparse: whether the prepared inputs are sparse.
    """
    settings = replace(settings, mean_of=_losses(settings, given, body, examples, sparse=sparse))
    if settings.mean_of == NONE:
        return settings
    # A weight of positives belongs to one loss.
    settings = replace(settings, pos_weight=None)
    if given.calibrate == AUTO:
        # Scores are log odds, whatever the losses give.
        settings = replace(settings, calibrate=steering_of(given.metric).calibrate)
    if body.fitting_on(sparse=sparse) == CROSSED:
        return settings
    batch = min(max(1 << max(0, round(math.log2(max(len(examples), 1) / 16))), LEAST_BATCH), settings.batch_size)
    usual = given.validation == TrainSettings().validation and not given.members
    return replace(settings, batch_size=given.batch_size or batch, validation=MEAN_VALIDATION if usual else settings.validation)


def _losses(settings: TrainSettings, given: TrainSettings, body: BodyInfo, examples: Examples, *, sparse: bool) -> str:
    usual = TrainSettings()
    changed = [name for name in (*OF_ONE_LOSS, *OF_EACH_LOSS) if getattr(given, name) != getattr(usual, name)]
    if given.mean_of not in (AUTO, NONE) and changed and changed[0] in OF_ONE_LOSS:
        raise ValueError(f"train: `{changed[0]}` must be left out: `mean_of` names the losses, and each has its own settings.")
    if given.mean_of != AUTO:
        return given.mean_of
    plain = examples.kind == "features" and not examples.soft and Processes.current().count == 1
    if changed or body.join is None or body.beside is None or not plain:
        return NONE
    if body.fitting_on(sparse=sparse) == CROSSED:
        return _crossed_losses(given, examples)
    few = body.members.on(len(examples), held_out=settings.validation) > 1
    if body.fitting_on(sparse=sparse) != HELD_OUT or not few or not round(settings.validation * len(examples)):
        return NONE
    sets = not settings.propensity_weights and sets_repeat(examples)
    wanted = [name for name in steering_of(given.metric).table_losses if name != SETS or sets]
    return ",".join(wanted) if len(wanted) > 1 else NONE


def _crossed_losses(given: TrainSettings, examples: Examples) -> str:
    """The losses of a linear body on sparse features; the scores of each are mapped to log odds on cross-fitted rows."""
    losses = steering_of(given.metric).sparse_losses
    folds = given.folds or folds_for(len(examples), solved=HINGE in losses)
    crossed = len(examples) >= ROWS_A_FOLD * folds and len(examples) * examples.num_labels <= LARGEST_TABLE
    return ",".join(losses) if len(losses) > 1 and crossed and given.tune != NONE else NONE


def sets_repeat(examples: Examples) -> bool:
    """Whether there are enough rows per label set for label powerset, and all labels are known."""
    known = examples.unknown is None or not len(examples.unknown.indices)
    return known and len(set(map(tuple, examples.labels.lists()))) * ROWS_A_SET <= len(examples)


class SetScores(SetReader):
    """Log odds of the labels from the logits of label sets, whatever the most probable set is."""

    def forward(self, logits: Tensor) -> Tensor:
        """``[B, L]`` of ``[B, C]``."""
        return label_scores(logits, self.members)


def fit_mean_of_losses(session: RowSession, held: TrainingRows | None) -> Fitted:
    """``(body, None, scores to tune on)`` of the mean over the losses of the settings, each the mean of several fits."""
    names, parts = session.settings.mean_of.split(","), []
    for place, name in enumerate(names):
        part = _part(session, name, f"{name}-" if place else "")
        parts.append(_fitted_with_best_step(part, held) if name == SETS and _chooses(session) else _fitted(part, held))
        session.learning_rate = session.learning_rate or part.learning_rate
    kept = _kept(session, names, parts)
    body = _together(session, parts, kept)
    session.link = "hard"
    mean = torch.stack([each.tuning.all_scores for each in kept]).mean(dim=0)
    return body, None, parts[0].tuning._replace(logits=mean)


class Part(NamedTuple):
    """The fit of one loss: its body, the slope and intercept that turn its scores into log odds, held-out log odds."""

    body: nn.Module
    slope: float
    intercept: float
    tuning: Tuning


def _fitted(part: RowSession, held: TrainingRows | None) -> Part:
    from manyhot.training.rows.phases import fit_all_members, fit_crossed

    crossed = get_body(part.shape["body"]).fitting_on(sparse=part.shape["sparse"]) == CROSSED
    body, _, tuning = fit_crossed(part, held) if crossed else fit_all_members(part, held, stops=True)
    assert tuning is not None
    platt = fit_calibration(tuning.all_scores, tuning.labels, kind="platt", where=tuning.where)
    slope, intercept = float(platt.slope), float(platt.intercept)
    return Part(body, slope, intercept, tuning._replace(logits=slope * tuning.all_scores + intercept))


def _fitted_with_best_step(part: RowSession, held: TrainingRows | None) -> Part:
    """The fit with the learning rate that is best on held-out rows."""
    tried: list[tuple[float, float, Part]] = []
    for factor in SETS_STEPS:
        own = copy.copy(part)
        own.shape, own.factor = dict(part.shape), factor
        own.prefix = part.prefix + ("" if factor == 1 else f"step-{factor:.2g}-")
        fitted = _fitted(own, held)
        part.learning_rate = part.learning_rate or own.learning_rate
        tried.append((float(row_values(part.settings.stop_metric, fitted.tuning).mean()), factor, fitted))
    _, factor, fitted = max(tried, key=lambda each: each[0])
    part.why[SETS] = f"its learning rate times {factor:.2g}: {part.settings.stop_metric} of held-out rows is best"
    part.note(f"{SETS}: {part.why[SETS]}")
    return fitted


def _chooses(session: RowSession) -> bool:
    return session.mean is not None and session.mean.chooses


def _kept(session: RowSession, names: list[str], parts: list[Part]) -> list[Part]:
    """The fits that are averaged: all, or those that are clearly better without the others."""
    if not _chooses(session):
        return parts
    metric = session.settings.stop_metric
    kept = kept_losses(metric, [each.tuning for each in parts])
    if len(kept) < len(parts):
        alone = " and ".join(names[place] for place in kept)
        session.why["losses"] = f"{alone} alone: {metric} of held-out rows is better than with all, by two standard errors"
        session.note(f"losses: {session.why['losses']}")
    return [parts[place] for place in kept]


def _part(session: RowSession, name: str, prefix: str) -> RowSession:
    """The session of one of the losses; ``prefix`` begins the names of its fits."""
    part = copy.copy(session)
    part.shape = dict(session.shape)
    part.prefix = prefix
    part.mean = None
    if part.shape["sparse"] and not part.soft:
        part.steps, part.while_better = SMALLER_STEPS, True
    if name != SETS:
        part.settings = replace(session.settings, loss=name)
        if name == HINGE and session.mean is not None and session.mean.hinge_threads:
            part.solver_threads = session.mean.hinge_threads
            folds = session.mean.folds or folds_for(len(session.rows), solved=True)
            part.settings = replace(part.settings, epochs=session.mean.passes, folds=folds)
        return part
    strategy = get_strategy(POWERSET)
    posed = strategy.pose(session.rows.labels)
    assert isinstance(posed.reader, SetReader)
    part.settings = replace(session.settings, loss=strategy.loss, strategy=POWERSET)
    part.rows = replace(session.rows, posed=posed.labels)
    part.reader = SetScores(posed.reader.members)
    part.shape["num_labels"] = posed.labels.num_labels
    return part


def scaled_body(body: nn.Module, slope: float, intercept: float) -> nn.Module:
    """A copy whose logits are ``slope * s + intercept``."""
    body = copy.deepcopy(body)
    with torch.no_grad():
        body.get_parameter("head.weight").mul_(slope)
        body.get_parameter("head.bias").mul_(slope).add_(intercept)
    return body


def _together(session: RowSession, parts: list[Part], kept: list[Part]) -> nn.Module:
    """One body whose scores are the mean of ``kept``; logits of label sets, if there are any, follow those of the labels."""
    entry = get_body(session.shape["body"])
    assert entry.join is not None
    assert entry.beside is not None
    of_sets = next((each for each in kept if isinstance(each.body, ReadBody)), None)
    # Label sets alone still stand beside logits of labels, whose share is then 0.
    plain = [each for each in kept if each is not of_sets] or [each for each in parts if each is not of_sets][:1]
    joined = entry.join([scaled_body(each.body, each.slope, each.intercept) for each in plain])
    if of_sets is not None:
        set_body = of_sets.body
        assert isinstance(set_body, ReadBody)
        scale = torch.tensor([of_sets.slope, of_sets.intercept, 1 / len(kept)])
        reader = MeanReader(set_body.reader.get_buffer("members"), scale)
        joined = entry.beside([joined, without_reader(set_body)])
        session.shape |= {"strategy": MEAN_READER, "read_labels": session.rows.labels.num_labels}
        session.shape["num_labels"] = len(joined.get_parameter("head.bias"))
    if entry.hidden:
        session.shape["hidden"] = joined.get_submodule("head").in_features
    return joined if of_sets is None else ReadBody(joined, reader).to(session.device)
