"""Fits the decision rule and the calibration on scores of held-out rows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.decisions.calibrate import Calibration, fit_calibration
from manyhot.decisions.cuts import clear_cut
from manyhot.decisions.row_f1 import RowF1
from manyhot.decisions.rule import DecisionRule
from manyhot.decisions.tune import rule_value, tune_rule
from manyhot.decisions.tuning.balanced import FEWEST_IN_PART, balanced_thresholds
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.one_cut import global_cut
from manyhot.decisions.tuning.rows import scored_rows
from manyhot.decisions.tuning.top_cut import tune_top
from manyhot.labels.sparse import SparseLabels
from manyhot.scores.top import TopScores
from manyhot.training.rows.rules.beams import beam_rule
from manyhot.training.rows.rules.moved import (
    FEWEST_CROSSED,
    FOLDS,
    HeldRows,
    Moved,
    cross_fitted,
    moved_rule,
    moved_sets,
    offsets_of,
)
from manyhot.training.rows.rules.tracking_threshold import density_cut
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import BALANCED, NONE, SETS
from manyhot.training.run.device import choose_device

# Most held-out scores, rows times labels, that are kept for tuning. Of more, label trees list the best of each row, and other
# bodies score fewer rows.
LARGEST_TABLE = 3 << 24
# The length of top lists, and so the most labels that a rule tuned on them predicts for a row.
LISTED = 100
# What one threshold is tuned for where ``tune`` means more than one threshold.
ONE_THRESHOLD_FOR = {BALANCED: "micro-F1", SETS: "SubACC"}
# The largest share of training rows without labels for a threshold by row, which takes every row to have a label. On training
# rows of birds, of which 45 % have none, it loses 4 points of MLC-F1 to one threshold.
MOST_EMPTY = 0.01
# Most scores that the one or two numbers of a common calibration are fitted on, approximately.
MOST_CALIBRATED = 1 << 20


class Tuning(NamedTuple):
    """Scores ``[R, L]`` of held-out rows, or their top lists, with the labels.

    ``rows [R]`` are the numbers of these rows among the training examples; None if they are validation rows.
    ``fold [R]`` is the number of the fit that scored each row, if there are several. ``beams``: the scores are those of label
    trees, which do not reach all labels. ``again``: the rule is used with trees that are fitted again, to all rows.
    """

    logits: Tensor | TopScores
    labels: SparseLabels
    where: Tensor | None
    rows: Tensor | None = None
    fold: Tensor | None = None
    beams: bool = False
    again: bool = False

    @property
    def all_scores(self) -> Tensor:
        """The scores of all labels, for metrics that need more than the best of each row."""
        if isinstance(self.logits, TopScores):
            raise TypeError(f"train: the scores of all labels are needed; got {self.logits!r}.")
        return self.logits

    def others(self, labels: SparseLabels) -> SparseLabels:
        """``labels``, those of all training rows, without the rows that are here."""
        if self.rows is None:
            return labels
        apart = torch.ones(len(labels), dtype=torch.bool)
        apart[self.rows] = False
        return labels[apart]


def bounded_cut(
    cut: Tensor, tuning: Tuning, labels: SparseLabels, unknown: SparseLabels | None, sample_weight: Tensor | None
) -> Tensor:
    """The tracked threshold, or a lower one at which the rows of ``tuning`` get as many labels as training rows have."""
    weight = torch.ones(len(labels), dtype=torch.float64) if sample_weight is None else sample_weight.double().cpu()
    known = (weight * (labels.num_labels - (0 if unknown is None else unknown.counts()))).sum()
    density = float((weight * labels.counts()).sum() / known) if known > 0 else 0.0
    return torch.minimum(cut.detach().cpu(), density_cut(tuning.all_scores[None], density, tuning.where))


def fit_rule(
    settings: TrainSettings, natural: DecisionRule, tuning: Tuning | None, labels: SparseLabels
) -> tuple[DecisionRule, Calibration | None, str]:
    """``(rule, calibration, the result in a sentence)``; ``labels`` are those of all training rows."""
    if tuning is None or not len(tuning.labels) or not len(tuning.labels.indices):
        return natural, None, ""
    if isinstance(tuning.logits, TopScores):
        if settings.tune == NONE:
            return natural, None, ""
        return _listed(settings, tuning.logits, tuning.labels)
    calibration = None if settings.calibrate == NONE else calibrated(settings.calibrate, tuning)
    if settings.tune == NONE:
        return natural, calibration, ""
    if settings.tune == BALANCED:
        rule, found = _with_a_label(settings, *_balanced(settings, tuning), tuning, labels)
    elif settings.tune == SETS:
        rule, found = _for_sets(settings, tuning, labels)
    elif settings.tune == "macro-F1" and settings.per_label and many_crossed(tuning):
        rule, found = _with_a_label(settings, *_balanced(settings, tuning, micro_weight=0.0), tuning, labels)
    elif settings.tune == "micro-F1" and settings.per_label and tuning.again:
        rule, found = _with_a_label(settings, *_for_beams(settings, tuning, ("micro-F1",)), tuning, labels)
    else:
        rule, found, _ = _best_tuned(settings, natural, tuning, labels)
    if settings.min_labels and rule.top_k is None:
        rule = replace(rule, min_labels=settings.min_labels)
    return rule, calibration, found


def many_crossed(tuning: Tuning) -> bool:
    """Whether thresholds can be averaged over parts of the rows, which are cross-fitted."""
    return tuning.fold is not None and len(tuning.labels) >= 2 * FEWEST_IN_PART


def calibrated(kind: str, tuning: Tuning) -> Calibration:
    """The calibration; one or two numbers for all labels are fitted on every n-th row if there are many scores."""
    scores, labels, where = tuning.all_scores, tuning.labels, tuning.where
    step = scores.numel() // MOST_CALIBRATED if kind in ("temperature", "platt") else 1
    if step > 1:
        every = torch.arange(0, len(scores), step)
        scores, labels, where = scores[every], labels[every], None if where is None else where[every]
    return fit_calibration(scores, labels, kind=kind, where=where)


def _listed(settings: TrainSettings, top: TopScores, labels: SparseLabels) -> tuple[DecisionRule, None, str]:
    """The best rule on top lists: one threshold for scores, or for the softmax of a row if its sum is known.

    Either may give every row at least one label.
    """
    objective = ONE_THRESHOLD_FOR.get(settings.tune, settings.tune)
    # Sorting all listed scores takes seconds on a CPU.
    device = choose_device(settings.device)
    top, labels = top.to(device), labels.to(device)
    least = sorted({settings.min_labels, max(settings.min_labels, 1)})
    kinds = [False] if top.log_sums is None else [False, True]
    tried = [DecisionRule(min_labels=count, softmax=softmax) for softmax in kinds for count in least]
    rule, value = max((tune_top(top, labels, objective=objective, rule=each) for each in tried), key=lambda found: found[1])
    what = "the softmax of a row" if rule.softmax else "the scores"
    many = f"{rule.min_labels} to {rule.max_labels}" if rule.min_labels else f"at most {rule.max_labels}"
    found = f"one threshold for {what}, {many} labels a row"
    return rule, None, f"{found}, best for {objective} ({abs(value):.3f}) on held-out rows"


class Found(NamedTuple):
    """A rule, words about it, and its objective in cross-validation over the held-out rows; more is better."""

    rule: DecisionRule
    words: str
    value: float


def _best_tuned(settings: TrainSettings, natural: DecisionRule, tuning: Tuning, labels: SparseLabels) -> Found:
    """The rule for one objective; for MLC-F1, thresholds that each row gets from its own probabilities are tried, too."""
    plain = _tuned(settings, natural, tuning, labels)
    empty = float((labels.counts() == 0).double().mean())
    if settings.tune != "MLC-F1" or len(tuning.labels) < FEWEST_CROSSED or empty > MOST_EMPTY:
        return plain
    platt = calibrated("platt", tuning)
    if not float(platt.slope) > 0:
        return plain
    by_row = RowF1(float(platt.slope), float(platt.intercept))
    relative = tuning._replace(logits=by_row.relative(tuning.all_scores, tuning.where))
    own = _tuned(settings, DecisionRule(min_labels=natural.min_labels), relative, labels)
    if own.value <= plain.value:
        return plain
    words = f"each row's own threshold, by its probabilities, then: {own.words}"
    return Found(replace(own.rule, row_f1=by_row), words, own.value)


def _tuned(settings: TrainSettings, natural: DecisionRule, tuning: Tuning, labels: SparseLabels) -> Found:
    """The rule for one objective. With many cross-fitted rows it is compared with thresholds that are moved together."""
    tuned = tune_rule(
        tuning.all_scores,
        tuning.labels,
        objective=settings.tune,
        per_label=settings.per_label and OBJECTIVES[settings.tune].per_label,
        shrink=settings.shrink,
        where=tuning.where,
        folds=FOLDS if len(tuning.labels) >= FEWEST_CROSSED else 0,
        seed=settings.seed,
        baseline=natural,
    )
    rule, found = _with_a_label(settings, tuned.recommended, tuned.message, tuning, labels)
    before, after = (
        rule_value(tuning.all_scores, tuning.labels, settings.tune, each, where=tuning.where)
        for each in (tuned.recommended, rule)
    )
    value = cross_fitted(tuned) + after - before
    if not settings.per_label or not many_crossed(tuning):
        return Found(rule, found, value)
    rows = HeldRows(tuning.all_scores, tuning.labels, tuning.where)
    offsets = offsets_of(rows, shrink=settings.shrink, seed=settings.seed)
    moved = moved_rule(settings.tune, rows, offsets, least=_all_labelled(settings, labels), seed=settings.seed)
    if moved.value <= value:
        return Found(rule, found, value)
    return Found(moved.rule, _about_moved(settings.tune, moved), moved.value)


def _about_moved(objective: str, moved: Moved) -> str:
    every = "; every row gets at least its best label" if moved.rule.min_labels else ""
    return f"thresholds moved together, best for {objective} (cross-validated {abs(moved.value):.3f}){every}"


def _all_labelled(settings: TrainSettings, labels: SparseLabels) -> bool:
    """Whether every training row has a label, and the settings do not say how many a row gets."""
    return not settings.min_labels and bool((labels.counts() > 0).all())


def _with_a_label(
    settings: TrainSettings, rule: DecisionRule, found: str, tuning: Tuning, labels: SparseLabels
) -> tuple[DecisionRule, str]:
    """The rule with at least one label per row, if every training row has one and held-out rows are decided better."""
    if rule.top_k is not None or not _all_labelled(settings, labels):
        return rule, found
    names = ("micro-F1", "macro-F1") if settings.tune == BALANCED else (settings.tune,)

    def value(tried: DecisionRule) -> float:
        return sum(rule_value(tuning.all_scores, tuning.labels, name, tried, where=tuning.where) for name in names)

    least = replace(rule, min_labels=1)
    if value(least) <= value(rule):
        return rule, found
    return least, f"{found.rstrip('.')}. Every training row has a label, so every row gets at least its best one."


def _for_sets(settings: TrainSettings, tuning: Tuning, labels: SparseLabels) -> tuple[DecisionRule, str]:
    """A rule for whole label sets if it is better than one threshold on held-out rows, otherwise that threshold.

    With many cross-fitted rows, labels have offsets, and thresholds that are moved together are compared, too.
    """
    rows, many = HeldRows(tuning.all_scores, tuning.labels, tuning.where), settings.per_label and many_crossed(tuning)
    offsets = offsets_of(rows, shrink=settings.shrink, seed=settings.seed) if many else None
    sets, tuned = moved_sets(rows, offsets, tuning.others(labels), seed=settings.seed)
    if many:
        moved = moved_rule("SubACC", rows, offsets, least=_all_labelled(settings, labels), seed=settings.seed)
        if moved.value > sets.value:
            return moved.rule, _about_moved("SubACC", moved)
    return sets.rule, f"whole label sets against one threshold: {tuned.message}"


def _balanced(settings: TrainSettings, tuning: Tuning, *, micro_weight: float = 1.0) -> tuple[DecisionRule, str]:
    """Thresholds for the sum of micro-F1, which frequent labels dominate, and macro-F1, in which all labels count alike.

    Thresholds for macro-F1 alone predict rare labels so often that micro-F1 falls. One threshold for all labels lies midway
    between the best one for micro-F1 and the best one for macro-F1.
    """
    if settings.per_label and tuning.beams:
        return _for_beams(settings, tuning, ("micro-F1", "macro-F1"))
    if settings.per_label:
        cuts = balanced_thresholds(
            tuning.all_scores, tuning.labels, shrink=settings.shrink, where=tuning.where, seed=settings.seed,
            micro_weight=micro_weight, averaged=tuning.fold is not None,
        )  # fmt: skip
        what = "the sum of micro-F1 and macro-F1" if micro_weight else "macro-F1"
        return DecisionRule(threshold=cuts), f"thresholds best for {what} on held-out rows"
    data = scored_rows("train", tuning.all_scores, tuning.labels, tuning.where)
    ends = [global_cut(data, OBJECTIVES[objective]) for objective in ("micro-F1", "macro-F1")]
    middle = clear_cut(data.scores.flatten(), sum(ends) / 2)
    return DecisionRule(threshold=middle), "threshold midway between those best for micro-F1 and for macro-F1"


def _for_beams(settings: TrainSettings, tuning: Tuning, names: tuple[str, ...]) -> tuple[DecisionRule, str]:
    return beam_rule(tuning.all_scores, tuning.labels, shrink=settings.shrink, seed=settings.seed, names=names)


def best_value(settings: TrainSettings, tuning: Tuning) -> float:
    """The metric of the settings on held-out scores, larger is better; decisions use the best single threshold."""
    from manyhot.metrics.info import DECISIONS
    from manyhot.metrics.names import parse_metric

    name = settings.stop_metric
    metric = parse_metric(name)
    rule = None
    if metric.info.needs == DECISIONS and len(tuning.labels.indices):
        objective = name if name in OBJECTIVES else "micro-F1"
        tuned = tune_rule(tuning.all_scores, tuning.labels, objective=objective, where=tuning.where, folds=0)
        if objective == name:
            return tuned.value * metric.info.sign
        rule = tuned.rule
    from manyhot.metrics.sums import Sums

    measured = Sums([name], num_labels=tuning.labels.num_labels, rule=rule)
    measured.update(tuning.all_scores, tuning.labels, tuning.where)
    value = measured.compute()[name]
    return float(value) * metric.info.sign
