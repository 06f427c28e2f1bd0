"""Averages fits with several losses. Each loss makes different errors, so that the mean is better than each of them.

Losses give scores on different scales. Before they are averaged, the scores of each loss are mapped to log odds, by Platt
scaling on held-out rows. To try another loss, add its name to ``MEAN`` in ``steering``.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from manyhot.data.examples import Examples
from manyhot.decisions.calibrate import fit_calibration
from manyhot.labels.powerset import label_scores
from manyhot.training.rows.bodies.info import HELD_OUT, BodyInfo
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO, NONE, steering_of
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
    from manyhot.training.rows.rules.fitting import Tuning

SETS = "powerset"
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
    averaged = body.join is not None and body.beside is not None and body.fitting_on(sparse=sparse) == HELD_OUT
    few = body.members.on(len(examples), held_out=settings.validation) > 1
    plain = examples.kind == "features" and not examples.soft and Processes.current().count == 1
    if changed or not averaged or not few or not plain or not round(settings.validation * len(examples)):
        return NONE
    sets = not settings.propensity_weights and sets_repeat(examples)
    wanted = [name for name in steering_of(given.metric).table_losses if name != SETS or sets]
    return ",".join(wanted) if len(wanted) > 1 else NONE


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
    from manyhot.training.rows.phases import fit_all_members

    bodies: list[nn.Module] = []
    tunings: list[Tuning] = []
    set_body, set_scale = None, None
    for place, name in enumerate(session.settings.mean_of.split(",")):
        part = _part(session, name, f"{name}-" if place else "")
        body, _, tuning = fit_all_members(part, held, stops=True)
        assert tuning is not None
        platt = fit_calibration(tuning.all_scores, tuning.labels, kind="platt", where=tuning.where)
        slope, intercept = float(platt.slope), float(platt.intercept)
        tunings.append(tuning._replace(logits=slope * tuning.all_scores + intercept))
        session.learning_rate = session.learning_rate or part.learning_rate
        if part.reader is None:
            bodies.append(scaled_body(body, slope, intercept))
        else:
            set_body, set_scale = body, (slope, intercept)
    body = _together(session, bodies, set_body, set_scale)
    session.link = "hard"
    return body, None, tunings[0]._replace(logits=torch.stack([each.all_scores for each in tunings]).mean(dim=0))


def _part(session: RowSession, name: str, prefix: str) -> RowSession:
    """The session of one of the losses; ``prefix`` begins the names of its fits."""
    part = copy.copy(session)
    part.shape = dict(session.shape)
    part.prefix = prefix
    if name != SETS:
        part.settings = replace(session.settings, loss=name)
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


def _together(
    session: RowSession, bodies: list[nn.Module], set_body: nn.Module | None, scale: tuple[float, float] | None
) -> nn.Module:
    """One body whose scores are the mean; logits of label sets, if there are any, follow those of the labels."""
    entry = get_body(session.shape["body"])
    assert entry.join is not None
    assert entry.beside is not None
    joined = entry.join(bodies)
    if set_body is not None:
        assert isinstance(set_body, ReadBody)
        assert scale is not None
        reader = MeanReader(set_body.reader.get_buffer("members"), torch.tensor([*scale, 1 / (len(bodies) + 1)]))
        joined = entry.beside([joined, without_reader(set_body)])
        session.shape |= {"strategy": MEAN_READER, "read_labels": session.rows.labels.num_labels}
        session.shape["num_labels"] = len(joined.get_parameter("head.bias"))
    if entry.hidden:
        session.shape["hidden"] = joined.get_submodule("head").in_features
    return joined if set_body is None else ReadBody(joined, reader).to(session.device)
