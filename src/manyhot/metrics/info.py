"""An entry of the catalog of metrics: what the rest of the library needs to know about a metric."""

from __future__ import annotations

from dataclasses import dataclass

from manyhot.metrics.measures import Measure

DECISIONS, SCORES, PROBABILITIES, ALL_SCORES = "decisions", "scores", "probabilities", "all scores"
# What a metric rewards; training is adapted to it.
WHOLE_SETS, ROW_SETS, ENTRIES, LABELS, ONE_SIDE = "whole sets", "sets of rows", "entries", "labels", "one side"
ROW_ORDER, WHOLE_ORDER, LABEL_ORDER, CERTAINTY = "order of labels", "order of all labels", "order of rows", "certainty"


@dataclass(frozen=True)
class MetricInfo:
    """One entry of the catalog.

    Attributes:
        name: its name; ``@k`` stands for a number, as in ``P@5``.
        summary: a one-line description.
        direction: ``"up"`` if more is better, ``"down"`` if less is.
        needs: ``"decisions"`` (a rule is applied), ``"scores"``, ``"probabilities"`` (a link is applied), or
            ``"all scores"`` (kept until the end, so memory grows with the rows).
        measure: how it is computed; see ``manyhot.metrics.measures``.
        lists: whether ``TopScores`` are enough.
        aim: what the metric rewards: exact ``"whole sets"`` of labels, the ``"sets of rows"`` averaged over rows, single
            ``"entries"``, all ``"labels"`` equally, only ``"one side"`` (precision or recall), the ``"order of labels"`` in a
            row, mostly of the first ones, the ``"order of all labels"`` in a row, the ``"order of rows"`` for a label, or
            ``"certainty"``, the probabilities.
    """

    name: str
    summary: str
    direction: str
    needs: str
    measure: Measure
    lists: bool = False
    aim: str = ROW_ORDER

    @property
    def sign(self) -> int:
        """1 if more is better, -1 if less is: of values times this, the largest is best."""
        return 1 if self.direction == "up" else -1
