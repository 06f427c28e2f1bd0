"""Precision-recall curves over all entries and of some labels; every point lies on the exact curve."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.report.run.judged import INF, Judged, rounded

POINTS = 160
CHUNK = 1 << 22
# The curve of a label with fewer positives has too few steps to be meaningful.
LEAST_POSITIVES = 10


def exact_curve(scores: Tensor, truth: Tensor) -> tuple[Tensor, Tensor, float]:
    """``(recall [T], precision [T], average precision)`` at the score of every positive, in descending order.

    Entries below the lowest positive do not matter. Every other entry costs one binary search; nothing is sorted but the
    positives.

    Args:
        scores: ``[N]``.
        truth: bool ``[N]``.

    Example:
        >>> recall, precision, area = exact_curve(torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, False, True]))
        >>> recall.tolist(), [round(p, 3) for p in precision.tolist()], round(area, 3)
        ([0.5, 1.0], [1.0, 0.667], 0.833)
    """
    scores = scores.nan_to_num(nan=-INF, posinf=INF, neginf=-INF)
    cuts, number = scores[truth].unique(return_counts=True)  # type: ignore[no-untyped-call]
    if not len(cuts):
        return torch.zeros(0), torch.zeros(0), 0.0
    reached = torch.zeros(len(cuts) + 1, dtype=torch.int64)
    for start in range(0, len(scores), CHUNK):
        part = scores[start : start + CHUNK]
        part = part[part >= cuts[0]]
        reached += torch.bincount(torch.searchsorted(cuts, part, right=True), minlength=len(cuts) + 1)
    predicted, hits = reached[1:].flip(0).cumsum(0), number.flip(0).cumsum(0)
    precision = hits.double() / predicted
    return hits.double() / hits[-1], precision, float((precision * number.flip(0)).sum() / hits[-1])


def thinned(recall: Tensor, precision: Tensor, *, points: int = POINTS) -> tuple[Tensor, Tensor]:
    """At most ``points`` points of a curve, spread evenly over the recall, with both ends."""
    if len(recall) <= points:
        return recall, precision
    wanted = torch.linspace(0, 1, points, dtype=torch.float64)
    kept = torch.searchsorted(recall, wanted).clamp(max=len(recall) - 1).unique()  # type: ignore[no-untyped-call]
    return recall[kept], precision[kept]


def measure_curves(judged: Judged, average_precision: Tensor) -> list[dict[str, Any]]:
    """The curve over all entries, and those of the most frequent, the best, the median and the worst label.

    Args:
        judged: scores and truth.
        average_precision: float64 ``[L]``.
    """
    known = judged.where if judged.where is not None else torch.ones(1, 1, dtype=torch.bool)
    truth = judged.positives.dense(torch.bool)
    counted = known.expand_as(truth)
    rows = judged.confusion[1].pooled()
    all_scores, all_truth = judged.all_scores.flatten(), truth.flatten()
    if judged.where is not None:
        all_scores, all_truth = judged.all_scores[counted], truth[counted]
    curves = [_curve("all labels", "every entry", all_scores, all_truth, [int(part[0]) for part in rows])]
    for label, why in chosen_labels(judged, average_precision):
        seen = counted[:, label]
        counts = [int(part[label]) for part in judged.confusion[1]]
        curves.append(
            _curve(
                judged.label_names[label],
                why,
                judged.all_scores[:, label][seen],
                truth[:, label][seen],
                counts,
            )
        )
    return curves


def chosen_labels(judged: Judged, average_precision: Tensor) -> list[tuple[int, str]]:
    """``(label, why)`` of the labels that get a curve, each once."""
    positive = judged.confusion[1].positive
    fit = (positive >= LEAST_POSITIVES).nonzero()[:, 0]
    if not len(fit):
        return []
    order = fit[average_precision[fit].argsort(descending=True, stable=True)].tolist()
    wanted = [
        (int(positive.argmax()), "most frequent"),
        (order[0], "best average precision"),
        (order[len(order) // 2], "median"),
        (order[-1], "worst average precision"),
    ]
    kept: dict[int, str] = {}
    for label, why in wanted:
        kept.setdefault(label, why)
    return list(kept.items())


def _curve(name: str, why: str, scores: Tensor, truth: Tensor, counts: list[int]) -> dict[str, Any]:
    recall, precision, area = exact_curve(scores, truth)
    recall, precision = thinned(recall, precision)
    hits, predicted, positive = counts
    at = [hits / positive, hits / predicted] if positive and predicted else None
    return {
        "name": name,
        "why": why,
        "average_precision": area,
        "positives": positive,
        "recall": rounded(recall, 4),
        "precision": rounded(precision, 4),
        "rule_at": None if at is None else rounded(at),
    }
