"""The isotonic fit: the best increasing map of all scores."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.decisions.calibration.data import CalibrationData


def fit_isotonic(who: str, data: CalibrationData) -> tuple[Tensor, Tensor]:
    """``(knots, levels)`` of the best increasing map.

    Between two scores of positives all labels are 0, and a run of equal labels gets one level. So it is enough to count the
    negatives at and between the distinct scores of positives, without sorting all scores.
    """
    from sklearn.isotonic import isotonic_regression

    found = [s[(t > 0) & (c > 0)] for s, t, c in data.row_blocks()]
    steps, positives = torch.cat(found).unique(return_counts=True)  # type: ignore[no-untyped-call]
    size = 2 * len(steps) + 1
    weight = steps.new_zeros(size)
    least, most = steps.new_full((size,), torch.inf), steps.new_full((size,), -torch.inf)
    for scores, targets, counts in data.row_blocks():
        if bool(((targets > 0) & (targets < 1)).any()):
            raise ValueError(f"{who}: `labels` must be hard, 0 or 1, for kind 'isotonic'. For soft labels use 'platt'.")
        values = scores[(targets == 0) & (counts > 0)]
        place = torch.searchsorted(steps, values)
        same = torch.cat([steps, steps.new_full((1,), torch.inf)])[place] == values
        block = 2 * place + same
        weight += torch.bincount(block, minlength=size)
        least.scatter_reduce_(0, block, values, "amin")
        most.scatter_reduce_(0, block, values, "amax")
    hits = torch.zeros_like(weight)
    hits[1::2] = positives.to(hits)
    weight[1::2] += hits[1::2]
    least[1::2] = most[1::2] = steps
    used = weight > 0
    least, most, rate = least[used], most[used], hits[used] / weight[used]
    fitted = isotonic_regression(rate.cpu().numpy(), sample_weight=weight[used].cpu().numpy(), y_min=0, y_max=1)
    levels, runs = torch.from_numpy(fitted).unique_consecutive(return_counts=True)  # type: ignore[no-untyped-call]
    last = runs.cumsum(0) - 1
    ends = torch.stack([least.cpu()[last - runs + 1], most.cpu()[last]], dim=1).flatten()
    knots, doubled = ends, levels.repeat_interleave(2)
    kept = torch.ones_like(knots, dtype=torch.bool)
    kept[1::2] = knots[1::2] > knots[::2]
    return knots[kept], doubled[kept]
