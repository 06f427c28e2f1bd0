"""Offsets of labels: subtracted from scores, they rank the labels of a row better.

Labels are solved one by one, so their scores are not made to be compared. The offsets ``b`` and a scale ``g`` are fitted to
cross-fitted scores ``s`` by decoupled softmax, in which every label of a row competes with the labels that the row lacks:

    min over b, g   shrink / 2 |b|^2 + sum over rows and their labels j of log(1 + sum_neg e^{g (s - b)} / e^{g (s_j - b_j)})
"""

from __future__ import annotations

import math
from importlib import import_module
from threading import Thread
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhot.labels.sparse import SparseLabels
from manyhot.losses.decoupled import decoupled_softmax_loss

# In pseudo-positives. On training rows of reuters21578 1 to 100 are alike, 300 gains less; on those of cooking_stackexchange 30
# lowers P@5.
SHRINK = 100.0
# The best labels of each row that compete, and most rows that are used. With 10 labels P@5 falls, 50 are no better.
LISTED, MOST_ROWS = 20, 8_000
# 30 steps are no better.
STEPS = 15
# The scale at which the fit starts.
FIRST_SCALE = 4.0


def import_early() -> None:
    """Import the minimiser, which takes a quarter of a second, in a thread of its own: beside solvers that run without the
    interpreter."""
    Thread(target=import_module, args=("scipy.optimize",), daemon=True).start()


def ranking_offsets(scores: Tensor, labels: SparseLabels) -> Tensor:
    """float64 ``[L]``: the offsets of the labels for cross-fitted scores ``[R, L]``. If no row has a label they are 0."""
    # `torch.optim` has such a solver, too, but importing it takes a second.
    from scipy.optimize import minimize

    listed, places, positive = _listed(scores, labels)

    def missed(found: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        given = torch.from_numpy(found.copy()).requires_grad_()
        value = ranking_loss(listed, places, positive, given)
        (slope,) = torch.autograd.grad(value, given)
        return float(value.detach()), slope.numpy()

    start = np.zeros(labels.num_labels + 1)
    start[0] = math.log(FIRST_SCALE)
    with torch.enable_grad():
        solved = minimize(missed, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    return torch.from_numpy(solved.x[1:].copy())


def ranking_loss(listed: Tensor, places: Tensor, positive: Tensor, given: Tensor) -> Tensor:
    """The sum that is minimised, for scores ``listed [R, K]`` of the labels ``places``; ``given`` is ``(log g, b) [1 + L]``."""
    offsets = given[1:]
    moved = given[0].exp() * (listed - offsets[places])
    missed = decoupled_softmax_loss(moved, positive, sample_weight=positive.sum(dim=1), reduction="sum")
    return missed + SHRINK / 2 * offsets.square().sum()


def _listed(scores: Tensor, labels: SparseLabels) -> tuple[Tensor, Tensor, Tensor]:
    """The best scores of the rows that have a label, float64 ``[R, K]``, whose they are, and which of them the row has."""
    rows = torch.nonzero(labels.counts() > 0)[:, 0]
    rows = rows[:: max(-(-len(rows) // MOST_ROWS), 1)]
    listed, places = scores[rows].topk(min(LISTED, labels.num_labels), dim=1)
    return listed.double(), places, labels[rows].dense().gather(1, places)
