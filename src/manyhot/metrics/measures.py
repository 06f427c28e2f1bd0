"""The measures of metrics: intermediate results that the metrics of a block share, and the values computed from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.links import probabilities
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.metrics import confusion, ranking
from manyhot.metrics.blocks import Block, Labels
from manyhot.metrics.confusion import Confusion
from manyhot.metrics.curves import Areas

IDENTITY = "identity"


@dataclass(frozen=True)
class ScoreReading:
    """How scores are interpreted: the decision rule, the link to probabilities, and the value of an empty row."""

    rule: DecisionRule
    link: str | Calibration | None
    empty: float
    above: bool


class BlockWork:
    """The counts, ranks and probabilities of one block, each computed once and only if needed."""

    def __init__(self, block: Block, reading: ScoreReading, propensities: Tensor | None) -> None:
        self.block, self.reading, self.propensities = block, reading, propensities

    @cached_property
    def predictions(self) -> Labels:
        """The given predictions, or those of the rule."""
        if self.block.predictions is not None:
            return self.block.predictions
        return decide(self._scores("decisions"), self.reading.rule, where=self.block.where)

    @cached_property
    def confusion(self) -> tuple[Confusion, Confusion]:
        """By row and by label."""
        return confusion.count_sets(self.predictions, self.block.positives)

    @cached_property
    def ranks(self) -> ranking.Ranks:
        """The ranks of the positives."""
        return ranking.rank_positives(self.block, above=self.reading.above)

    @cached_property
    def probs(self) -> Tensor:
        """``[r, L]``."""
        scores = self._scores("probabilities")
        if self.reading.link is None:
            raise ValueError("probabilities need a link; got none: these scores only rank.")
        return scores if self.reading.link == IDENTITY else probabilities(scores, self.reading.link)

    def weights(self) -> Tensor:
        """The propensities."""
        if self.propensities is None:
            raise ValueError("PSP@k needs `propensities`, one per label. Make them with label_propensities.")
        return self.propensities

    def _scores(self, what: str) -> Tensor:
        if not isinstance(self.block.scores, Tensor):
            raise TypeError(f"{what} need the scores of all labels; got {self.block.scores!r}.")
        return self.block.scores


@dataclass(frozen=True)
class RowMeasure:
    """A mean over rows; with ``best``, the sum over rows divided by its largest possible value.

    Attributes:
        value: ``(work, k) -> [r]``; k is the number in the metric's name, 0 if it has none.
        best: the same for the divisor; None divides by the number of rows.
    """

    value: Callable[[BlockWork, int], Tensor]
    best: Callable[[BlockWork, int], Tensor] | None = None


@dataclass(frozen=True)
class LabelMeasure:
    """A number computed from the confusion counts of all labels; ``per_entry`` divides it by the number of entries."""

    value: Callable[[Confusion], Tensor]
    per_entry: bool = False


@dataclass(frozen=True)
class AreaMeasure:
    """A number computed from the areas under the curves of the labels.

    Attributes:
        value: ``Areas -> scalar``.
        pooled: one curve over all entries instead of one for each label.
        binned: computed from bins of probability instead of all scores, so that no scores are kept.
    """

    value: Callable[[Areas], Tensor]
    pooled: bool = False
    binned: bool = False


@dataclass(frozen=True)
class ProbabilityMeasure:
    """A number computed from sums over probabilities.

    Attributes:
        state: ``"calibration"`` (bins, as ``add_bins`` fills them) or ``"squares"`` (as ``add_squares`` does).
        value: ``sums -> [N]``, one for each label.
        pooled: over all entries instead of the mean over labels.
    """

    state: str
    value: Callable[[Tensor], Tensor]
    pooled: bool = False


Measure = RowMeasure | LabelMeasure | AreaMeasure | ProbabilityMeasure


def micro(values: Callable[[Confusion, float], Tensor]) -> LabelMeasure:
    """Precision, recall or F1 over all entries."""
    return LabelMeasure(lambda labels: values(labels.pooled(), 0.0)[0])


def macro(values: Callable[[Confusion, float], Tensor], absent: str = "zero") -> LabelMeasure:
    """Precision, recall or F1 of each label, averaged; ``absent`` says how labels without a positive count."""
    return LabelMeasure(lambda labels: confusion.average_labels(values(labels, 0.0), labels.positive, absent))


def mean_precision(absent: str) -> Callable[[Areas], Tensor]:
    """Average precision of each label, averaged."""
    return lambda areas: confusion.average_labels(areas.average_precision, areas.positive, absent)


def per_label_counts(labels: Confusion) -> dict[str, Tensor]:
    """Precision, recall and F1 of each label, with the counts behind them."""
    kinds = {"F1": confusion.f1_of, "precision": confusion.precision_of, "recall": confusion.recall_of}
    each = {kind: values(labels, 0.0) for kind, values in kinds.items()}
    return each | {"positive": labels.positive, "predicted": labels.predicted}
