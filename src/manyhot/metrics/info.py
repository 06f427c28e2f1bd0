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
        name: what it is called; ``@k`` stands for a number, as in ``P@5``.
        summary: one line for people.
        direction: ``"up"`` where more is better, ``"down"`` where less is.
        needs: ``"decisions"`` (a rule is applied), ``"scores"``, ``"probabilities"`` (a link is applied), or
            ``"all scores"`` (they are kept until the end: memory grows with the rows).
        measure: how it is computed; see ``manyhot.metrics.measures``.
        lists: whether ``TopScores`` are enough.
        aim: what must be right for it to be good: ``"whole sets"`` of labels, the ``"sets of rows"`` one by one, single
            ``"entries"``, all ``"labels"`` alike, ``"one side"`` of two that must be weighed (precision and recall), the
            ``"order of labels"`` in a row, above all of the first, the ``"order of all labels"`` to the last, the
            ``"order of rows"`` for a label, or ``"certainty"``, the probabilities.
    """

    name: str
    summary: str
    direction: str
    needs: str
    measure: Measure
    lists: bool = False
    aim: str = ROW_ORDER
