"""Reliability of probabilities, before and after calibration."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.decisions.calibrate import Calibration, fit_calibration
from manyhot.decisions.links import probabilities
from manyhot.metrics.blocks import arrange, blocks
from manyhot.metrics.calibration import add_bins, calibration_error_of
from manyhot.report.run.judged import Judged, rounded

BINS = 15
# Maximum number of entries for fitting a calibration; more would not improve it.
MOST_FITTED = {"temperature": 500_000, "platt": 500_000, "isotonic": 2_000_000, "per-label": 4_000_000}


def measure_reliability(judged: Judged, *, unseen: bool) -> dict[str, Any]:
    """Reliability bins of the probabilities from the link, and of those from a calibration.

    A calibration looks too good on the rows that it was fitted on. Unless the rows are ``unseen``, it is therefore cross-fitted
    on two halves of them.

    Args:
        judged: scores and true labels.
        unseen: whether the model's calibration was fitted on other rows.
    """
    before = None if judged.link is None else _bins(probabilities(judged.all_scores, judged.link), judged)
    after, how = None, ""
    if judged.calibration is not None and unseen:
        after, how = _bins(judged.calibration(judged.all_scores), judged), f"{judged.calibration.kind}, saved with the model"
    elif len(judged.labels) >= 4 and judged.positives.indices.numel() >= 2 and bool(judged.all_scores.isfinite().all()):
        kind = "platt" if judged.calibration is None else judged.calibration.kind
        after = _bins(_cross_fitted(judged, kind), judged)
        how = f"{kind}, cross-fitted on two halves of the rows"
    return {"link": judged.link, "before": before, "after": after, "calibration": how, "saved": judged.calibration is not None}


def _cross_fitted(judged: Judged, kind: str) -> Tensor:
    order = torch.randperm(len(judged.labels), generator=torch.Generator().manual_seed(0))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    probs = torch.empty_like(judged.all_scores)
    most = max(2, MOST_FITTED[kind] // max(judged.labels.num_labels, 1))
    for own, other in (halves, halves[::-1]):
        probs[own] = _fitted(judged.rows(other[:most]), kind)(judged.all_scores[own])
    return probs


def _fitted(judged: Judged, kind: str) -> Calibration:
    return fit_calibration(judged.all_scores, judged.labels, kind=kind, where=judged.where)


def _bins(probs: Tensor, judged: Judged) -> dict[str, Any]:
    total = torch.zeros(3, 1, BINS, dtype=torch.float64)
    for block in blocks(arrange("report", probs, judged.labels, where=judged.where)):
        if isinstance(block.scores, Tensor):
            add_bins(total, block.scores, block)
    count, true, mass = total[:, 0]
    return {
        "ECE": float(calibration_error_of(total)[0]),
        "count": [int(each) for each in count],
        "true": [int(each) for each in true],
        "probability": rounded(mass / count.clamp(min=1)),
    }
