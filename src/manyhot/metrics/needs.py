"""Checks that rows have the scores, labels and probabilities that metrics need, before anything is counted."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from manyhot.metrics.at_k import check_k
from manyhot.metrics.blocks import Table
from manyhot.metrics.info import DECISIONS, PROBABILITIES
from manyhot.metrics.names import MetricName
from manyhot.scores.top import TopScores


def check_table(who: str, table: Table, names: Sequence[MetricName], num_labels: int, device: torch.device) -> None:
    """Raise ``ValueError`` if the labels, the device or the scores of the rows do not fit the metrics."""
    if table.num_labels != num_labels:
        raise ValueError(
            f"{who}: `scores` must have num_labels = {num_labels} labels; got {table.num_labels}."
            " Encode with the same label names."
        )
    if table.labels.device != device:
        raise ValueError(
            f"{who}: `labels` must be on the device of the metrics, {str(device)!r}; got"
            f" {str(table.labels.device)!r}. Call metrics.to(device) once."
        )
    for name in names:
        if name.info.needs == DECISIONS and table.predictions is not None:
            continue
        if table.scores is None or (isinstance(table.scores, TopScores) and not name.info.lists):
            got = "no scores" if table.scores is None else repr(table.scores)
            also = " or `predictions`" if name.info.needs == DECISIONS else ""
            raise ValueError(f"{who}: {name.text} needs the scores of all labels{also}; got {got}.")
        if name.k:
            check_k(f"{who}, {name.text}", table.scores, name.k)


def refuse_probabilities(who: str, names: Sequence[MetricName]) -> None:
    """Raise ``ValueError`` for metrics of probabilities if scores only rank."""
    asked = [name.text for name in names if name.info.needs == PROBABILITIES]
    if asked:
        raise ValueError(
            f"{who}: probabilities are needed for {', '.join(asked)}, but these scores only rank. Leave these metrics out, or"
            " train with `calibrate`, or fit a calibration (manyhot.fit_calibration) and pass it as `link`."
        )
