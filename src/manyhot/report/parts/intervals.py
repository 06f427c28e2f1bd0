"""95 % confidence intervals of metrics over rows, by the infinitesimal jackknife."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from manyhot.metrics.at_k import precision_at_k, propensity_best_of, propensity_hits_of
from manyhot.metrics.blocks import arrange, blocks
from manyhot.metrics.confusion import share
from manyhot.metrics.counts import example_f1_score, subset_accuracy_score
from manyhot.metrics.names import parse_metric
from manyhot.metrics.ranking import rank_positives, ranking_average_precision_score, ranking_error
from manyhot.report.run.judged import Judged

NORMAL_95 = 1.959964
ROW_MEANS: dict[str, Callable[..., Tensor]] = {
    "SubACC": subset_accuracy_score,
    "MLC-F1": example_f1_score,
    "AvgPrec": ranking_average_precision_score,
    "RankLoss": ranking_error,
}


def half_width(name: str, judged: Judged) -> float | None:
    """Half the width of the interval of a metric; None for metrics without a formula for the influence of a row.

    Args:
        name: the name of the metric.
        judged: scores and true labels.
    """
    if len(judged.labels) < 2:
        return None
    if name == "micro-F1":
        influences = _micro_influences(judged)
    elif name == "macro-F1":
        influences = _macro_influences(judged)
    elif parse_metric(name).kind == "PSP@k":
        influences = _propensity_influences(judged, parse_metric(name).k)
    else:
        values = _row_values(name, judged)
        if values is None:
            return None
        influences = (values.double() - values.double().mean()) / len(values)
    rows = len(influences)
    return NORMAL_95 * float((influences.square().sum() * (rows / (rows - 1))).sqrt())


def _row_values(name: str, judged: Judged) -> Tensor | None:
    metric = parse_metric(name)
    scored = metric.kind in ("AvgPrec", "RankLoss", "P@k")
    given = judged.logits if scored else judged.predictions
    if metric.kind == "P@k":
        return precision_at_k(judged.logits, judged.labels, k=metric.k, where=judged.where, reduction="none")
    if name not in ROW_MEANS:
        return None
    return ROW_MEANS[name](given, judged.labels, where=judged.where, reduction="none")


def _micro_influences(judged: Judged) -> Tensor:
    """The influence of each row on ``2 hits / (predicted + positive)``."""
    rows = judged.confusion[0]
    found, size = 2 * rows.hits.double(), (rows.predicted + rows.positive).double()
    whole = share(found.sum(), size.sum(), 0.0)
    return (found - whole * size) / size.sum().clamp(min=1)


def _propensity_influences(judged: Judged, k: int) -> Tensor:
    """The influence of each row on ``hits / best``."""
    assert judged.propensities is not None
    table = arrange("half_width", judged.logits, judged.labels, where=judged.where)
    parts = [
        (
            propensity_hits_of(rank_positives(block), judged.propensities, k),
            propensity_best_of(block.positives, judged.propensities, k),
        )
        for block in blocks(table)
    ]
    hits, best = (torch.cat(each) for each in zip(*parts, strict=True))
    whole = share(hits.sum(), best.sum(), 0.0)
    return (hits - whole * best) / best.sum().clamp(min=1e-300)


def _macro_influences(judged: Judged) -> Tensor:
    """The influence of each row on the mean of the labels' F1; entries that are neither predicted nor true have none."""
    labels = judged.confusion[1]
    size = (labels.predicted + labels.positive).double()
    f1 = share(2 * labels.hits.double(), size, 0.0)
    weight = 1.0 / size.clamp(min=1) / max(len(size), 1)
    influences = torch.zeros(len(judged.labels), dtype=torch.float64)
    for listed in (judged.predictions, judged.positives):
        influences.index_add_(0, listed.rows, -(f1 * weight)[listed.indices])
    true = judged.positives
    hit = judged.predictions.contains(true.rows, true.indices)
    return influences.index_add_(0, true.rows[hit], 2 * weight[true.indices[hit]])
