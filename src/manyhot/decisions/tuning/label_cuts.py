"""The best cut for each label, with pseudo-positives for rare ones."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from manyhot.decisions.cuts import just_above
from manyhot.decisions.tuning.additive import additive_cuts
from manyhot.decisions.tuning.candidates import best_of_each, candidates
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.one_cut import Curve, best_on, curve_of
from manyhot.decisions.tuning.pooled import pooled_cut, steps_of
from manyhot.decisions.tuning.rows import ScoredRows

INF = math.inf


def label_cuts(data: ScoredRows, objective: str, *, shrink: float, flood: float) -> Tensor:
    """float64 ``[L]``: the best cut of each label, shrunk towards the best common cut; see ``tune_rule``."""
    p, steps, goal = data.per_group("labels"), steps_of(data), OBJECTIVES[objective]
    if len(steps) == 0:
        return just_above(data.scores.max()).expand(len(p))
    limit = (flood * (p + 1)).clamp(max=len(data.scores))
    if objective != "macro-F1":
        return additive_cuts(data, objective, p, limit, shrink=shrink, common=pooled_cut(data, goal, steps))
    curve = curve_of(data, goal, steps)
    common = best_on(curve, data)
    found = candidates(data, common, torch.minimum(limit, _f1_limit(curve, p, limit, shrink)))
    own = p[found.label]
    value = own * goal.value(found.tp, found.pp, own)
    best = best_of_each(found, value + shrink * curve.at(found.cut) if shrink else value, len(p))
    cuts = torch.full_like(p, common)
    cuts[found.label[best]] = found.cut[best]
    return cuts


def _f1_limit(curve: Curve, p: Tensor, limit: Tensor, shrink: float) -> Tensor:
    """The number of predictions beyond which no cut of a label can be best: even with all positives found it would be worse
    than a known cut.

    The value of a cut is ``P F1 + shrink M``, where M is the mean over labels. It is at most
    ``2 P^2 / (P + predictions) + shrink max M``.
    """
    value, top = OBJECTIVES["macro-F1"].value, curve.start + float(curve.total.max())
    columns = slice(None) if curve.columns is None else curve.columns
    own, most = p[columns], limit[columns]
    found = torch.full_like(p, INF)
    if not curve.trials:
        return found
    tp, pp = (torch.stack(counts) for counts in zip(*curve.trials, strict=True))
    each = value(tp, pp, own)
    mean = each.sum(dim=1, keepdim=True) / len(p)
    reached = torch.where(pp <= most, own * each + shrink * (mean - top), 0.0).amax(dim=0)
    # Without positives a label has nothing to lose, but rounding may leave it a value above 0.
    found[columns] = torch.where((reached > 0) & (own > 0), 2 * own * own / reached.clamp(min=1e-300) - own, INF) + 1e-6 * own
    return found
