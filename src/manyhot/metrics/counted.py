"""Metrics of label sets from counts that one read of the scores gives (CUDA): no predictions, and no copy of the scores."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.decisions.rule import DecisionRule
from manyhot.engines.triton.counts import Counts, count_above, counts_here
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.blocks import NO_FAULT, Table
from manyhot.metrics.confusion import Confusion
from manyhot.metrics.measures import BlockWork, ScoreReading


class CountedRows(NamedTuple):
    """The counts of all rows of a table, and the number of entries of each row that count."""

    counts: Counts
    known: Tensor

    def faults(self, start: int | Tensor) -> Tensor:
        """int64 ``[3]``, as those of a block whose first row has the number ``start``; the last is never one."""
        late = self.counts.late
        return torch.where(late > 0, start + len(self.known) - late.long(), NO_FAULT)


class CountedWork(BlockWork):
    """What the metrics of label sets need of rows that are counted already; there are no scores."""

    def __init__(self, counted: CountedRows, reading: ScoreReading) -> None:
        self.counts, self.reading = counted.counts, reading

    @cached_property
    def confusion(self) -> tuple[Confusion, Confusion]:
        """By row and by label."""
        return Confusion(*self.counts.by_row.long()), Confusion(*self.counts.by_label.long())


def count_rows(table: Table, rule: DecisionRule, *, by_row: bool) -> CountedRows | None:
    """Count the predictions of a rule; None if the rule does more than compare with thresholds, or if no kernel counts.

    Args:
        table: scores and labels.
        rule: the rule.
        by_row: whether predictions and hits are counted by row, too.
    """
    scores, limited = table.scores, rule.min_labels or rule.max_labels is not None
    if not isinstance(scores, Tensor) or table.predictions is not None or limited or not rule.by_threshold:
        return None
    per_label = isinstance(rule.threshold, tuple)
    # A rule for other labels is an error, which ``decide`` raises.
    if not counts_here(scores) or (isinstance(rule.threshold, tuple) and len(rule.threshold) != table.num_labels):
        return None
    found = count_above(
        scores,
        rule.cuts.on(scores.device, torch.float32) if per_label else rule.cuts.number(torch.float32),
        truth=table.labels if isinstance(table.labels, Tensor) else None,
        lists=(table.labels.rows, table.labels.indices) if isinstance(table.labels, SparseLabels) else None,
        where=table.where,
        by_row=by_row,
    )
    if found is None:
        return None
    known = found.late.new_full((table.num_rows,), table.num_labels)
    return CountedRows(found, known if table.where is None else table.where.sum(dim=1))
