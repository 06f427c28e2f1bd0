"""Thresholds for micro-F1 and macro-F1 together."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from manyhot._checks import check_at_least
from manyhot.decisions.cuts import clear_cut
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.label_cuts import PooledRates, best_of_each, candidates
from manyhot.decisions.tuning.one_cut import curve_of, global_cut, pooled_cut, steps_of
from manyhot.decisions.tuning.rows import ScoredRows, scored_rows
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.logsumexp import Scores

INF = math.inf
# With fewer rows, the thresholds of a fold are too noisy to use.
FEWEST_IN_FOLD = 1_000


def balanced_thresholds(
    logits: Scores,
    labels: Tensor | SparseLabels,
    *,
    shrink: float = 5.0,
    flood: float = 5.0,
    where: Tensor | None = None,
    fold: Tensor | None = None,
) -> tuple[float, ...]:
    """One threshold per label, best for the sum of micro-F1 and macro-F1 on held-out data.

    With ``m`` the micro-F1 reached, a label's threshold maximises ``F1 / L + (2 tp - m pp) / (PP + P)``: its share of
    macro-F1, and the first-order gain in micro-F1; ``m`` and ``PP``, the number of all predictions, are found by iteration.
    ``shrink`` and ``flood`` protect rare labels as in ``tune_rule``. If never predicting a label is best on these rows, its
    threshold is just above its highest score here, so that its rare positives can still be predicted on new rows. The
    threshold of a label without positives is never below the common one.

    If the rows were scored by several models, thresholds are tuned twice: for each model separately and averaged, and for all
    rows together. The higher of the two is used, so that a label is predicted only if both predict it. With fewer than 1,000
    rows per model, only the thresholds for all rows together are used.

    Args:
        logits: ``[..., L]`` of held-out rows.
        labels: hard, ``[..., L]`` or ``SparseLabels``.
        shrink: pseudo-positives per label, divided among the folds.
        flood: the largest number of predictions per positive of a label.
        where: bool, broadcastable to ``logits``; False excludes an entry.
        fold: ``[R]``, the number of the model that scored each row; None if one model scored all.

    Returns:
        L thresholds.

    Example:
        >>> logits, labels = torch.tensor([[2.0, -3.0], [-1.0, -1.0], [0.5, -4.0]]), torch.tensor([[1, 0], [0, 1], [1, 0]])
        >>> balanced_thresholds(logits, labels, shrink=0)
        (-0.25, -2.0)
    """
    check_at_least("balanced_thresholds", "shrink", shrink, 0)
    check_at_least("balanced_thresholds", "flood", flood, 1)
    with torch.no_grad():
        data = scored_rows("balanced_thresholds", logits, labels, where)
        positives = data.per_group("labels")
        cuts = _balanced_cuts(data, positives, shrink=shrink, flood=flood)
        if fold is not None and len(data.labels) >= FEWEST_IN_FOLD * int(fold.max() + 1):
            parts = [data.rows((fold == each).nonzero().flatten()) for each in fold.unique()]  # type: ignore[no-untyped-call]
            parts = [part for part in parts if len(part.labels.indices)] or [data]
            apart = [_balanced_cuts(part, positives, shrink=shrink / len(parts), flood=flood) for part in parts]
            cuts = torch.maximum(cuts, torch.stack(apart).mean(dim=0))
            return tuple(clear_cut(data.scores[:, label], cut) for label, cut in enumerate(cuts.tolist()))
    return tuple(cuts.tolist())


def _balanced_cuts(data: ScoredRows, positives: Tensor, *, shrink: float, flood: float, rounds: int = 6) -> Tensor:
    """float64 ``[L]``: the thresholds from the rows of ``data``. ``positives [L]`` are counted over all rows, of which ``data``
    may be a part."""
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
    for _ in range(rounds):
        best = best_of_each(found, macro + (2 * tp - micro * pp) / (predicted + total), len(p))
        predicted = float(found.pp[best].sum())
        micro = 2 * float(found.tp[best].sum()) / max(predicted + total, 1)
    cuts = torch.full_like(p, common)
    cuts[found.label[best]] = found.cut[best]
    return cuts
