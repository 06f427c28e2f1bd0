"""The catalog of metrics: what each is called, what it needs and how it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from manyhot.metrics import at_k, confusion, ranking
from manyhot.metrics.calibration import brier_error_of, calibration_error_of
from manyhot.metrics.curves import Areas, average_auroc
from manyhot.metrics.measures import (
    AreaMeasure,
    BlockWork,
    LabelMeasure,
    Measure,
    ProbabilityMeasure,
    RowMeasure,
    macro,
    mean_precision,
    micro,
)

DECISIONS, SCORES, PROBABILITIES, ALL_SCORES = "decisions", "scores", "probabilities", "all scores"


@dataclass(frozen=True)
class MetricInfo:
    """One entry of the catalog.

    Attributes:
        name: what it is called; ``@k`` stands for a number, as in ``P@5``.
        summary: one line for people.
        direction: ``"up"`` where more is better, ``"down"`` where less is.
        needs: ``"decisions"`` (a rule is applied), ``"scores"``, ``"probabilities"`` (a link is applied), or
            ``"all scores"`` (they are kept until the end: memory grows with the rows).
        measure: how it is computed; see ``manyhot.metrics.measures``.
        lists: whether ``TopScores`` are enough.
    """

    name: str
    summary: str
    direction: str
    needs: str
    measure: Measure
    lists: bool = False


def _propensity_hits(work: BlockWork, k: int) -> Tensor:
    return at_k.propensity_hits_of(work.ranks, work.weights(), k)


def _propensity_best(work: BlockWork, k: int) -> Tensor:
    return at_k.propensity_best_of(work.block.positives, work.weights(), k)


def _only_auroc(areas: Areas) -> Tensor:
    return areas.auroc[0]


_PRESENT = "; labels without a positive are left out"
_BINNED = ", scores rounded to bins of probability"
_ENTRIES = (
    MetricInfo(
        "SubACC",
        "share of rows whose label set is exactly right",
        "up",
        DECISIONS,
        RowMeasure(lambda work, _: confusion.subset_accuracy_of(work.confusion[0])),
    ),
    MetricInfo(
        "MLC-F1",
        "F1 of each row's label set, averaged over rows",
        "up",
        DECISIONS,
        RowMeasure(lambda work, _: confusion.f1_of(work.confusion[0], work.reading.empty)),
    ),
    MetricInfo("micro-F1", "F1 over all entries", "up", DECISIONS, micro(confusion.f1_of)),
    MetricInfo(
        "macro-F1", "F1 of each label, averaged; labels without a positive count as 0", "up", DECISIONS, macro(confusion.f1_of)
    ),
    MetricInfo("macro-F1-present", "F1 of each label, averaged" + _PRESENT, "up", DECISIONS, macro(confusion.f1_of, "skip")),
    MetricInfo("micro-precision", "share of predicted entries that are true", "up", DECISIONS, micro(confusion.precision_of)),
    MetricInfo(
        "macro-precision",
        "precision of each label, averaged; 0 where never predicted",
        "up",
        DECISIONS,
        macro(confusion.precision_of),
    ),
    MetricInfo(
        "macro-precision-present",
        "precision of each label, averaged" + _PRESENT,
        "up",
        DECISIONS,
        macro(confusion.precision_of, "skip"),
    ),
    MetricInfo("micro-recall", "share of true entries that are predicted", "up", DECISIONS, micro(confusion.recall_of)),
    MetricInfo(
        "macro-recall",
        "recall of each label, averaged; labels without a positive count as 0",
        "up",
        DECISIONS,
        macro(confusion.recall_of),
    ),
    MetricInfo(
        "macro-recall-present", "recall of each label, averaged" + _PRESENT, "up", DECISIONS, macro(confusion.recall_of, "skip")
    ),
    MetricInfo(
        "hamming-error",
        "share of entries that are wrong",
        "down",
        DECISIONS,
        LabelMeasure(lambda labels: confusion.wrong_of(labels).sum(), per_entry=True),
    ),
    MetricInfo(
        "jaccard",
        "overlap of each row's label sets, averaged over rows",
        "up",
        DECISIONS,
        RowMeasure(lambda work, _: confusion.jaccard_of(work.confusion[0], work.reading.empty)),
    ),
    MetricInfo(
        "label-count-error",
        "by how many labels the size of the predicted set is off",
        "down",
        DECISIONS,
        RowMeasure(lambda work, _: confusion.label_count_error_of(work.confusion[0])),
    ),
    MetricInfo(
        "AvgPrec",
        "label ranking average precision, ties at the worst rank",
        "up",
        SCORES,
        RowMeasure(lambda work, _: ranking.average_precision_of(work.ranks)),
    ),
    MetricInfo(
        "RankLoss",
        "share of pairs of a positive and a negative that are not strictly in order",
        "down",
        SCORES,
        RowMeasure(lambda work, _: ranking.ranking_error_of(work.ranks)),
    ),
    MetricInfo(
        "coverage-error",
        "how far down the ranking all positives are met",
        "down",
        SCORES,
        RowMeasure(lambda work, _: ranking.coverage_error_of(work.ranks)),
    ),
    MetricInfo(
        "one-error",
        "share of rows whose best label is wrong",
        "down",
        SCORES,
        RowMeasure(lambda work, _: ranking.one_error_of(work.ranks)),
        lists=True,
    ),
    MetricInfo(
        "P@k",
        "share of positives among the first k labels",
        "up",
        SCORES,
        RowMeasure(lambda work, k: at_k.precision_of(work.ranks, k)),
        lists=True,
    ),
    MetricInfo(
        "R@k",
        "share of a row's positives found among the first k labels",
        "up",
        SCORES,
        RowMeasure(lambda work, k: at_k.recall_of(work.ranks, k)),
        lists=True,
    ),
    MetricInfo(
        "nDCG@k",
        "discounted gain of the first k labels over the best possible",
        "up",
        SCORES,
        RowMeasure(lambda work, k: at_k.ndcg_of(work.ranks, k)),
        lists=True,
    ),
    MetricInfo(
        "PSP@k",
        "precision at k in which rare labels are worth more, over the best possible",
        "up",
        SCORES,
        RowMeasure(_propensity_hits, best=_propensity_best),
        lists=True,
    ),
    MetricInfo(
        "mAP",
        "average precision of each label over rows, averaged; 0 without a positive",
        "up",
        ALL_SCORES,
        AreaMeasure(mean_precision("zero")),
    ),
    MetricInfo(
        "mAP-present",
        "average precision of each label over rows, averaged" + _PRESENT,
        "up",
        ALL_SCORES,
        AreaMeasure(mean_precision("skip")),
    ),
    MetricInfo(
        "macro-AUROC", "AUROC of each label that has both kinds of rows, averaged", "up", ALL_SCORES, AreaMeasure(average_auroc)
    ),
    MetricInfo("micro-AUROC", "AUROC over all entries", "up", ALL_SCORES, AreaMeasure(_only_auroc, pooled=True)),
    MetricInfo("mAP-binned", "mAP" + _BINNED, "up", PROBABILITIES, AreaMeasure(mean_precision("zero"), binned=True)),
    MetricInfo(
        "mAP-present-binned", "mAP-present" + _BINNED, "up", PROBABILITIES, AreaMeasure(mean_precision("skip"), binned=True)
    ),
    MetricInfo("macro-AUROC-binned", "macro-AUROC" + _BINNED, "up", PROBABILITIES, AreaMeasure(average_auroc, binned=True)),
    MetricInfo(
        "micro-AUROC-binned", "micro-AUROC" + _BINNED, "up", PROBABILITIES, AreaMeasure(_only_auroc, pooled=True, binned=True)
    ),
    MetricInfo(
        "ECE",
        "expected calibration error over all entries",
        "down",
        PROBABILITIES,
        ProbabilityMeasure("calibration", calibration_error_of, pooled=True),
    ),
    MetricInfo(
        "macro-ECE",
        "expected calibration error of each label, averaged",
        "down",
        PROBABILITIES,
        ProbabilityMeasure("calibration", calibration_error_of),
    ),
    MetricInfo(
        "Brier",
        "mean squared error of the probabilities over all entries",
        "down",
        PROBABILITIES,
        ProbabilityMeasure("squares", brier_error_of, pooled=True),
    ),
    MetricInfo(
        "macro-Brier",
        "mean squared error of the probabilities of each label, averaged",
        "down",
        PROBABILITIES,
        ProbabilityMeasure("squares", brier_error_of),
    ),
)
_BY_NAME = {entry.name: entry for entry in _ENTRIES}
METRICS: Mapping[str, MetricInfo] = MappingProxyType(_BY_NAME)
