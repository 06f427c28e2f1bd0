"""The best cut for each label if the objective is made of sums over labels: micro-F1 and hamming-error."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.decisions.cuts import ascending, just_above
from manyhot.decisions.threshold_values import round_down
from manyhot.decisions.tuning import rows as row_blocks
from manyhot.decisions.tuning.candidates import Candidates, best_of_each, candidates
from manyhot.decisions.tuning.rows import ScoredRows


def additive_cuts(
    data: ScoredRows, objective: str, p: Tensor, limit: Tensor, *, shrink: float, common: float, all_labels: bool = False
) -> Tensor:
    """float64 ``[L]``: the best cut of each label, shrunk towards the ``common`` one.

    A label without positives whose scores are all below the common cut keeps that one: each of its own cuts predicts it at
    least once for nothing. Such labels are not looked at, unless ``all_labels``, or if lower cuts turn out to be better for
    the pseudo-positives.

    Args:
        data: scores and labels.
        objective: micro-F1 or hamming-error.
        p: the positives of each label, ``[L]``.
        limit: the most predictions of each label, ``[L]``.
        shrink: pseudo-positives per label.
        common: the best common cut.
        all_labels: whether all labels are looked at.
    """
    rates = PooledRates(data)
    recall, load = torch.stack(rates.at(p.new_tensor([common]))).flatten().tolist()
    price = 2 * recall / (load + 1) if objective == "micro-F1" else 1.0
    # Beyond this many predictions a label costs more than all its positives and pseudo-positives can gain. The factor 0.9
    # allows for a price that was estimated on part of the rows.
    bound = (2 * (p + shrink) + shrink * load) / max(0.9 * price, 1e-300)
    columns = None if all_labels else _own_labels(data, p, common)
    part, kept = (data, slice(None)) if columns is None else (data.of_labels(columns), columns)
    found = candidates(part, common, torch.minimum(limit, bound)[kept])
    others = _Others(len(p) - part.scores.shape[1], shrink, recall, load, rates)
    best = _best_of_labels(found, objective, price, part.scores.shape[1], float(p.sum()) + shrink * len(p), others)
    if best is None:
        return additive_cuts(data, objective, p, limit, shrink=shrink, common=common, all_labels=True)
    cuts = torch.full_like(p, common)
    cuts[found.label[best] if columns is None else columns[found.label[best]]] = found.cut[best]
    return cuts


def _own_labels(data: ScoredRows, p: Tensor, common: float) -> Tensor | None:
    """The labels that have positives or scores near or above the common cut, if they are at most half of all."""
    own = ((p > 0) | (just_above(data.scores.amax(dim=0)) > common)).nonzero().flatten()
    return own if 2 * len(own) <= len(p) else None


class PooledRates:
    """``(recall, predictions per positive)`` of all labels together at cuts.

    The rates are a prior and need not be exact: for very large data, predictions are counted on every n-th row.
    """

    def __init__(self, data: ScoredRows) -> None:
        stride = max(1, data.scores.numel() // row_blocks.BLOCK_ELEMENTS)
        part = data.scores[::stride]
        self.hits, self.everything = ascending(data.hits()), ascending(part.flatten())
        self.share, self.positives = len(data.scores) / len(part), max(len(self.hits), 1)

    def at(self, cuts: Tensor) -> tuple[Tensor, Tensor]:
        """The rates at ``cuts``."""
        level = round_down(cuts, self.hits.dtype)
        recall, load = (
            (len(scores) - torch.searchsorted(scores, level, right=True)).double() for scores in (self.hits, self.everything)
        )
        return recall / self.positives, load * self.share / self.positives

    def best(self, price: float) -> Tensor:
        """The highest value of twice the recall less ``price`` times the predictions per positive, over all cuts."""
        # It is reached just below the score of a positive, or without predictions.
        recall, load = (
            (len(scores) - torch.searchsorted(scores, self.hits)).double() for scores in (self.hits, self.everything)
        )
        return ((2 * recall - price * self.share * load) / self.positives).amax().clamp(min=0.0)


class _Others(NamedTuple):
    """Labels that keep the common cut: how many, their pseudo-positives each, the rates at the common cut and at all others."""

    number: int
    shrink: float
    recall: float
    load: float
    rates: PooledRates

    def gain(self) -> float:
        """The pseudo-positives that the labels find."""
        return self.number * self.shrink * self.recall

    def cost(self) -> float:
        """The predictions that pseudo-positives cost the labels."""
        return self.number * self.shrink * self.load

    def stay(self, price: float, best: float) -> bool:
        """Whether no other cut is better for them: it costs a prediction, and gains at most ``best`` per pseudo-positive."""
        return not self.number or self.shrink * (best - 2 * self.recall + price * self.load) < price


def _best_of_labels(
    found: Candidates, objective: str, price: float, num_labels: int, constant: float, others: _Others
) -> Tensor | None:
    """The candidates that maximise twice the sum of gains less the sum of costs, for micro-F1 divided by each other; None if
    the other labels would not stay. Dinkelbach: each round solves one problem per label."""
    shrink, best = others.shrink, None
    recall, load = others.rates.at(found.cut) if shrink else (torch.zeros_like(found.cut),) * 2
    gain, cost = found.tp + shrink * recall, found.pp + shrink * load
    for _ in range(100):
        choice = best_of_each(found, 2 * gain - price * cost, num_labels)
        sums = [gain[choice].sum(), cost[choice].sum(), others.rates.best(price)]
        gained, spent, possible = torch.stack(sums).tolist()
        if not others.stay(price, possible):
            return None
        if objective == "hamming-error":
            return choice
        reached = 2 * (gained + others.gain()) / max(spent + others.cost() + constant, 1e-300)
        if reached <= price and best is not None:
            break
        price, best = reached, choice
    return best
