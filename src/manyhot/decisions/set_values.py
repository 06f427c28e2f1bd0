"""Decisions for whole label sets: the sum of a set's scores, and a value for the set itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from manyhot._sparse import sparse_tensor
from manyhot.labels.sparse import SparseLabels
from manyhot.scores.linear import LinearScores

INF = math.inf
# The largest number of rows times sets that are scored at once.
BLOCK_ELEMENTS = 1 << 22
# Replaces infinite scores, so that the sum over a set is finite.
LARGEST = 1e30


@dataclass(frozen=True)
class SetValues:
    """Values of whole label sets, as part of a ``DecisionRule``.

    The rule predicts the set S with the highest ``sum over S of (s_i - threshold_i) + value(S)``. All sets are candidates.
    Unlisted sets have the value ``other``; the best of them is the set of labels above the threshold, so only that one and the
    listed sets are compared. Ties go to a listed set, then to the first.

    Args:
        sets: the listed sets, each as increasing label numbers.
        values: the value of each set.
        other: the value of every unlisted set, at most that of any listed one; ``-inf`` predicts only listed sets.

    Example:
        >>> known = SetValues(((0, 1), (2,)), (0.5, 0.0), -1.0)
        >>> SetValues.from_json(known.to_json()) == known
        True
    """

    sets: tuple[tuple[int, ...], ...]
    values: tuple[float, ...]
    other: float = 0.0

    def __post_init__(self) -> None:
        who = "SetValues"
        object.__setattr__(self, "sets", tuple(tuple(int(label) for label in each) for each in self.sets))
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        object.__setattr__(self, "other", float(self.other))
        if not self.sets or len(self.values) != len(self.sets):
            raise ValueError(
                f"{who}: `values` must have one number per set, at least 1; got {len(self.values)} for {len(self.sets)} sets."
            )
        if len(set(self.sets)) != len(self.sets):
            raise ValueError(f"{who}: `sets` must be distinct; some are listed twice.")
        for each in self.sets:
            if any(label < 0 for label in each) or list(each) != sorted(set(each)):
                raise ValueError(f"{who}: `sets` must be increasing label numbers; got {list(each)}.")
        if not all(map(math.isfinite, self.values)) or not self.other <= min(self.values):
            raise ValueError(f"{who}: `values` must be finite numbers, and `other` at most the least of them.")

    @property
    def num_labels(self) -> int:
        """One more than the highest label number in the sets."""
        return max((each[-1] + 1 for each in self.sets if each), default=0)

    @cached_property
    def _members(self) -> Tensor:
        """``[C, num_labels]``, sparse rows of ones."""
        listed = SparseLabels.from_lists(self.sets, num_labels=max(self.num_labels, 1))
        return member_table(listed)

    def to_json(self) -> dict[str, Any]:
        """A dict for ``json.dumps`` that ``from_json`` reads back exactly."""
        other: float | str = self.other if math.isfinite(self.other) else "-inf"
        return {"sets": [list(each) for each in self.sets], "values": list(self.values), "other": other}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SetValues:
        """From the dict of ``to_json``."""
        if not isinstance(data, Mapping) or set(data) != {"sets", "values", "other"}:
            raise ValueError("SetValues.from_json: `data` must be an object of sets, values and other.")
        return cls(tuple(map(tuple, data["sets"])), tuple(data["values"]), float(data["other"]))

    def all_scores(self, who: str, logits: Tensor | LinearScores) -> Tensor:
        """The dense scores; an error if the sets have labels beyond them."""
        if self.num_labels > logits.shape[-1]:
            raise ValueError(
                f"{who}: `rule` must list sets of {logits.shape[-1]} labels; got a set with label {self.num_labels - 1}."
                " Use the rule that was saved with this model."
            )
        return logits.dense() if isinstance(logits, LinearScores) else logits

    def chosen(self, margin: Tensor, free: Tensor, *, lower: int = 0, upper: int | None = None) -> Tensor:
        """bool ``[R, L]``: the best set of each row.

        Args:
            margin: ``[R, L]``, scores minus thresholds; ``-inf`` for labels that are never predicted.
            free: bool ``[R, L]``, the best unlisted set: the labels above the threshold.
            lower: listed sets with fewer labels are skipped.
            upper: listed sets with more labels are skipped.
        """
        worth = torch.tensor(self.values, dtype=margin.dtype, device=margin.device)
        sizes = torch.tensor([len(each) for each in self.sets], device=margin.device)
        worth = worth.masked_fill((sizes < lower) | (sizes > (len(margin[0]) if upper is None else upper)), -INF)
        members = self._members.to(margin.device, margin.dtype)
        found, size = free.clone(), max(1, BLOCK_ELEMENTS // len(self.sets))
        for start in range(0, len(margin), size):
            own, part = free[start : start + size], margin[start : start + size]
            totals = set_totals(part[:, : members.shape[1]], members) + worth[:, None]
            best, place = totals.max(dim=0)
            freely = torch.where(own, part.clamp(-LARGEST, LARGEST), 0).sum(dim=1) + self.other
            rows = ((best >= freely) & (best > -INF)).nonzero().flatten()
            found[start + rows] = False
            listed = members.index_select(0, place[rows]).to_dense() > 0
            found[start + rows, : members.shape[1]] = listed
        return found


def member_table(sets: SparseLabels) -> Tensor:
    """Sparse ``[C, L]``: 1 where a set has a label."""
    places = torch.stack([sets.rows, sets.indices])
    return sparse_tensor(places, torch.ones(len(sets.indices)), sets.shape, is_coalesced=True)


def set_totals(margin: Tensor, members: Tensor) -> Tensor:
    """``[C, R]``: the sum of each set's margins, ``-inf`` for a set with a label that is never predicted in the row."""
    barred = ~(margin > -INF)
    totals: Tensor = torch.sparse.mm(members, torch.where(barred, 0, margin.clamp(-LARGEST, LARGEST)).T.contiguous())
    if bool(barred.any()):
        totals.masked_fill_(torch.sparse.mm(members, barred.to(margin.dtype).T.contiguous()) > 0, -INF)
    return totals
