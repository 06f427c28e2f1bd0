"""Active learning: choose the rows to label next, uncertain and diverse ones."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from manyhot._checks import check_at_least
from manyhot.decisions.rule import DecisionRule

# Number of candidates per row to sample: the most uncertain rows.
POOL = 5


class ChosenRow(NamedTuple):
    """A row to label.

    Attributes:
        row: its row number.
        uncertainty: the sum of ``4 p (1 - p)`` over labels, about the number of uncertain decisions.
        labels: the labels nearest to their threshold, nearest first.
    """

    row: int
    uncertainty: float
    labels: tuple[int, ...]


def choose_rows(logits: Tensor, rule: DecisionRule | None = None, *, rows: int = 100, seed: int = 0) -> list[ChosenRow]:
    """Choose the rows to label next.

    The uncertainty of a row is the sum of ``4 p (1 - p)`` over labels, with ``p = sigmoid(s - t)`` and the threshold ``t``.
    Among the most uncertain rows, five times as many as requested, rows are sampled one after the other with a probability
    that grows with their uncertainty and with the distance of their decisions from those of earlier ones (k-means++), so that
    the rows are diverse.

    Args:
        logits: ``[R, L]`` of rows without labels.
        rule: the model's rule; None is ``s > 0``.
        rows: the number of rows.
        seed: the seed of the sampling.

    Returns:
        The rows in the order they were sampled; the first is the most uncertain one.

    Example:
        >>> logits = torch.tensor([[9.0, -9.0], [0.1, -9.0], [0.1, -9.0], [9.0, 0.2]])
        >>> [each.row for each in choose_rows(logits, rows=2)]
        [1, 3]
    """
    check_at_least("choose_rows", "rows", rows, 1)
    rule = rule or DecisionRule()
    logits = logits.log_softmax(dim=1) if rule.softmax else logits
    logits = logits if rule.row_f1 is None else rule.row_f1.relative(logits)
    cut = torch.tensor(rule.threshold, dtype=torch.float64).nan_to_num(posinf=1e9, neginf=-1e9)
    certainty = torch.sigmoid(logits.double().nan_to_num(0.0) - cut)
    doubt = 4 * certainty * (1 - certainty)
    uncertainty = doubt.sum(dim=1)
    kept = _distinct(certainty, uncertainty.argsort(descending=True, stable=True), POOL * rows)
    # Rows are compared by their uncertain labels and by their decisions.
    points = torch.cat([doubt[kept], certainty[kept]], dim=1)
    order = _spread(points, uncertainty[kept], min(rows, len(kept)), seed)
    nearest = (logits.double() - cut).abs()
    return [
        ChosenRow(row, float(uncertainty[row]), tuple(nearest[row].argsort(stable=True)[:3].tolist()))
        for row in kept[order].tolist()
    ]


def _distinct(points: Tensor, order: Tensor, most: int) -> Tensor:
    """The first ``most`` of ``order``, with duplicates of earlier rows moved to the end."""
    seen: set[bytes] = set()
    fresh: list[int] = []
    again: list[int] = []
    for place in order.tolist():
        key = points[place].float().numpy().tobytes()
        (again if key in seen else fresh).append(place)
        seen.add(key)
        if len(fresh) == most:
            break
    return torch.tensor((fresh + again)[:most], dtype=torch.int64)


def _spread(points: Tensor, weight: Tensor, count: int, seed: int) -> Tensor:
    """Indices of ``count`` points: the first, then sampled by weight times squared distance from earlier ones."""
    if not count:
        return torch.zeros(0, dtype=torch.int64)
    generator = torch.Generator().manual_seed(seed)
    drawn = [0]
    distance = (points - points[0]).square().sum(dim=1)
    free = torch.ones(len(points), dtype=torch.bool)
    free[0] = False
    while len(drawn) < count:
        chance = distance * weight * free
        # Identical rows are taken in order.
        place = int(torch.multinomial(chance, 1, generator=generator)) if float(chance.sum()) > 0 else int(free.nonzero()[0])
        drawn.append(place)
        free[place] = False
        distance = torch.minimum(distance, (points - points[place]).square().sum(dim=1))
    return torch.tensor(drawn)
