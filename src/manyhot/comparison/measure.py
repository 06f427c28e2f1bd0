"""Metrics of one member on some rows."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from manyhot.decisions.tune import tune_rule
from manyhot.metrics.names import parse_metric
from manyhot.metrics.sums import Sums

RANKINGS = ("AvgPrec", "RankLoss")
AT_K = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


def best_cut(scores: Tensor, truth: Tensor, metric: str) -> float:
    """The threshold that is exactly optimal for ``metric`` on the validation rows."""
    if not bool(truth.any()):
        return 0.0
    threshold = tune_rule(scores, truth.float(), objective=metric, folds=0).rule.threshold
    assert isinstance(threshold, float)
    return max(min(threshold, 1e30), -1e30)


def measure_scores(
    scores: Tensor, truth: Tensor, link: str | None, propensities: Tensor | None = None
) -> dict[str, float | None]:
    """AvgPrec, RankLoss, P@k for k up to the number of labels; PSP@k with propensities; ECE if the loss has a link."""
    at_k = [
        name
        for name in AT_K
        if parse_metric(name).k <= truth.shape[1] and (propensities is not None or not name.startswith("PSP"))
    ]
    names = [*RANKINGS, *at_k, *(["ECE"] if link else [])]
    measured = Sums(names, num_labels=truth.shape[1], link=link, propensities=propensities).to(scores.device)
    measured.update(scores, truth)
    found: dict[str, float | None] = {name: float(value) for name, value in measured.compute().items()}
    return {**found, "ECE": found.get("ECE")}


def measure_decisions(chosen: Tensor, truth: Tensor, names: Sequence[str]) -> dict[str, float]:
    """Metrics of label sets."""
    measured = Sums(list(names), num_labels=truth.shape[1]).to(chosen.device)
    measured.update(chosen.float() * 2 - 1, truth)
    return {name: float(value) for name, value in measured.compute().items()}


def share_without_labels(decisions: Tensor) -> float:
    """The share of rows of bool ``[N, L]`` without a predicted label."""
    return float((~decisions.any(dim=1)).float().mean())
