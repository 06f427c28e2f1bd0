"""The names of metrics as people say them, and what each metric needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from manyhot._suggest import nearest

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
        lists: whether ``TopScores`` are enough.
    """

    name: str
    summary: str
    direction: str
    needs: str
    lists: bool = False


@dataclass(frozen=True)
class MetricName:
    """A name that was read: the entry of the catalog it means and, where the name has one, its number."""

    text: str
    info: MetricInfo
    k: int = 0

    @property
    def kind(self) -> str:
        """The name of the entry."""
        return self.info.name


_PRESENT = "; labels without a positive are left out"
_BINNED = ", scores rounded to bins of probability"

_ENTRIES = (
    MetricInfo("SubACC", "share of rows whose label set is exactly right", "up", DECISIONS),
    MetricInfo("MLC-F1", "F1 of each row's label set, averaged over rows", "up", DECISIONS),
    MetricInfo("micro-F1", "F1 over all entries", "up", DECISIONS),
    MetricInfo("macro-F1", "F1 of each label, averaged; labels without a positive count as 0", "up", DECISIONS),
    MetricInfo("macro-F1-present", "F1 of each label, averaged" + _PRESENT, "up", DECISIONS),
    MetricInfo("micro-precision", "share of predicted entries that are true", "up", DECISIONS),
    MetricInfo("macro-precision", "precision of each label, averaged; 0 where never predicted", "up", DECISIONS),
    MetricInfo("macro-precision-present", "precision of each label, averaged" + _PRESENT, "up", DECISIONS),
    MetricInfo("micro-recall", "share of true entries that are predicted", "up", DECISIONS),
    MetricInfo("macro-recall", "recall of each label, averaged; labels without a positive count as 0", "up", DECISIONS),
    MetricInfo("macro-recall-present", "recall of each label, averaged" + _PRESENT, "up", DECISIONS),
    MetricInfo("hamming-error", "share of entries that are wrong", "down", DECISIONS),
    MetricInfo("jaccard", "overlap of each row's label sets, averaged over rows", "up", DECISIONS),
    MetricInfo("label-count-error", "by how many labels the size of the predicted set is off", "down", DECISIONS),
    MetricInfo("AvgPrec", "label ranking average precision, ties at the worst rank", "up", SCORES),
    MetricInfo("RankLoss", "share of pairs of a positive and a negative that are not strictly in order", "down", SCORES),
    MetricInfo("coverage-error", "how far down the ranking all positives are met", "down", SCORES),
    MetricInfo("one-error", "share of rows whose best label is wrong", "down", SCORES, lists=True),
    MetricInfo("P@k", "share of positives among the first k labels", "up", SCORES, lists=True),
    MetricInfo("R@k", "share of a row's positives found among the first k labels", "up", SCORES, lists=True),
    MetricInfo("nDCG@k", "discounted gain of the first k labels over the best possible", "up", SCORES, lists=True),
    MetricInfo("PSP@k", "precision at k in which rare labels are worth more, over the best possible", "up", SCORES, lists=True),
    MetricInfo("mAP", "average precision of each label over rows, averaged; 0 without a positive", "up", ALL_SCORES),
    MetricInfo("mAP-present", "average precision of each label over rows, averaged" + _PRESENT, "up", ALL_SCORES),
    MetricInfo("macro-AUROC", "AUROC of each label that has both kinds of rows, averaged", "up", ALL_SCORES),
    MetricInfo("micro-AUROC", "AUROC over all entries", "up", ALL_SCORES),
    MetricInfo("mAP-binned", "mAP" + _BINNED, "up", PROBABILITIES),
    MetricInfo("mAP-present-binned", "mAP-present" + _BINNED, "up", PROBABILITIES),
    MetricInfo("macro-AUROC-binned", "macro-AUROC" + _BINNED, "up", PROBABILITIES),
    MetricInfo("micro-AUROC-binned", "micro-AUROC" + _BINNED, "up", PROBABILITIES),
    MetricInfo("ECE", "expected calibration error over all entries", "down", PROBABILITIES),
    MetricInfo("macro-ECE", "expected calibration error of each label, averaged", "down", PROBABILITIES),
    MetricInfo("Brier", "mean squared error of the probabilities over all entries", "down", PROBABILITIES),
    MetricInfo("macro-Brier", "mean squared error of the probabilities of each label, averaged", "down", PROBABILITIES),
)

METRICS: Mapping[str, MetricInfo] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def parse_metric(name: str) -> MetricName:
    """Read the name of a metric.

    Example:
        >>> parse_metric("nDCG@5").kind, parse_metric("nDCG@5").k
        ('nDCG@k', 5)
        >>> parse_metric("subacc")
        Traceback (most recent call last):
            ...
        ValueError: parse_metric: `name` must be the name of a metric; got 'subacc'. Did you mean 'SubACC'?
    """
    if not isinstance(name, str):
        raise TypeError(f"parse_metric: `name` must be a str; got {type(name).__name__}.")
    if name in METRICS and not name.endswith("@k"):
        return MetricName(name, METRICS[name])
    at = re.fullmatch(r"(.+)@([1-9][0-9]*)", name, re.ASCII)
    if at and f"{at[1]}@k" in METRICS:
        return MetricName(name, METRICS[f"{at[1]}@k"], int(at[2]))
    raise ValueError(f"parse_metric: `name` must be the name of a metric; got {name!r}.{_hint(name)}")


def _hint(name: str) -> str:
    """The nearest name, whatever its case; for a metric at k with the number that was meant, or 5."""
    number = re.search(r"@(\d+)$", name)
    k = str(int(number[1]) or 5) if number else "5"
    spelled = {entry.lower().replace("@k", f"@{k}"): entry.replace("@k", f"@{k}") for entry in METRICS}
    if name.lower() in spelled:
        return f" Did you mean {spelled[name.lower()]!r}?"
    close = nearest(name.lower(), spelled)
    for lower, right in spelled.items():
        if repr(lower) in close:
            return f" Did you mean {right!r}?"
    return f" There are {', '.join(METRICS)}."
