"""The catalog of metrics: what each is called, what it needs and how it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor

from manyhot.metrics import at_k, confusion, ranking
from manyhot.metrics.calibration import brier_error_of, calibration_error_of
from manyhot.metrics.curves import Areas, average_auroc
from manyhot.metrics.info import (
    ALL_SCORES,
    CERTAINTY,
    DECISIONS,
    ENTRIES,
    LABEL_ORDER,
    LABELS,
    ONE_SIDE,
    PROBABILITIES,
    ROW_SETS,
    SCORES,
    WHOLE_ORDER,
    WHOLE_SETS,
    MetricInfo,
)
from manyhot.metrics.measures import (
    AreaMeasure,
    BlockWork,
    LabelMeasure,
    ProbabilityMeasure,
    RowMeasure,
    macro,
    mean_precision,
    micro,
)


def _propensity_hits(work: BlockWork, k: int) -> Tensor:
    return at_k.propensity_hits_of(work.ranks, work.weights(), k)


def _propensity_best(work: BlockWork, k: int) -> Tensor:
    return at_k.propensity_best_of(work.block.positives, work.weights(), k)


def _only_auroc(areas: Areas) -> Tensor:
    return areas.auroc[0]


_PRESENT, _BINNED = "; labels without a positive are left out", ", scores rounded to bins of probability"
_ENTRIES = (
    MetricInfo(
        "SubACC",
        "share of rows whose label set is exactly right",
        "up",
        DECISIONS,
        RowMeasure(lambda work, _: confusion.subset_accuracy_of(work.confusion[0])),
        aim=WHOLE_SETS,
    ),
    MetricInfo(
        "MLC-F1",
        "F1 of each row's label set, averaged over rows",
        "up",
        DECISIONS,
        RowMeasure(lambda work, _: confusion.f1_of(work.confusion[0], work.reading.empty)),
        aim=ROW_SETS,
    ),
    MetricInfo("micro-F1", "F1 over all entries", "up", DECISIONS, micro(confusion.f1_of), aim=ENTRIES),
    MetricInfo(
        "macro-F1",
        "F1 of each label, averaged; labels without a positive count as 0",
        "up",
        DECISIONS,
        macro(confusion.f1_of),
        aim=LABELS,
    ),
    MetricInfo(
        "macro-F1-present", "F1 of each label, averaged" + _PRESENT, "up", DECISIONS, macro(confusion.f1_of, "skip"), aim=LABELS
    ),
    MetricInfo(
        "micro-precision",
        "share of predicted entries that are true",
        "up",
        DECISIONS,
        micro(confusion.precision_of),
        aim=ONE_SIDE,
    ),
    MetricInfo(
        "macro-precision",
        "precision of each label, averaged; 0 where never predicted",
        "up",
        DECISIONS,
        macro(confusion.precision_of),
        aim=ONE_SIDE,
    ),
    MetricInfo(
        "macro-precision-present",
        "precision of each label, averaged" + _PRESENT,
        "up",
        DECISIONS,
        macro(confusion.precision_of, "skip"),
        aim=ONE_SIDE,
    ),
    MetricInfo(
        "micro-recall", "share of true entries that are predicted", "up", DECISIONS, micro(confusion.recall_of), aim=ONE_SIDE
    ),
    MetricInfo(
        "macro-recall",
        "recall of each label, averaged; labels without a positive count as 0",
        "up",
        DECISIONS,
        macro(confusion.recall_of),
        aim=ONE_SIDE,
    ),
    MetricInfo(
        "macro-recall-present",
        "recall of each label, averaged" + _PRESENT,
        "up",
        DECISIONS,
        macro(confusion.recall_of, "skip"),
        aim=ONE_SIDE,
    ),
    MetricInfo(
        "hamming-error",
        "share of entries that are wrong",
        "down",
        DECISIONS,
        LabelMeasure(lambda labels: confusion.wrong_of(labels).sum(), per_entry=True),
        aim=ENTRIES,
    ),
    MetricInfo(
        "jaccard",
        "overlap of each row's label sets, averaged over rows",
        "up",
        DECISIONS,
        RowMeasure(lambda work, _: confusion.jaccard_of(work.confusion[0], work.reading.empty)),
        aim=ROW_SETS,
    ),
    MetricInfo(
        "label-count-error",
        "by how many labels the size of the predicted set is off",
        "down",
        DECISIONS,
        RowMeasure(lambda work, _: confusion.label_count_error_of(work.confusion[0])),
        aim=ROW_SETS,
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
        aim=WHOLE_ORDER,
    ),
    MetricInfo(
        "coverage-error",
        "how far down the ranking all positives are met",
        "down",
        SCORES,
        RowMeasure(lambda work, _: ranking.coverage_error_of(work.ranks)),
        aim=WHOLE_ORDER,
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
        aim=LABEL_ORDER,
    ),
    MetricInfo(
        "mAP-present",
        "average precision of each label over rows, averaged" + _PRESENT,
        "up",
        ALL_SCORES,
        AreaMeasure(mean_precision("skip")),
        aim=LABEL_ORDER,
    ),
    MetricInfo(
        "macro-AUROC",
        "AUROC of each label that has both kinds of rows, averaged",
        "up",
        ALL_SCORES,
        AreaMeasure(average_auroc),
        aim=LABEL_ORDER,
    ),
    MetricInfo(
        "micro-AUROC", "AUROC over all entries", "up", ALL_SCORES, AreaMeasure(_only_auroc, pooled=True), aim=LABEL_ORDER
    ),
    MetricInfo(
        "mAP-binned", "mAP" + _BINNED, "up", PROBABILITIES, AreaMeasure(mean_precision("zero"), binned=True), aim=LABEL_ORDER
    ),
    MetricInfo(
        "mAP-present-binned",
        "mAP-present" + _BINNED,
        "up",
        PROBABILITIES,
        AreaMeasure(mean_precision("skip"), binned=True),
        aim=LABEL_ORDER,
    ),
    MetricInfo(
        "macro-AUROC-binned",
        "macro-AUROC" + _BINNED,
        "up",
        PROBABILITIES,
        AreaMeasure(average_auroc, binned=True),
        aim=LABEL_ORDER,
    ),
    MetricInfo(
        "micro-AUROC-binned",
        "micro-AUROC" + _BINNED,
        "up",
        PROBABILITIES,
        AreaMeasure(_only_auroc, pooled=True, binned=True),
        aim=LABEL_ORDER,
    ),
    MetricInfo(
        "ECE",
        "expected calibration error over all entries",
        "down",
        PROBABILITIES,
        ProbabilityMeasure("calibration", calibration_error_of, pooled=True),
        aim=CERTAINTY,
    ),
    MetricInfo(
        "macro-ECE",
        "expected calibration error of each label, averaged",
        "down",
        PROBABILITIES,
        ProbabilityMeasure("calibration", calibration_error_of),
        aim=CERTAINTY,
    ),
    MetricInfo(
        "Brier",
        "mean squared error of the probabilities over all entries",
        "down",
        PROBABILITIES,
        ProbabilityMeasure("squares", brier_error_of, pooled=True),
        aim=CERTAINTY,
    ),
    MetricInfo(
        "macro-Brier",
        "mean squared error of the probabilities of each label, averaged",
        "down",
        PROBABILITIES,
        ProbabilityMeasure("squares", brier_error_of),
        aim=CERTAINTY,
    ),
)
_BY_NAME = {entry.name: entry for entry in _ENTRIES}
METRICS: Mapping[str, MetricInfo] = MappingProxyType(_BY_NAME)
