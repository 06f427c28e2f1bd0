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
# The share of given labels that are taken to be mistaken each way, at least and at most. A weak model bounds it only far above
# what files have, and the ranking hardly depends on it.
LEAST_NOISE, MOST_NOISE = 1e-4, 0.02
# Bins of scores that the rates of mistakes are read off.
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
        doubt: how probable it is that the file is mistaken here. The list is ranked by it; its mean over the first k is the
            precision to expect of them.
    """

    row: int
    label: int
    kind: str
    probability: float
    doubt: float


def wrong_probabilities(logits: Tensor, labels: SparseLabels, *, where: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """``(doubt, probability)``, each ``[R, L]``: how probably each entry is mistaken, and how probable the label is.

    Mistakes are taken to fall on rows at random and to leave the labels as frequent as they are: a row with a label lacks it
    with probability ``b``, and a row without it is given it with probability ``a``, so that as many rows gain as lose it. With
    the probability ``t`` that a label holds, an entry that is given is wrong with the odds ``(1 - t) a : t (1 - b)``, and one
    that is not given is missing with the odds ``t b : (1 - t) (1 - a)``. Since ``a`` is small for a rare label, a given one is
    doubted when its score is low for a row that *has* the label by chance, not merely low. ``t`` is a calibration of the
    scores, one slope and intercept per label, fitted again without the entries that look mistaken. ``b`` is the same for all
    labels: what the rows that score lowest and highest allow at most, and never above 2 %.

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
    counts = given.sum(dim=0)
    dropped = _noise_rate(logits, given)
    # As many are added as dropped.
    added = (dropped * counts / (len(given) - counts).clamp(min=1)).clamp(min=LEAST_NOISE * dropped, max=0.5)
    counted = torch.ones_like(logits, dtype=torch.bool) if where is None else where.expand(logits.shape)
    clean, doubt = counted, given
    for _ in range(ROUNDS):
        t = fit_calibration(logits, labels, kind="per-label", where=clean)(logits.double()).clamp(1e-9, 1 - 1e-9)
        wrong, right = (1 - t) * added, t * (1 - dropped)
        missing, absent = t * dropped, (1 - t) * (1 - added)
        doubt = torch.where(given > 0, wrong / (wrong + right), missing / (missing + absent))
        clean = counted & (doubt < 0.5)
    return doubt * counted, t


def _noise_rate(logits: Tensor, given: Tensor) -> float:
    """The largest share of given labels that can be mistaken each way, by the rows that a label's scores are surest of.

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
    # A rate among the rows without a label, as a share of those that have it.
    surplus = _lowest(ranked, low) * float((rows - counts).sum()) / max(float(counts.sum()), 1.0)
    return min(max(min(lacking, surplus), LEAST_NOISE), MOST_NOISE)


def _lowest(found: Tensor, bins: Sequence[Tensor]) -> float:
    """The share of ``found`` in the bin where it is lowest, all labels together; one is added, for bins that are small."""
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
