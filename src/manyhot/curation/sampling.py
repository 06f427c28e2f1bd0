"""Which rows to label next: those whose decisions are least certain, chosen to be diverse."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from manyhot._checks import check_at_least
from manyhot.decisions.rule import DecisionRule

# Candidates by uncertainty for each row that is chosen among them for diversity.
POOL = 5


class ChosenRow(NamedTuple):
    """A row to label.

    Attributes:
        row: its place.
        uncertainty: how many decisions of the row are expected to be open: the sum of ``4 p (1 - p)`` over labels.
        labels: the labels nearest to the rule, the nearest first.
    """

    row: int
    uncertainty: float
    labels: tuple[int, ...]


def choose_rows(logits: Tensor, rule: DecisionRule | None = None, *, rows: int = 100, seed: int = 0) -> list[ChosenRow]:
    """The rows to label next.

    ``p = sigmoid(s - t)`` is the certainty of a decision with the threshold ``t``; a row is as uncertain as the sum of
    ``4 p (1 - p)``. Among the most uncertain rows, five times as many as requested, rows are drawn one after the other with a
    probability that grows with their uncertainty and with the distance of their decisions from those drawn before (k-means++),
    so that the rows are not all alike.

    Args:
        logits: ``[R, L]`` of rows without labels.
        rule: the model's rule; None is ``s > 0``.
        rows: how many.
        seed: of the draws.

    Returns:
        The rows in the order they were drawn; the first is the most uncertain one.

    Example:
        >>> logits = torch.tensor([[9.0, -9.0], [0.1, -9.0], [0.1, -9.0], [9.0, 0.2]])
        >>> [each.row for each in choose_rows(logits, rows=2)]
        [1, 3]
    """
    check_at_least("choose_rows", "rows", rows, 1)
    rule = rule or DecisionRule()
    logits = logits.log_softmax(dim=1) if rule.softmax else logits
    cut = torch.tensor(rule.threshold, dtype=torch.float64).nan_to_num(posinf=1e9, neginf=-1e9)
    certainty = torch.sigmoid(logits.double().nan_to_num(0.0) - cut)
    doubt = 4 * certainty * (1 - certainty)
    uncertainty = doubt.sum(dim=1)
    kept = _distinct(certainty, uncertainty.argsort(descending=True, stable=True), POOL * rows)
    # A row is informative where it is uncertain: rows are compared by their uncertain labels and by their decisions.
    points = torch.cat([doubt[kept], certainty[kept]], dim=1)
    order = _spread(points, uncertainty[kept], min(rows, len(kept)), seed)
    nearest = (logits.double() - cut).abs()
    return [
        ChosenRow(row, float(uncertainty[row]), tuple(nearest[row].argsort(stable=True)[:3].tolist()))
        for row in kept[order].tolist()
    ]


def _distinct(points: Tensor, order: Tensor, most: int) -> Tensor:
    """The first ``most`` of ``order``; rows that equal an earlier one come after all others."""
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
    """Places of ``count`` points: the first, then by weight times squared distance from those drawn."""
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
