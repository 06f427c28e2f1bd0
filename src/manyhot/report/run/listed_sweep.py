"""The counts of ``threshold_sweep``, from lists that hold only the best labels of each row."""

from __future__ import annotations

import torch

from manyhot.report.run.judged import Judged
from manyhot.report.run.sweep import POSITIONS, Sweep, shifts_over
from manyhot.scores.top import TopScores

# Maximum number of labels times positions.
MOST_CELLS = 1 << 25
FEWEST_POSITIONS = 11


def listed_sweep(judged: Judged) -> Sweep:
    """Count at every position of the slider; unlisted labels are never predicted.

    Args:
        judged: top lists and true labels, with one threshold for all labels.

    Returns:
        A ``Sweep``; with very many labels it has fewer positions.
    """
    top, rule = judged.logits, judged.rule
    assert isinstance(top, TopScores)
    num_labels, num_rows = judged.labels.num_labels, len(judged.labels)
    positions = max(FEWEST_POSITIONS, min(POSITIONS, MOST_CELLS // max(num_labels, 1)))
    there = top.indices >= 0
    margin = top.values.double() - (rule.threshold if isinstance(rule.threshold, float) else 0.0)
    true = judged.positives.indices.numel() / max(int(there.sum()), 1)
    shifts = shifts_over(margin[there], true, positions=positions)
    size, column = len(shifts), torch.arange(top.k)
    places = torch.searchsorted(shifts, margin.nan_to_num(nan=-torch.inf, neginf=-torch.inf).contiguous())
    if rule.max_labels is not None:
        places[:, column >= rule.max_labels] = 0
    places[:, column < rule.min_labels] = size
    rows = torch.arange(num_rows).unsqueeze(1).expand_as(there)[there]
    labels, places = top.indices[there], places[there]
    hit = judged.positives.contains(rows, labels)
    cells, width = labels * (size + 1) + places, num_labels * (size + 1)
    found = torch.stack([torch.bincount(part, minlength=width).view(num_labels, -1) for part in (cells[hit], cells)])
    later = found.flip(-1).cumsum(-1).flip(-1)[:, :, 1:]
    nothing = torch.zeros(num_rows, dtype=torch.int64)
    most = nothing.scatter_reduce(0, rows, places, "amax")
    most_false = nothing.scatter_reduce(0, rows[~hit], places[~hit], "amax")
    least_true = (nothing + size + 1).scatter_reduce(0, rows[hit], places[hit], "amin")
    least_true[torch.bincount(rows[hit], minlength=num_rows) < judged.positives.counts()] = 0
    at = torch.arange(size).unsqueeze(1)
    exact = ((most_false <= at) & (at < least_true)).sum(dim=1)
    own = -1 if rule.top_k is not None else int((shifts == 0).nonzero()[0])
    return Sweep(shifts, own, later[0], later[1], exact, (most <= at).sum(dim=1))
