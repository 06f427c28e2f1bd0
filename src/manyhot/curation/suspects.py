"""Labels that look wrong or missing, ranked by how probable that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, shape_text
from manyhot.decisions.calibrate import fit_calibration
from manyhot.labels.sparse import SparseLabels

WRONG, MISSING = "wrong", "missing"
# A noise rate of 0 would mean that no label can be wrong.
LEAST_NOISE = 1e-4
# Bins of scores from which the rates of mistakes are estimated.
BINS = 5
# Fits of the calibration, each without the entries that looked mistaken in the one before.
ROUNDS = 3


@dataclass(frozen=True)
class Suspect:
    """A label of a row that looks wrong (it is given) or missing (it is not).

    Args:
        row: the row's place.
        label: the label's number.
        kind: ``"wrong"`` or ``"missing"``.
        probability: that the label holds, by cross-fitted scores.
        doubt: an upper bound on the probability that the file is wrong here. The list is ranked by it; its mean over the first
            k is an upper bound on their precision.
    """

    row: int
    label: int
    kind: str
    probability: float
    doubt: float


def wrong_probabilities(logits: Tensor, labels: SparseLabels, *, where: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """``(doubt, probability)``, each ``[R, L]``: how probably each entry is mistaken, and how probable the label is.

    Mistakes are assumed to be random: a row without a label is given it with probability ``a``, a row with it
    lacks it with probability ``b``. With the probability ``t`` that a label holds, an entry that is given is wrong with the
    odds ``(1 - t) a : t (1 - b)``, and one that is not given is missing with the odds ``t b : (1 - t) (1 - a)``. ``t`` is a
    calibration of the scores, one slope and intercept per label, fitted again without the entries that look mistaken. For each
    label, ``a`` is estimated from the half of the rows that score lowest, ``b`` from the rows that score highest, half as many
    as have the label. A hard row looks like a mistake to a weak model, and no score can tell the two apart: the doubts are
    upper bounds, and tight only for good models.

    Args:
        logits: ``[R, L]``, cross-fitted: no model has seen the row that it scores.
        labels: hard labels ``[R, L]``.
        where: bool ``[R, L]``; False is not known and never suspect.
    """
    if tuple(logits.shape) != tuple(labels.shape):
        raise ValueError(
            f"wrong_probabilities: `labels` must have the shape of `logits`, {shape_text(logits.shape)};"
            f" got {shape_text(labels.shape)}."
        )
    given = labels.dense(torch.float64)
    added, dropped = _noise_rates(logits, given)
    counted = torch.ones_like(logits, dtype=torch.bool) if where is None else where.expand(logits.shape)
    clean, doubt = counted, given
    for _ in range(ROUNDS):
        t = fit_calibration(logits, labels, kind="per-label", where=clean)(logits.double()).clamp(1e-9, 1 - 1e-9)
        wrong, right = (1 - t) * added, t * (1 - dropped)
        missing, absent = t * dropped, (1 - t) * (1 - added)
        doubt = torch.where(given > 0, wrong / (wrong + right), missing / (missing + absent))
        clean = counted & (doubt < 0.5)
    return doubt * counted, t


def _noise_rates(logits: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """``[L]`` each: how often a label is given among low scores, and lacking among high ones.

    Random mistakes are equally frequent in every bin of scores, so the bin with the fewest gives an upper bound of their rate.
    """
    rows = logits.shape[0]
    ranked = given.gather(0, logits.argsort(dim=0, descending=True))
    rank = torch.arange(rows)[:, None]
    counts = given.sum(dim=0).long()
    low = [
        (rank >= rows // 2 + part * rows // (2 * BINS)) & (rank < rows // 2 + (part + 1) * rows // (2 * BINS))
        for part in range(BINS)
    ]
    high = [(rank >= part * counts // (2 * BINS)) & (rank < (part + 1) * counts // (2 * BINS)) for part in range(BINS)]
    return _rates(ranked, low), _rates(1 - ranked, high)


def _rates(found: Tensor, bins: Sequence[Tensor]) -> Tensor:
    """``[L]``: the rate of each label over all bins, drawn to that of all labels, scaled to the bin of the lowest rate."""
    hits = [(found * each).sum() / each.sum() for each in bins if bool(each.any())]
    if not hits:
        return torch.full(found.shape[1:], LEAST_NOISE, dtype=torch.float64)
    inside = torch.stack([each.expand(found.shape) for each in bins]).any(dim=0)
    own, whole = (found * inside).sum(dim=0), inside.sum(dim=0)
    pooled, least = own.sum() / whole.sum(), torch.stack(hits).min()
    # A prior of ten rows at the average rate, for labels with few rows.
    rates = (own + 10 * pooled) / (whole + 10) * (least / pooled.clamp(min=LEAST_NOISE))
    return rates.clamp(min=LEAST_NOISE, max=0.5)


def find_suspects(
    logits: Tensor,
    labels: SparseLabels,
    *,
    most: int = 100,
    kinds: Sequence[str] = (WRONG, MISSING),
    where: Tensor | None = None,
) -> list[Suspect]:
    """The entries of labels that are most probably mistaken, the most probable first.

    Args:
        logits: ``[R, L]``, cross-fitted (``cross_fitted_logits``).
        labels: hard labels ``[R, L]``.
        most: how many.
        kinds: ``"wrong"``, ``"missing"`` or both.
        where: bool ``[R, L]``; False is not known and never suspect.

    Example:
        >>> truth = torch.eye(2).repeat(50, 1)
        >>> logits = 6 * truth - 3
        >>> truth[0] = torch.tensor([0.0, 1.0])
        >>> [(each.row, each.label, each.kind) for each in find_suspects(logits, SparseLabels.from_dense(truth > 0), most=2)]
        [(0, 1, 'wrong'), (0, 0, 'missing')]
    """
    check_at_least("find_suspects", "most", most, 1)
    doubt, p = wrong_probabilities(logits, labels, where=where)
    given = labels.dense(torch.bool)
    if MISSING not in kinds:
        doubt = doubt * given
    if WRONG not in kinds:
        doubt = doubt * ~given
    flat, width = doubt.flatten(), logits.shape[1]
    order = flat.argsort(descending=True, stable=True)[:most]
    order = order[flat[order] > 0]
    columns = (order.tolist(), given.flatten()[order].tolist(), p.flatten()[order].tolist(), flat[order].tolist())
    return [
        Suspect(place // width, place % width, WRONG if own else MISSING, probability, own_doubt)
        for place, own, probability, own_doubt in zip(*columns, strict=True)
    ]


def corrected_labels(labels: SparseLabels, suspects: Sequence[Suspect]) -> SparseLabels:
    """Labels with every suspect put right: wrong ones taken away, missing ones added.

    Example:
        >>> labels = SparseLabels.from_lists([[0], [1]], num_labels=2)
        >>> corrected_labels(labels, [Suspect(0, 0, "wrong", 0.1, 0.9), Suspect(0, 1, "missing", 0.9, 0.9)]).lists()
        [[1], [1]]
    """
    found: list[Any] = [set(row) for row in labels.lists()]
    for each in suspects:
        if each.kind == WRONG:
            found[each.row].discard(each.label)
        else:
            found[each.row].add(each.label)
    return SparseLabels.from_lists([sorted(row) for row in found], num_labels=labels.num_labels)
