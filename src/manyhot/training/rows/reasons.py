"""Sentences that explain a model: the requested metric, and what was chosen because of it."""

from __future__ import annotations

from manyhot.losses.catalog import get_loss
from manyhot.metrics.names import parse_metric
from manyhot.training.rows.bodies.info import CROSSED, HELD_OUT
from manyhot.training.rows.choose import decides_itself
from manyhot.training.rows.options import Run
from manyhot.training.rows.rules.fitting import ONE_THRESHOLD_FOR
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO, BALANCED, NONE, SETS, losses_in_words, steering_of, tuned_for
from manyhot.training.rows.strategies import PLAIN, get_strategy


def reasons_of(run: Run) -> dict[str, str]:
    """One sentence for the metric, the loss, the end of training, the number of fits, the rule and the probabilities."""
    settings = run.settings
    found = {"metric": _metric(run), "loss": _loss(run), "stopping": _stopping(run), "fits": _fits(run), "rule": _rule(run)}
    if settings.calibrate != NONE:
        found["probabilities"] = f"{settings.calibrate}: {_why_calibrated(settings)}"
    if settings.propensity_weights:
        found["weights"] = "positives of rare labels weigh more, by the propensities of PSP@k"
    return found


def _why_calibrated(settings: TrainSettings) -> str:
    if steering_of(settings.metric).calibrate == settings.calibrate:
        return "the metric measures them"
    return f"{settings.loss} gives margins" if get_loss(settings.usual_loss).link is None else "as the settings say"


def _metric(run: Run) -> str:
    name = run.settings.metric
    if name == AUTO:
        return "none given; --metric NAME trains and tunes for one"
    return f"{name}: {parse_metric(name).info.summary}"


def _loss(run: Run) -> str:
    settings = run.settings
    strategy = get_strategy(settings.strategy)
    if settings.mean_of != NONE:
        words = losses_in_words(settings.loss, settings.mean_of)
        return f"{words}, each as log odds: different losses make different errors"
    if strategy.name != PLAIN:
        return f"{settings.loss}: the strategy {strategy.name} was chosen, {strategy.summary}"
    if run.body.losses:
        return f"{settings.loss}: {run.title} is made for it"
    entry = steering_of(settings.metric)
    if run.kind == "texts" and entry.text_loss == settings.loss:
        return f"{settings.loss}: on texts a margin loss ranks labels better, rare ones above all"
    if run.solved and settings.loss in entry.sparse_losses:
        return f"{settings.loss}: on sparse features a margin loss is better for such metrics"
    return f"{settings.loss}: {get_loss(settings.usual_loss).summary}"


def _stopping(run: Run) -> str:
    settings = run.settings
    if run.fitting == HELD_OUT and run.has_held_out:
        return f"early stopping: the epoch with the best {settings.stop_metric} on held-out rows is kept"
    if run.solved:
        chosen = f"; the cost of an error is the one with the best {settings.stop_metric} on held-out rows"
        return f"each label is solved by itself, in {settings.epochs} passes{chosen if run.has_held_out else ''}"
    if run.fitting == CROSSED and run.crosses and settings.mean_of != NONE and settings.learning_rate is None:
        return (
            f"each loss is trained for all its epochs; its learning rate, or the squared hinge's cost of an error, is the one"
            f" with the best {settings.stop_metric} on the first fold"
        )
    if run.fitting == CROSSED and run.crosses and settings.learning_rate is None:
        return f"all epochs are trained; the learning rate is the one with the best {settings.stop_metric} on the first fold"
    return "all epochs are trained, without early stopping"


def _fits(run: Run) -> str:
    members = run.settings.members or 1
    if run.fitting == CROSSED:
        several = " with each loss" if run.settings.mean_of != NONE else ""
        return f"the final model is trained on all rows{several}; cross-validation gives the scores that the rule is tuned on"
    if run.settings.mean_of != NONE:
        losses = len(run.settings.mean_of.split(","))
        return f"the mean of {losses * members}: {members} with each loss, each with a different part of the rows held out"
    return f"the mean of {members}, each with a different part of the rows held out" if members > 1 else "one"


def _rule(run: Run) -> str:
    settings, entry = run.settings, steering_of(run.settings.metric)
    if settings.tune == NONE:
        own = decides_itself(settings)
        return "the loss and the strategy decide by themselves" if own else "nothing is tuned: the natural rule of the loss"
    if not run.has_held_out:
        return "no rows are held out to tune on: the natural rule of the loss"
    if run.listed:
        objective = ONE_THRESHOLD_FOR.get(settings.tune, settings.tune)
        return f"one threshold, the best for {objective} on each row's best labels: most labels are too rare for their own"
    titles = {SETS: "whole label sets", BALANCED: "tuned for micro-F1 and macro-F1 together"}
    title = titles.get(settings.tune, f"tuned for {settings.tune}")
    why = entry.rule_why if settings.tune == tuned_for(settings.metric) else "as the settings say"
    return f"{title}: {why}"
