"""The input of a report: scores of labelled rows, with the model's rule and link."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.rule import DecisionRule, decide_sparse
from manyhot.decisions.top_lists import decide_top
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.confusion import Confusion, count_sets
from manyhot.scores.top import TopScores
from manyhot.training.rows.bundle import TrainedModel

INF = float("inf")
# Maximum number of scores in a report; with more, rows are sampled.
MOST_ENTRIES = 200_000_000


@dataclass(frozen=True, eq=False)
class Judged:
    """Scores ``[R, L]`` and true labels.

    Args:
        logits: ``[R, L]`` on the CPU, or only the best scores of each row if there are very many labels.
        labels: hard labels ``[R, L]``.
        where: bool ``[R, L]``, True where the label is known; None if all are.
        rule: the decision rule.
        link: the link to probabilities, or None if scores only rank.
        calibration: the fitted calibration, or None.
        label_names: one per label.
        propensities: float64 ``[L]`` for PSP@k, or None if the model does not have them.
    """

    logits: Tensor | TopScores
    labels: SparseLabels
    where: Tensor | None
    rule: DecisionRule
    link: str | None
    calibration: Calibration | None
    label_names: tuple[str, ...]
    propensities: Tensor | None = None

    @classmethod
    def by_model(cls, model: TrainedModel, logits: Tensor | TopScores, labels: SparseLabels, where: Tensor | None) -> Judged:
        """Scores of ``model``, with its rule, link and calibration."""
        propensities, rule = model.propensities() if model.has_propensities else None, model.rule
        if rule.softmax and isinstance(logits, TopScores):
            logits, rule = logits.log_softmax(), replace(rule, softmax=False)
        return cls(logits, labels, where, rule, model.link, model.calibration, model.label_names, propensities)

    @property
    def listed(self) -> bool:
        """Whether only the best scores of each row are known."""
        return isinstance(self.logits, TopScores)

    @property
    def all_scores(self) -> Tensor:
        """The scores of all labels; an error if only the best of each row are known."""
        if isinstance(self.logits, TopScores):
            raise TypeError(f"report: the scores of all labels are needed; got {self.logits!r}.")
        return self.logits

    def scores_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """float64 ``[N]``: the scores of some entries; an unlisted entry gets the lowest listed score of its row."""
        if not isinstance(self.logits, TopScores):
            return self.logits[rows, columns].double()
        values, indices = self.logits.values, self.logits.indices
        found = indices[rows] == columns.unsqueeze(1)
        lowest = values.masked_fill(indices < 0, INF).amin(dim=1)
        place = found.int().argmax(dim=1)
        return torch.where(found.any(dim=1), values[rows, place], lowest[rows]).double()

    @cached_property
    def positives(self) -> SparseLabels:
        """The labels that are true and known."""
        if self.where is None:
            return self.labels
        kept = self.where[self.labels.rows, self.labels.indices]
        offsets = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])[self.labels.offsets]
        return SparseLabels(self.labels.indices[kept], offsets, self.labels.num_labels, validate=False)

    @cached_property
    def predictions(self) -> SparseLabels:
        """The predictions of the rule."""
        if isinstance(self.logits, TopScores):
            return decide_top(self.logits, self.rule)
        return decide_sparse(self.logits, self.rule, where=self.where)

    @cached_property
    def confusion(self) -> tuple[Confusion, Confusion]:
        """The confusion counts of each row, and of each label."""
        return count_sets(self.predictions, self.positives)

    @cached_property
    def thresholds(self) -> Tensor:
        """The thresholds of the labels, float64 ``[L]``; 0 if the rule predicts the k best labels."""
        own = self.rule.threshold
        if isinstance(own, tuple):
            return torch.tensor(own, dtype=torch.float64)
        return torch.full((self.labels.num_labels,), float(own), dtype=torch.float64)

    def rows(self, index: Tensor) -> Judged:
        """The rows of ``index`` only."""
        where = None if self.where is None else self.where[index]
        return replace(self, logits=self.logits[index], labels=self.labels[index], where=where)


@dataclass(frozen=True)
class Origin:
    """Which rows were evaluated, and the examples they come from.

    Args:
        what: ``"test"``, ``"validation"``, ``"held out"`` (a share of the training rows) or ``"cross-fitted"`` (every
            training row, scored by a fit that was not trained on it).
        examples: the examples.
        rows: int64 ``[R]``, the row of ``examples`` of each evaluated row; None for all rows in order.
        files: the names of the files.
        drawn_from: the number of all rows, if a sample was evaluated; 0 otherwise.
    """

    what: str
    examples: Examples
    rows: Tensor | None = None
    files: tuple[str, ...] = ()
    drawn_from: int = 0

    def place(self, row: int) -> int:
        """The row of ``examples``."""
        return row if self.rows is None else int(self.rows[row])


def drawn_rows(num_rows: int, num_labels: int, *, most: int = MOST_ENTRIES) -> Tensor | None:
    """A random sample of rows, in order, if there are more than ``most`` scores; None for all rows.

    Example:
        >>> drawn_rows(1000, 10)
        >>> len(drawn_rows(1000, 10, most=500))
        50
    """
    if num_rows * num_labels <= most:
        return None
    order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(0))
    return order[: max(1, most // num_labels)].sort().values


def rounded(values: Any, digits: int = 5) -> list[Any]:
    """Round numbers to this many significant digits, for JSON; NaN and infinity become None."""
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return [_round(value, digits) for value in listed]


def _round(value: Any, digits: int) -> Any:
    if isinstance(value, list):
        return [_round(part, digits) for part in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if abs(value) < INF else None
    return value
