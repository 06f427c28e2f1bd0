"""The metrics of scores and of probabilities, as entries of the catalog: rankings, areas under curves, calibration."""

from __future__ import annotations

from torch import Tensor

from manyhot.metrics import at_k, ranking
from manyhot.metrics.calibration import brier_error_of, calibration_error_of
from manyhot.metrics.curves import Areas, average_auroc
from manyhot.metrics.info import (
    ALL_SCORES,
    CERTAINTY,
    LABEL_ORDER,
    PROBABILITIES,
    SCORES,
    WHOLE_ORDER,
    MetricInfo,
)
from manyhot.metrics.measures import AreaMeasure, BlockWork, ProbabilityMeasure, RowMeasure, mean_precision
from manyhot.metrics.set_entries import PRESENT


def _propensity_hits(work: BlockWork, k: int) -> Tensor:
    return at_k.propensity_hits_of(work.ranks, work.weights(), k)


def _propensity_best(work: BlockWork, k: int) -> Tensor:
    return at_k.propensity_best_of(work.block.positives, work.weights(), k)


def _only_auroc(areas: Areas) -> Tensor:
    return areas.auroc[0]


_BINNED = ", scores rounded to bins of probability"
SCORE_METRICS = (
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
        "rank of the lowest positive, ties at the worst rank",
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
        "discounted gain of the first k labels, divided by the largest possible",
        "up",
        SCORES,
        RowMeasure(lambda work, k: at_k.ndcg_of(work.ranks, k)),
        lists=True,
    ),
    MetricInfo(
        "PSP@k",
        "precision at k in which rare labels count more, divided by the largest possible",
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
        "average precision of each label over rows, averaged" + PRESENT,
        "up",
        ALL_SCORES,
        AreaMeasure(mean_precision("skip")),
        aim=LABEL_ORDER,
    ),
    MetricInfo(
        "macro-AUROC",
        "AUROC of each label that has positives and negatives, averaged",
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
