"""Defaults that depend on the data: body, weights, epochs."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import torch
from torch import Tensor

from manyhot._cores import available_cores
from manyhot.data.examples import Examples
from manyhot.decisions.natural import natural_decision
from manyhot.engines.native import engine as native
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.catalog import LOSSES, get_loss
from manyhot.training.rows.bodies.info import AUTO_BODY, CROSSED, USUAL_BATCH, BodyInfo
from manyhot.training.rows.bodies.registry import bodies_for, get_body
from manyhot.training.rows.inputs.registry import Inputs
from manyhot.training.rows.settings import ENCODER, TrainSettings
from manyhot.training.rows.steering import AUTO, HINGE, NONE, steering_of, tuned_for
from manyhot.training.rows.strategies import PLAIN, get_strategy
from manyhot.training.run.device import choose_device
from manyhot.training.run.processes import Processes

# For texts the weight of a positive is the number of labels, at most this. With a tuned rule this gains 0.1 to 0.4 points of
# micro-F1 on three text sets and improves the ranking; on sparse features it loses as much, so they get no weight.
MOST_WEIGHT = 100
# Settings of mini-batch training, which a body that is solved does not use.
STEPS_ONLY = (
    *("strategy", "loss_option", "pos_weight", "smoothing", "flip", "mixup", "rdrop", "learn_threshold", "row_threshold"),
    *("teacher", "teacher_share", "batch_size", "learning_rate", "weight_decay", "warmup", "schedule", "clip", "patience"),
    *("folds", "precision", "propensity_weights", "tensorboard"),
)
# Least number of rows per fold for cross-fitting, and the number of folds of a body that is trained by gradient steps.
ROWS_A_FOLD, STEP_FOLDS = 10, 3
# From this many rows on, a linear body that is solved gets more folds: with 3 the thresholds of rare labels are worse.
SOLVED_FOLDS, LEAST_SOLVED_ROWS = 5, 1_000
# Most rows for six label trees. On development rows of eurlex57k six trees have P@5 70.4, three 70.2. With more rows, time and
# size weigh more: five trees on all of yso_titles have P@1 39.8 and take 60 % longer than three.
MANY_TREES_ROWS = 100_000
# A linear step over fewer scores than this is faster on one thread.
SMALL_STEP = 1 << 17


def body_for(settings: TrainSettings, examples: Examples, inputs: Inputs, *, device: str = "cpu") -> BodyInfo:
    """The body of the settings, or the first that fits the examples, the settings and the kind of ``device``."""
    fitting = bodies_for(examples.kind)
    if settings.model == AUTO_BODY:
        return _automatic_body(settings, examples, inputs.width, device)
    entry = get_body(settings.model)
    if entry not in fitting:
        names = " or ".join(each.name for each in fitting)
        raise ValueError(f"train: `model` must be {names} for {examples.kind}; got {settings.model!r}.")
    if examples.num_labels < entry.least_labels:
        raise ValueError(
            f"train: `model` {entry.name} must have at least {entry.least_labels} labels; got {examples.num_labels}."
            f" Choose {fitting[0].name}."
        )
    if entry.losses and settings.strategy != PLAIN:
        raise ValueError(f"train: `strategy` must be plain for the model {entry.name}; got {settings.strategy!r}.")
    if entry.losses and settings.loss not in entry.losses:
        wanted = " or ".join(entry.losses)
        raise ValueError(f"train: `loss` must be {wanted} for the model {entry.name}; got {settings.loss!r}.")
    return entry


def _automatic_body(settings: TrainSettings, examples: Examples, width: int, device: str) -> BodyInfo:
    """The first body that fits examples of ``width`` features."""
    sparse, lazy = is_sparse(examples), not any(why_not_lazy(settings, examples).values())
    return next(
        entry
        for entry in bodies_for(examples.kind)
        if entry.fits(sparse=sparse, width=width, num_labels=examples.num_labels, device=device) and (lazy or not entry.lazy)
    )


def sparse_fitting(settings: TrainSettings, examples: Examples) -> str:
    """How the body for these sparse features is fitted: linear ones are cross-fitted."""
    settings = with_body(settings, examples)
    if settings.model == AUTO_BODY:
        entry = _automatic_body(settings, examples, examples.num_features, choose_device(settings.device).type)
    else:
        entry = get_body(settings.model)
    return entry.fitting_on(sparse=True)


def with_body(settings: TrainSettings, examples: Examples) -> TrainSettings:
    """The settings with the model that an encoder, label shards or very many labels imply, and its learning rate and epochs.

    If very many labels imply the model, its default loss is used.
    """
    if settings.encoder:
        settings = replace(settings, model=ENCODER)
    if settings.label_shards and settings.model == AUTO_BODY:
        divisible = [entry.name for entry in bodies_for(examples.kind) if entry.lazy]
        settings = replace(settings, model=divisible[0] if divisible else AUTO_BODY)
    if settings.model == AUTO_BODY and Processes.current().count == 1:
        many = _body_for_many_labels(settings, examples, choose_device(settings.device).type)
        if many is not None:
            settings = replace(settings, model=many.name)
    if settings.model == AUTO_BODY:
        return settings
    entry = get_body(settings.model)
    return replace(
        settings, learning_rate=settings.learning_rate or entry.learning_rate, epochs=settings.epochs or entry.epochs
    )


def _body_for_many_labels(settings: TrainSettings, examples: Examples, device: str) -> BodyInfo | None:
    """The body that ``auto`` chooses for very many labels, if it supports all settings; otherwise None."""
    for entry in bodies_for(examples.kind):
        if not entry.automatic_labels or examples.num_labels < entry.automatic_labels or device not in entry.devices:
            continue
        own = replace(settings, model=entry.name)
        if not any(why_not_lazy(own, examples).values()) if entry.lazy else _can_be_solved(own, entry, examples):
            return entry
    return None


def _can_be_solved(settings: TrainSettings, entry: BodyInfo, examples: Examples) -> bool:
    """Whether a body that is fitted without gradient steps supports the settings and the examples."""
    changed = {each.name for each in fields(settings) if getattr(settings, each.name) != each.default}
    known = examples.unknown is None or not len(examples.unknown.indices)
    usual = settings.usual_loss in entry.losses and not changed & {*STEPS_ONLY}
    return is_sparse(examples) and known and not examples.soft and usual and entry.ready()


def why_not_lazy(settings: TrainSettings, examples: Examples) -> dict[str, str]:
    """The reasons why settings or examples cannot be used with lazy scores, by name; empty if they can."""
    info, lazy = get_loss(settings.usual_loss), ", ".join(name for name, each in LOSSES.items() if each.lazy)
    needs = "it needs the scores of all labels at once"
    return {
        "loss": "" if info.lazy else f"{settings.loss} needs the scores of all labels at once; {lazy} do not",
        "strategy": needs if get_strategy(settings.strategy).make_reader is not None else "",
        "pos_weight": "auto needs the scores of all labels at once; give a number" if settings.pos_weight == AUTO else "",
        "calibrate": needs if settings.calibrate not in (AUTO, NONE) else "",
        **{name: needs if getattr(settings, name) else "" for name in ("flip", "mixup", "rdrop", "row_threshold")},
        "train_examples": "some labels are unknown" if examples.unknown is not None and len(examples.unknown.indices) else "",
    }


def is_sparse(examples: Examples) -> bool:
    """Whether the inputs are sparse: texts, and features in a sparse matrix."""
    return examples.kind == "texts" or (examples.kind == "features" and not isinstance(examples.features, np.ndarray))


def resolved(settings: TrainSettings, examples: Examples) -> TrainSettings:
    """The settings, filled in as far as possible before the inputs are prepared."""
    settings = replace(settings, loss=settings.usual_loss)
    if settings.tune == AUTO:
        settings = replace(settings, tune=NONE if decides_itself(settings) else tuned_for(settings.metric))
    if settings.calibrate == AUTO:
        settings = replace(settings, calibrate=steering_of(settings.metric).calibrate)
    if settings.metric.startswith("PSP@") and get_loss(settings.usual_loss).why_not("pos_weight") is None:
        settings = replace(settings, propensity_weights=True)
    if settings.model != AUTO_BODY and not get_body(settings.model).weighs_positives:
        return settings
    if settings.pos_weight is None:
        settings = replace(settings, pos_weight=_weight_for(settings, examples))
    if not is_sparse(examples):
        return settings
    small = (settings.batch_size or USUAL_BATCH) * examples.num_labels <= SMALL_STEP
    plain_steps = settings.model == AUTO_BODY or get_body(settings.model).fitting_on(sparse=True) == CROSSED
    if settings.threads == 0 and plain_steps and small:
        settings = replace(settings, threads=1)
    return settings


def folds_for(num_rows: int, *, solved: bool) -> int:
    """The default number of cross-fitting folds of a linear body on sparse inputs."""
    return SOLVED_FOLDS if solved and num_rows >= LEAST_SOLVED_ROWS else STEP_FOLDS


def trees_for(num_rows: int, *, ngrams: int = 1) -> int:
    """The default number of label trees. More rank labels better, with diminishing returns; time and size grow with them.

    Example:
        >>> [trees_for(rows) for rows in (45_000, 633_285)], trees_for(45_000, ngrams=2)
        ([6, 3], 1)
    """
    if ngrams > 1:
        # On long texts a tree with pairs of words takes four times as long as one without; a second adds 0.1 to 0.2 to P@k.
        return 1
    return 6 if num_rows <= MANY_TREES_ROWS else 3


def with_loss(settings: TrainSettings, given: TrainSettings, body: BodyInfo, examples: Examples) -> TrainSettings:
    """The resolved settings; a linear body on texts or sparse features gets the loss of the metric if no loss was given."""
    entry = steering_of(given.metric)
    wanted = entry.text_loss if examples.kind == "texts" else next(iter(entry.sparse_losses), "")
    plain = given.loss == AUTO and not given.loss_option and given.pos_weight is None and given.strategy == PLAIN
    learns = settings.propensity_weights or given.learn_threshold or given.row_threshold or given.softens or examples.soft
    if (
        wanted in ("", settings.loss)
        or not plain
        or learns
        or not is_sparse(examples)
        or body.fitting_on(sparse=True) != CROSSED
    ):
        return settings
    # Without a metric, scores must decide and give probabilities by themselves if neither is fitted on held-out rows.
    by_itself = NONE in (given.tune, given.calibrate) or len(examples) < ROWS_A_FOLD * (given.folds or STEP_FOLDS)
    if given.metric == AUTO and by_itself:
        return settings
    calibrate = "platt" if given.calibrate == AUTO and get_loss(wanted).link is None else settings.calibrate
    return replace(settings, loss=wanted, pos_weight=None, calibrate=calibrate)


def solved_by(given: TrainSettings, settings: TrainSettings, body: BodyInfo, examples: Examples) -> int:
    """The number of threads that solve the labels of a linear body one by one; 0 if it is trained by gradient steps.

    Labels are solved for texts and sparse features with the squared hinge and hard, known labels, unless a setting of gradient
    steps is given.
    """
    changed = {each.name for each in fields(given) if getattr(given, each.name) != each.default}
    known = examples.unknown is None or not len(examples.unknown.indices)
    usual = settings.loss == HINGE and is_sparse(examples) and body.fitting_on(sparse=True) == CROSSED
    hard = known and not examples.soft and not changed & ({*STEPS_ONLY} - {"folds"})
    ready = usual and hard and Processes.current().count == 1 and native.available()[0]
    return (given.threads or available_cores()) if ready else 0


def _weight_for(settings: TrainSettings, examples: Examples) -> float | str | None:
    """The default weight of the positives; without a tuned rule ``auto``, a threshold that is tracked during training."""
    info = get_loss(settings.usual_loss)
    if settings.tune == "none":
        learns = settings.learn_threshold or settings.row_threshold
        lazy = settings.model != AUTO_BODY and get_body(settings.model).lazy
        return AUTO if settings.usual_loss == "zlpr" and not learns and not lazy else None
    # With soft labels every label is part of the positive sum, so a weight would raise all of them.
    hard = not (examples.soft or settings.softens)
    weighed = examples.kind == "texts" and info.learned_threshold and hard
    return float(min(examples.num_labels, MOST_WEIGHT)) if weighed else None


def decides_itself(settings: TrainSettings) -> bool:
    """Whether the loss or the strategy decides without a threshold: by the best label, or the most probable set."""
    return (
        not natural_decision(get_loss(settings.usual_loss).decision).tunable
        or get_strategy(settings.strategy).make_reader is not None
    )


def log_odds(labels: SparseLabels, unknown: SparseLabels | None) -> Tensor:
    """``log(p / (1 - p))`` of each label's share p of the rows where it is known; half a row is added to both counts."""
    positive = torch.bincount(labels.indices, weights=labels.values, minlength=labels.num_labels)
    known = torch.full_like(positive, len(labels))
    if unknown is not None:
        known = known - torch.bincount(unknown.indices, minlength=labels.num_labels)
    return ((positive + 0.5) / (known - positive + 0.5)).log().float()


def starting_scores(settings: TrainSettings, labels: SparseLabels, unknown: SparseLabels | None, *, link: str | None) -> Tensor:
    """``[L]``: the initial biases of the head: the scores that predict the mean of each label, as the loss sees it.

    Smoothing and flipping move the means towards one half, and with the link ``sigma(2 s)`` of soft labels the score is half
    the log odds. Starting at the log odds of rare hard labels would be slow: the gradient of each side of ZLPR is below 1
    in total, however many labels have to move.
    """
    odds, own = log_odds(labels, unknown), get_loss(settings.usual_loss).constant_score
    if not settings.smoothing and not settings.flip and link != "soft" and own is None:
        return odds
    means, others = odds.double().sigmoid(), max(labels.num_labels - 1, 1)
    for share in (settings.smoothing, settings.flip):
        to_others = (1 - means) / others if get_loss(settings.usual_loss).one_label else 0.5
        means = means * (1 - share) + share * to_others
    if own is not None:
        return own(means).float()
    return (means.logit() / (2 if link == "soft" else 1)).float()
