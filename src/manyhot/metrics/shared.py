"""The work that the metrics of one block share, and what each metric reads off it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import torch
from torch import Tensor

from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.links import probabilities
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.metrics import at_k, counts, ranking
from manyhot.metrics.blocks import Block, Labels
from manyhot.metrics.counts import Confusion
from manyhot.metrics.curves import Areas, average_auroc

IDENTITY = "identity"


@dataclass(frozen=True)
class Reading:
    """How scores are read: what decides, what gives probabilities, what a row with nothing in it is worth."""

    rule: DecisionRule
    link: str | Calibration | None
    empty: float
    above: bool


class BlockWork:
    """One block's counts, ranks and probabilities, each made once and only if asked for."""

    def __init__(self, block: Block, reading: Reading, propensities: Tensor | None) -> None:
        self.block, self.reading, self.propensities = block, reading, propensities

    @cached_property
    def predictions(self) -> Labels:
        """What was given, or what the rule says."""
        if self.block.predictions is not None:
            return self.block.predictions
        return decide(self._scores("decisions"), self.reading.rule, where=self.block.where)

    @cached_property
    def confusion(self) -> tuple[Confusion, Confusion]:
        """By row and by label."""
        return counts.count_sets(self.predictions, self.block.positives)

    @cached_property
    def ranks(self) -> ranking.Ranks:
        """Where the positives stand."""
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


RowValues = Callable[[BlockWork, int], Tensor]

ROW_VALUES: Mapping[str, RowValues] = MappingProxyType(
    {
        "SubACC": lambda work, _: counts.subset_accuracy_of(work.confusion[0]),
        "MLC-F1": lambda work, _: counts.f1_of(work.confusion[0], work.reading.empty),
        "jaccard": lambda work, _: counts.jaccard_of(work.confusion[0], work.reading.empty),
        "label-count-error": lambda work, _: counts.label_count_error_of(work.confusion[0]),
        "AvgPrec": lambda work, _: ranking.average_precision_of(work.ranks),
        "RankLoss": lambda work, _: ranking.ranking_error_of(work.ranks),
        "coverage-error": lambda work, _: ranking.coverage_error_of(work.ranks),
        "one-error": lambda work, _: ranking.one_error_of(work.ranks),
        "P@k": lambda work, k: at_k.precision_of(work.ranks, k),
        "R@k": lambda work, k: at_k.recall_of(work.ranks, k),
        "nDCG@k": lambda work, k: at_k.ndcg_of(work.ranks, k),
        "PSP@k": lambda work, k: at_k.propensity_hits_of(work.ranks, work.weights(), k),
    }
)


def best_psp(work: BlockWork, k: int) -> Tensor:
    """What PSP@k is divided by, ``[r]``."""
    return at_k.propensity_best_of(work.block.positives, work.weights(), k)


def _micro(values: Callable[[Confusion, float], Tensor]) -> Callable[[Confusion], Tensor]:
    return lambda labels: values(labels.pooled(), 0.0)[0]


def _macro(values: Callable[[Confusion, float], Tensor], absent: str) -> Callable[[Confusion], Tensor]:
    return lambda labels: counts.average_labels(values(labels, 0.0), labels.positive, absent)


_LABEL_KINDS = {"F1": counts.f1_of, "precision": counts.precision_of, "recall": counts.recall_of}

LABEL_VALUES: Mapping[str, Callable[[Confusion], Tensor]] = MappingProxyType(
    {f"micro-{kind}": _micro(values) for kind, values in _LABEL_KINDS.items()}
    | {f"macro-{kind}": _macro(values, "zero") for kind, values in _LABEL_KINDS.items()}
    | {f"macro-{kind}-present": _macro(values, "skip") for kind, values in _LABEL_KINDS.items()}
    | {"hamming-error": lambda labels: counts.wrong_of(labels).sum()}
)

AREA_VALUES: Mapping[str, Callable[[Areas], Tensor]] = MappingProxyType(
    {
        "mAP": lambda areas: counts.average_labels(areas.average_precision, areas.positive, "zero"),
        "mAP-present": lambda areas: counts.average_labels(areas.average_precision, areas.positive, "skip"),
        "macro-AUROC": average_auroc,
        "micro-AUROC": lambda areas: areas.auroc[0],
    }
)


def per_label_counts(labels: Confusion) -> dict[str, Tensor]:
    """Precision, recall and F1 of each label, with the counts behind them."""
    each = {kind: values(labels, 0.0) for kind, values in _LABEL_KINDS.items()}
    return each | {"positive": labels.positive, "predicted": labels.predicted}


def zeros(*sizes: int) -> Tensor:
    """A float64 state."""
    return torch.zeros(sizes, dtype=torch.float64)
