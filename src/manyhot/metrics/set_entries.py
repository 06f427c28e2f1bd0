"""The metrics of predicted label sets, as entries of the catalog."""

from __future__ import annotations

from manyhot.metrics import confusion
from manyhot.metrics.info import DECISIONS, ENTRIES, LABELS, ONE_SIDE, ROW_SETS, WHOLE_SETS, MetricInfo
from manyhot.metrics.measures import LabelMeasure, RowMeasure, macro, micro

PRESENT = "; labels without a positive are skipped"
SET_METRICS = (
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
        "macro-F1-present", "F1 of each label, averaged" + PRESENT, "up", DECISIONS, macro(confusion.f1_of, "skip"), aim=LABELS
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
        "precision of each label, averaged" + PRESENT,
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
        "recall of each label, averaged" + PRESENT,
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
        "difference between the sizes of the predicted and the true set",
        "down",
        DECISIONS,
        RowMeasure(lambda work, _: confusion.label_count_error_of(work.confusion[0])),
        aim=ROW_SETS,
    ),
)
