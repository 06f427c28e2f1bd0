"""Exact counts of hits and predictions of each label at every position of the threshold slider.

A label is predicted at position g if ``s > threshold + shift[g]``. An entry is therefore predicted at the first n positions and
at no other, and a histogram of n for each label gives the counts at all positions.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot.decisions.best_labels import top_mask
from manyhot.report.run.judged import INF, Judged

POSITIONS = 161
# Entries sampled to choose the range of the slider; the counts use all entries.
SAMPLE = 1 << 20
BLOCK = 1 << 22


class Sweep(NamedTuple):
    """Counts at each of G positions of the slider.

    Attributes:
        shifts: float64 ``[G]``, increasing multiples of one step, which are added to the thresholds.
        own: the position of the model's own rule, or -1 if it has no threshold.
        hits: int64 ``[L, G]``, predicted and true.
        predicted: int64 ``[L, G]``.
        exact_rows: int64 ``[G]``, rows whose label set is exactly right.
        empty_rows: int64 ``[G]``, rows without a predicted label.
    """

    shifts: Tensor
    own: int
    hits: Tensor
    predicted: Tensor
    exact_rows: Tensor
    empty_rows: Tensor


def threshold_sweep(judged: Judged, *, positions: int = POSITIONS) -> Sweep:
    """Count at every position of the slider.

    The rule's limits on the number of labels still apply: the best labels of a row stay the same when all thresholds move
    together.

    Args:
        judged: scores and true labels.
        positions: the maximum number of positions.

    Returns:
        A ``Sweep``.
    """
    shifts = slider_shifts(judged, positions=positions)
    size, num_labels, num_rows = len(shifts), judged.labels.num_labels, len(judged.labels)
    found = torch.zeros((2, num_labels, size + 1), dtype=torch.int64)
    least_true = torch.full((num_rows,), size + 1)
    most_false = torch.zeros(num_rows, dtype=torch.int64)
    most = torch.zeros(num_rows, dtype=torch.int64)
    for start, stop, places in _places(judged, shifts):
        cells = places + torch.arange(stop - start) * (size + 1)
        positives = judged.positives.columns(start, stop)
        true = (positives.rows, positives.indices)
        width = (stop - start) * (size + 1)
        found[0, start:stop] = torch.bincount(cells[true], minlength=width).view(stop - start, size + 1)
        found[1, start:stop] = torch.bincount(cells.flatten(), minlength=width).view(stop - start, size + 1)
        most = most.maximum(places.amax(dim=1))
        least_true.scatter_reduce_(0, true[0], places[true], "amin")
        places[true] = 0
        most_false = most_false.maximum(places.amax(dim=1))
    later = found.flip(-1).cumsum(-1).flip(-1)[:, :, 1:]
    at = torch.arange(size)
    exact = torch.stack([((most_false <= g) & (g < least_true)).sum() for g in at])
    empty = torch.stack([(most <= g).sum() for g in at])
    own = -1 if not judged.rule.by_threshold else int((shifts == 0).nonzero()[0])
    return Sweep(shifts, own, later[0], later[1], exact, empty)


def slider_shifts(judged: Judged, *, positions: int = POSITIONS) -> Tensor:
    """The shifts, float64 ``[G]``: the lowest predicts about five times as many labels as are true, the highest hardly any."""
    scores, cuts = judged.all_scores, judged.thresholds
    stride = max(1, -(-scores.numel() // SAMPLE))
    flat = torch.arange(0, scores.numel(), stride)
    rows, columns = flat // max(scores.shape[1], 1), flat % max(scores.shape[1], 1)
    margin = scores[rows, columns].double() - cuts[columns]
    return shifts_over(margin, judged.positives.indices.numel() / max(scores.numel(), 1), positions=positions)


def shifts_over(margin: Tensor, true: float, *, positions: int) -> Tensor:
    """The positions of a slider from scores minus thresholds, ``margin [N]``; ``true`` is the share of true labels."""
    margin, true = margin[margin.isfinite()].sort(descending=True).values, max(true, 1e-9)
    step, low, high = 0.1, -10, 10
    if len(margin):
        top = float(margin[min(int(true * len(margin) * 0.02), len(margin) - 1)])
        bottom = float(margin[min(int(true * len(margin) * 5), len(margin) - 1)])
        top, bottom = max(top, 0.05 * abs(bottom), 1e-3), min(bottom, -0.05 * abs(top), -1e-3)
        step = _nice_step((top - bottom) / (positions - 3))
        low, high = math.floor(bottom / step), math.ceil(top / step)
    # Multiples of the step, rounded to decimals: 0.1 * 3 is not 0.3.
    digits = max(0, -math.floor(math.log10(step)))
    return torch.tensor([round(place * step, digits) for place in range(low, high + 1)], dtype=torch.float64)


def _nice_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-12))


def _places(judged: Judged, shifts: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """``(start, stop, places [R, stop - start])`` in blocks of labels: the number of positions at which an entry is
    predicted."""
    num_rows, num_labels = judged.all_scores.shape
    rule, size = judged.rule, len(shifts)
    limits = rule.top_k is None and (rule.min_labels or rule.max_labels is not None)
    first = last = None
    if limits:
        key = judged.all_scores.float()
        if isinstance(rule.threshold, tuple):
            key = key - judged.thresholds.float()
        barred = key.isnan() if judged.where is None else key.isnan() | ~judged.where
        key = key.masked_fill(barred, -INF)
        first = top_mask(key, rule.min_labels) if rule.min_labels else None
        last = None if rule.max_labels is None else top_mask(key, rule.max_labels)
    width = max(1, BLOCK // max(num_rows, 1))
    for start in range(0, num_labels, width):
        stop = min(start + width, num_labels)
        scores = judged.all_scores[:, start:stop].double().nan_to_num(nan=-INF, posinf=INF, neginf=-INF)
        edges = judged.thresholds[start:stop].unsqueeze(1) + shifts
        places = torch.searchsorted(edges, scores.T.contiguous()).T.contiguous()
        if judged.where is not None:
            places[~judged.where[:, start:stop]] = 0
        if last is not None:
            places[~last[:, start:stop]] = 0
        if first is not None:
            places[first[:, start:stop]] = size
        yield start, stop, places


def pack_counts(counts: Tensor) -> str:
    """Decreasing counts ``[N, G]`` as text: differences as variable-length integers, runs of zeros as 0 and length, base64.

    Example:
        >>> pack_counts(torch.tensor([[3, 1, 1, 0]]))
        'AgABAQAB'
    """
    steps = (counts - torch.cat([counts[:, 1:], torch.zeros_like(counts[:, :1])], dim=1)).flatten().tolist()
    out = bytearray()
    place = 0
    while place < len(steps):
        value = steps[place]
        place += 1
        if value == 0:
            run = 1
            while place < len(steps) and steps[place] == 0:
                run, place = run + 1, place + 1
            out.append(0)
            value = run
        while value >= 128:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
    return base64.b64encode(bytes(out)).decode()


def unpack_counts(text: str, width: int) -> Tensor:
    """The counts ``[N, width]`` of ``pack_counts``."""
    steps: list[int] = []
    value = shift = 0
    zeros = False
    for byte in base64.b64decode(text):
        value |= (byte & 127) << shift
        shift += 7
        if byte & 128:
            continue
        if zeros:
            steps += [0] * value
        elif value:
            steps.append(value)
        zeros = not zeros and value == 0
        value = shift = 0
    table = torch.from_numpy(np.asarray(steps, dtype=np.int64)).reshape(-1, width)
    return table.flip(-1).cumsum(-1).flip(-1)
