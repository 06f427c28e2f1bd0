"""How training adapts to the requested metric: loss, early stopping, decision rule and calibration together. An entry of the
catalog of metrics says what the metric rewards (``MetricInfo.aim``); an entry here says what training does for each aim. To
support another kind of metric, add an aim and an entry.
"""

from __future__ import annotations

from dataclasses import dataclass

from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.metrics.info import (
    CERTAINTY,
    ENTRIES,
    LABEL_ORDER,
    LABELS,
    ONE_SIDE,
    ROW_ORDER,
    ROW_SETS,
    WHOLE_ORDER,
    WHOLE_SETS,
)
from manyhot.metrics.names import read_metric

AUTO, BALANCED, SETS, NONE = "auto", "balanced", "sets", "none"
# Rules that can be tuned: for an objective, for micro-F1 and macro-F1 together, for whole label sets, or none.
TUNINGS = (AUTO, BALANCED, *OBJECTIVES, SETS, NONE)
USUAL_METRIC = "micro-F1"


@dataclass(frozen=True)
class Steering:
    """The defaults of training for metrics with the same aim.

    Args:
        aim: of the metrics, ``MetricInfo.aim``.
        tune: what the rule is tuned for; empty: the metric itself.
        rule_why: why this rule.
        text_loss: the loss of a linear body on texts; empty: the usual one.
        sparse_losses: the same on tables of sparse features; fits of several losses are averaged. On training rows of bibtex,
            corel5k and medical, the squared hinge is better than ZLPR by 0.4 to 4 points for micro-F1, MLC-F1 and AvgPrec, but
            not for SubACC, macro-F1 and RankLoss. For macro-F1, BCE is better than ZLPR by 1.3 points on bibtex and 1.1 on
            medical, and worse by 0.3 on corel5k. The mean of ZLPR and BCE has a lower RankLoss than either, and that of the
            squared hinge and BCE a higher MLC-F1 on bibtex.
        table_losses: the losses whose fits are averaged on tables of features; empty: only the usual one. ``powerset`` stands
            for the strategy, and takes part if rows share label sets.
        chooses_losses: whether losses of a mean are left out if the others are clearly better on held-out rows. The metric must
            be a mean over rows that looks at scores alone.
        stops: the metric for early stopping; empty: the metric itself.
        calibrate: the calibration of probabilities.
    """

    aim: str
    tune: str
    rule_why: str
    text_loss: str = ""
    sparse_losses: tuple[str, ...] = ()
    table_losses: tuple[str, ...] = ()
    chooses_losses: bool = False
    stops: str = ""
    calibrate: str = NONE


# On few held-out rows, metrics of decisions are too noisy for early stopping; ranking metrics are smoother.
SMOOTH = "AvgPrec"
HINGE = "squared_hinge"
MEAN = ("zlpr", "bce", "powerset")
# Dice 2 adds 0.2 to 0.8 points of MLC-F1 for an mlp on training rows of emotions, medical, corel5k and bibtex; birds loses 0.4.
WITH_DICE = ("zlpr", "bce", "dice2", "powerset")
_ENTRIES = (
    Steering("", BALANCED, "without a metric, rare and frequent labels both count", HINGE),
    Steering(WHOLE_SETS, SETS, "label sets of the training rows are more likely than others", HINGE, (), MEAN, stops=SMOOTH),
    Steering(
        ROW_SETS,
        "",
        "the sets of rows cannot be tuned label by label: labels share a threshold, or each row has its own (MLC-F1)",
        HINGE,
        (HINGE, "bce"),
        WITH_DICE,
        stops=SMOOTH,
    ),
    Steering(ENTRIES, "", "thresholds are best for the metric itself on held-out rows", HINGE, (HINGE,), MEAN, stops=SMOOTH),
    Steering(LABELS, "", "a threshold for each label, since all labels count alike", HINGE, ("bce",), MEAN, stops=SMOOTH),
    Steering(
        ONE_SIDE,
        BALANCED,
        "precision or recall alone would be best with nothing or everything predicted",
        HINGE,
        (),
        MEAN,
        stops=SMOOTH,
    ),
    Steering(ROW_ORDER, BALANCED, "the metric looks at the order of labels, which no threshold changes", HINGE, (HINGE,), MEAN),
    Steering(
        WHOLE_ORDER,
        BALANCED,
        "the metric looks at the order of labels, which no threshold changes",
        "",
        ("zlpr", "bce"),
        MEAN,
        chooses_losses=True,
    ),
    Steering(LABEL_ORDER, BALANCED, "the metric looks at the order of rows, which no threshold changes", "", (), MEAN),
    Steering(CERTAINTY, BALANCED, "the metric looks at probabilities, which no threshold changes", calibrate="platt"),
)
STEERINGS = {entry.aim: entry for entry in _ENTRIES}


def steering_of(metric: str) -> Steering:
    """The entry for a metric, or for ``auto``.

    Example:
        >>> steering_of("SubACC").tune, steering_of("P@5").tune
        ('sets', 'balanced')
    """
    return STEERINGS["" if metric == AUTO else read_metric("TrainSettings", "metric", metric).info.aim]


def losses_in_words(loss: str, mean_of: str) -> str:
    """The loss, or the losses whose fits are averaged.

    Example:
        >>> losses_in_words("zlpr", "none"), losses_in_words("zlpr", "zlpr,bce,powerset")
        ('zlpr', 'the mean of zlpr, bce, powerset')
    """
    return loss if mean_of in (AUTO, NONE) else f"the mean of {', '.join(mean_of.split(','))}"


def tuned_for(metric: str) -> str:
    """What the rule is tuned for, given the metric: an entry of ``TUNINGS``.

    Example:
        >>> tuned_for("macro-F1"), tuned_for("macro-F1-present"), tuned_for("AvgPrec")
        ('macro-F1', 'macro-F1', 'balanced')
    """
    entry = steering_of(metric)
    if entry.tune or metric in OBJECTIVES:
        return entry.tune or metric
    near = {LABELS: "macro-F1", ROW_SETS: "MLC-F1"}
    return near.get(entry.aim, BALANCED)


def stopped_by(metric: str) -> str:
    """The metric for early stopping.

    Example:
        >>> stopped_by("auto"), stopped_by("SubACC"), stopped_by("PSP@3")
        ('micro-F1', 'AvgPrec', 'P@3')
    """
    # Propensities are known only for the training rows.
    return USUAL_METRIC if metric == AUTO else steering_of(metric).stops or metric.replace("PSP@", "P@")
