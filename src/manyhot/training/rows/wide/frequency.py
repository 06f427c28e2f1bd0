"""Lowers the biases of frequent labels after training.

A few epochs are enough for frequent labels and too few for rare ones, so frequent labels are ranked too high. A share of the
logarithm of each label's count is subtracted from its bias; the share is the one that ranks held-out rows best.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from manyhot.decisions.natural import natural_decision
from manyhot.heads.mesh import local
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.catalog import get_loss
from manyhot.metrics.at_k import precision_at_k
from manyhot.scores.top import TopScores
from manyhot.training.rows.bodies.wide import WideBody
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import NONE

SHARES = tuple(place / 10 for place in range(11))
USUAL_K = (1, 3, 5)


def may_lower(settings: TrainSettings) -> bool:
    """Whether biases may be lowered: the rule is tuned, and the loss only ranks, so that no score decides by itself."""
    return settings.tune != NONE and not natural_decision(get_loss(settings.usual_loss).decision).bounded


def log_counts(labels: SparseLabels) -> Tensor:
    """``[L]``: the logarithm of 1 plus the number of rows that have the label."""
    return torch.bincount(labels.indices, minlength=labels.num_labels).float().log1p()


def best_share(top: TopScores, labels: SparseLabels, logs: Tensor, metric: str = "") -> float:
    """The share of ``logs [L]`` to subtract, by the mean of P@1, P@3 and P@5 of held-out rows, or by ``metric`` if it is P@k.

    It is 0 unless another share is better by more than the standard error of the difference.

    Example:
        >>> top = TopScores(torch.tensor([[2.0, 1.9]]).repeat(50, 1), torch.tensor([[0, 1]]).repeat(50, 1), 2)
        >>> best_share(top, SparseLabels.from_lists([[1]] * 50, num_labels=2), torch.tensor([5.0, 1.0]), "P@1")
        0.1
    """
    if not len(top):
        return 0.0
    wanted = [min(k, top.k) for k in ((int(metric[2:]),) if metric.startswith("P@") else USUAL_K)]
    found = [_precision(top, labels, share * logs, wanted) for share in SHARES]
    best = max(range(len(SHARES)), key=lambda place: float(found[place].mean()))
    gained = found[best] - found[0]
    error = float(gained.std()) / len(top) ** 0.5 if len(top) > 1 else 0.0
    return SHARES[best] if float(gained.mean()) > error else 0.0


def _precision(top: TopScores, labels: SparseLabels, lowered: Tensor, wanted: Sequence[int]) -> Tensor:
    """``[R]``: the mean precision of each row at ``wanted``, with the labels listed in ``top`` ranked again."""
    real = top.indices >= 0
    moved = torch.where(real, top.values - lowered[top.indices.clamp(min=0)], -torch.inf)
    values, order = moved.sort(dim=1, descending=True, stable=True)
    again = TopScores(values, top.indices.gather(1, order), top.num_labels)
    return torch.stack([precision_at_k(again, labels, k=k, reduction="none") for k in wanted]).mean(dim=0)


@torch.no_grad()
def lower_biases(bodies: Sequence[WideBody], lowered: Tensor) -> None:
    """Subtract ``lowered [L]`` from the biases of each body, which may hold a shard of the labels."""
    for body in bodies:
        bias, mesh = body.head.bias, body.head.mesh
        assert bias is not None
        own = lowered if mesh is None else mesh.own(lowered)
        local(bias).sub_(own.to(local(bias)))
