"""Labels that look wrong or missing, ranked by the probability of a mistake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, shape_text
from manyhot.decisions.calibration.affine import fit_affine
from manyhot.decisions.calibration.data import CalibrationData
from manyhot.labels.sparse import SparseLabels

WRONG, MISSING = "wrong", "missing"
# Lower and upper limit of the assumed share of mistaken labels. With a weak model the estimate is far too high, and the ranking
# hardly depends on it.
LEAST_NOISE, MOST_NOISE = 1e-4, 0.02
# Number of score bins for estimating the rate of mistakes.
BINS = 5
# Number of calibration fits, each without the entries that looked mistaken in the one before, and their shrinkage.
ROUNDS, SHRINK = 3, 5.0


@dataclass(frozen=True)
class Suspect:
    """A label of a row that looks wrong (it is given) or missing (it is not).

    Args:
        row: the row number.
        label: the label number.
        kind: ``"wrong"`` or ``"missing"``.
        probability: the probability of the label, by cross-fitted scores.
        doubt: the probability that the entry of the file is a mistake. The list is ranked by it; its mean over the first k is
            their expected precision.
    """

    row: int
    label: int
    kind: str
    probability: float
    doubt: float


def wrong_probabilities(logits: Tensor, labels: SparseLabels, *, where: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """``(doubt, probability)``, each ``[R, L]``: the probability that the entry is a mistake, and that of the label.

    Mistakes are assumed to be random and to keep the frequency of each label: a row with the label lacks it with probability
    ``b``, a row without it is given it with probability ``a``, and as many rows gain it as lose it. Let ``t`` be the
    probability of the label. A given label is wrong with the odds ``(1 - t) a : t (1 - b)``, and a label that is not given is
    missing with the odds ``t b : (1 - t) (1 - a)``. Since ``a`` is small for a rare label, a given rare label is not doubted
    merely because its probability is low. ``t`` is a calibration of the scores, one slope and intercept per label, fitted
    again without the entries that look mistaken. ``b`` is the same for all labels: the largest rate that the rows with the
    lowest and highest scores allow, at most 2 %.

    Args:
        logits: ``[R, L]``, cross-fitted: no model has seen the row that it scores.
        labels: hard labels ``[R, L]``.
        where: bool ``[R, L]``; False marks an unknown label, which is never suspect.
    """
    if tuple(logits.shape) != tuple(labels.shape):
        raise ValueError(
            f"wrong_probabilities: `labels` must have the shape of `logits`, {shape_text(logits.shape)};"
            f" got {shape_text(labels.shape)}."
        )
    given = labels.dense(torch.float64)
    counts = given.sum(dim=0)
    dropped = _noise_rate(logits, given)
    # Mistakes add as many labels as they remove.
    added = (dropped * counts / (len(given) - counts).clamp(min=1)).clamp(min=LEAST_NOISE * dropped, max=0.5)
    counted = torch.ones_like(logits, dtype=torch.bool) if where is None else where.expand(logits.shape)
    clean, doubt, t = counted, given, given
    fitted: tuple[Tensor, Tensor] | None = None
    for _ in range(ROUNDS):
        data = CalibrationData("find_suspects", logits, labels, clean)
        slope, intercept = fitted = fit_affine(data, with_intercept=True, shrink=SHRINK, start=fitted)
        t = (slope * logits.double() + intercept).sigmoid().clamp(1e-9, 1 - 1e-9)
        wrong, right = (1 - t) * added, t * (1 - dropped)
        missing, absent = t * dropped, (1 - t) * (1 - added)
        doubt = torch.where(given > 0, wrong / (wrong + right), missing / (missing + absent))
        clean = counted & (doubt < 0.5)
    return doubt * counted, t


def _noise_rate(logits: Tensor, given: Tensor) -> float:
    """An upper bound for the share of mistaken labels, from the rows with the lowest and highest scores.

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
    lacking = _lowest(1 - ranked, high)
    # The rate among the rows without the label, converted to a share of the rows with it.
    surplus = _lowest(ranked, low) * float((rows - counts).sum()) / max(float(counts.sum()), 1.0)
    return min(max(min(lacking, surplus), LEAST_NOISE), MOST_NOISE)


def _lowest(found: Tensor, bins: Sequence[Tensor]) -> float:
    """The lowest share of ``found`` over the bins, all labels together, with one pseudo-count for small bins."""
    inside = [found[each.expand(found.shape)] for each in bins]
    return min((float(each.sum()) + 1) / (len(each) + 1) for each in inside)


def find_suspects(
    logits: Tensor,
    labels: SparseLabels,
    *,
    most: int = 100,
    kinds: Sequence[str] = (WRONG, MISSING),
    where: Tensor | None = None,
) -> list[Suspect]:
    """Find the labels that are most probably mistakes, the most probable first.

    Args:
        logits: ``[R, L]``, cross-fitted (``cross_fitted_logits``).
        labels: hard labels ``[R, L]``.
        most: the largest number of suspects.
        kinds: ``"wrong"``, ``"missing"`` or both.
        where: bool ``[R, L]``; False marks an unknown label, which is never suspect.

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
    order = _largest(flat, most)
    order = order[flat[order] > 0]
    columns = (order.tolist(), given.flatten()[order].tolist(), p.flatten()[order].tolist(), flat[order].tolist())
    return [
        Suspect(place // width, place % width, WRONG if own else MISSING, probability, own_doubt)
        for place, own, probability, own_doubt in zip(*columns, strict=True)
    ]


def _largest(values: Tensor, most: int) -> Tensor:
    """The places of the ``most`` largest values, the largest first; of equal ones, the earliest."""
    if most >= len(values):
        return values.argsort(descending=True, stable=True)
    least = values.topk(most).values[-1]
    places = (values >= least).nonzero().squeeze(1)
    return places[values[places].argsort(descending=True, stable=True)[:most]]


def corrected_labels(labels: SparseLabels, suspects: Sequence[Suspect]) -> SparseLabels:
    """Labels with every suspect corrected: wrong ones removed, missing ones added.

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
