"""Thresholds for micro-F1 and macro-F1 together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import check_at_least
from manyhot.decisions.cuts import clear_cut
from manyhot.decisions.tuning.additive import PooledRates
from manyhot.decisions.tuning.candidates import best_of_each, candidates
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.one_cut import curve_of, global_cut
from manyhot.decisions.tuning.pooled import pooled_cut, steps_of
from manyhot.decisions.tuning.rows import ScoredRows, scored_rows
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.logsumexp import Scores

INF = math.inf
# Rows are divided at random into up to PARTS parts, REPEATS times, if a part has at least FEWEST_IN_PART rows: the thresholds
# of fewer rows are too noisy.
PARTS, REPEATS, FEWEST_IN_PART = 5, 4, 1_000
# Iterations that find the micro-F1 which the thresholds reach.
ROUNDS = 6


def balanced_thresholds(
    logits: Scores,
    labels: Tensor | SparseLabels,
    *,
    shrink: float = 5.0,
    flood: float = 5.0,
    where: Tensor | None = None,
    averaged: bool = False,
    seed: int = 0,
    micro_weight: float = 1.0,
) -> tuple[float, ...]:
    """One threshold per label, best for the sum of micro-F1 and macro-F1 on held-out data.

    With ``m`` the micro-F1 reached, a label's threshold maximises ``F1 / L + (2 tp - m pp) / (PP + P)``: its share of
    macro-F1, and the first-order gain in micro-F1; ``m`` and ``PP``, the number of all predictions, are found by iteration.
    ``shrink`` and ``flood`` protect rare labels as in ``tune_rule``. If never predicting a label is best on these rows, its
    threshold is just above its highest score here, so that its rare positives can still be predicted on new rows. The
    threshold of a label without positives is never below the common one.

    With ``averaged`` and at least 2,000 rows, thresholds are found on random parts of at least 1,000 rows, at most five parts
    and four times over, and averaged. The best threshold of a rare label depends on a few rows; the mean depends less on
    each. If never predicting a label is best, the mean is also lower, since the highest score of some rows is below that of
    all rows.

    Args:
        logits: ``[..., L]`` of held-out rows.
        labels: hard, ``[..., L]`` or ``SparseLabels``.
        shrink: pseudo-positives per label, divided among the parts.
        flood: the largest number of predictions per positive of a label.
        where: bool, broadcastable to ``logits``; False excludes an entry.
        averaged: whether thresholds are averaged over parts. The scores must be on one scale: the lowest score that label trees
            give to labels which no beam reached would spoil the mean.
        seed: random seed of the parts.
        micro_weight: weight of micro-F1 against macro-F1; 0: the thresholds are best for macro-F1.

    Returns:
        L thresholds.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -3.0], [-1.0, -1.0], [0.5, -4.0]]), torch.tensor([[1, 0], [0, 1], [1, 0]])
        >>> balanced_thresholds(logits, labels, shrink=0)
        (-0.25, -2.0)
    """
    check_at_least("balanced_thresholds", "shrink", shrink, 0)
    check_at_least("balanced_thresholds", "flood", flood, 1)
    check_at_least("balanced_thresholds", "micro_weight", micro_weight, 0)
    given = {"flood": flood, "micro_weight": micro_weight}
    with torch.no_grad():
        data = scored_rows("balanced_thresholds", logits, labels, where)
        positives = data.per_group("labels")
        count = min(len(data.labels) // FEWEST_IN_PART, PARTS)
        if count < 2 or not averaged:
            return tuple(_balanced_cuts(data, positives, shrink=shrink, **given).tolist())

        def cuts_of(part: Tensor) -> Tensor:
            with torch.no_grad():
                return _balanced_cuts(data.rows(part), positives, shrink=shrink / count, **given)

        with ThreadPoolExecutor(1 if data.scores.is_cuda else torch.get_num_threads()) as pool:
            cuts = torch.stack(list(pool.map(cuts_of, _parts(data, count, seed)))).mean(dim=0).tolist()
    return tuple(clear_cut(data.scores[:, label], cut) for label, cut in enumerate(cuts))


def _parts(data: ScoredRows, count: int, seed: int) -> Iterator[Tensor]:
    """The numbers of the rows of each part that has a positive."""
    for repeat in range(REPEATS):
        draw = np.random.default_rng([seed, repeat]).permutation(len(data.labels))
        parts = [torch.from_numpy(np.sort(part)).to(data.scores.device) for part in np.array_split(draw, count)]
        kept = [part for part in parts if len(data.labels[part].indices)]
        yield from kept or [torch.arange(len(data.labels), device=data.scores.device)]


def _balanced_cuts(data: ScoredRows, positives: Tensor, *, shrink: float, flood: float, micro_weight: float) -> Tensor:
    """float64 ``[L]``; ``positives [L]`` are counted over all rows, ``data`` may be a part of them."""
    p, steps = data.per_group("labels"), steps_of(data)
    if len(steps) == 0:
        return torch.full_like(p, global_cut(data, OBJECTIVES["micro-F1"]))
    curve = curve_of(data, OBJECTIVES["macro-F1"], steps)
    common = pooled_cut(data, OBJECTIVES["micro-F1"], steps)
    least = torch.where(positives > 0, -INF, common).to(p)
    found = candidates(data, common, (flood * (p + 1)).clamp(max=len(data.scores)), least)
    own = p[found.label]
    recall, load = PooledRates(data).at(found.cut)
    value = own * 2 * found.tp / (found.pp + own).clamp(min=1) + shrink * curve.at(found.cut)
    macro = value / (own + shrink).clamp(min=1e-300) / len(p)
    tp, pp = found.tp + shrink * recall, found.pp + shrink * load
    total = predicted = float(p.sum())
    micro, best = 0.5, torch.zeros(0, dtype=torch.int64, device=p.device)
    for _ in range(ROUNDS):
        gain = micro_weight * (2 * tp - micro * pp) / (predicted + total)
        best = best_of_each(found, macro + gain, len(p))
        predicted = float(found.pp[best].sum())
        micro = 2 * float(found.tp[best].sum()) / max(predicted + total, 1)
    cuts = torch.full_like(p, common)
    cuts[found.label[best]] = found.cut[best]
    return cuts
