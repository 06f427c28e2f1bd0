"""A decision threshold that is tracked during training, without a gradient and without held-out labels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from manyhot.decisions.cuts import rounding

RATE_OF_SUMS, RATE_OF_CUT = 0.05, 0.05
# The range of half an F1 score; the log odds of both ends are finite.
LEAST, MOST = 0.01, 0.5


class TrackingThreshold(nn.Module):
    """The best threshold for micro-F1, estimated from the training batches.

    At the best cut c the probability of a label is half the F1 that is reached. Both are kept as running sums: F1 by the
    counts at the present cut, the probability from the entries near it, weighted ``1 / cosh(s - c)^2``; the cut moves by the
    difference of their log odds. Inside ZLPR a cut at c is a weight w on the positives and 1 / w on the negatives with
    log w = -c: a shift of all scores, so that neither ranking nor calibration changes. (A weight on the positives alone
    changes both.)
    If the model overfits, its scores of training rows are too good and the threshold stays near zero; ``density_cut`` of
    held-out rows bounds it.

    Args:
        seeds: S.
        trials: T; one cut for each of ``S x T`` models.

    Example:
        >>> cut = TrackingThreshold(1, 1)
        >>> labels = torch.tensor([[[[1.0, 0.0, 0.0, 1.0]]]])
        >>> for _ in range(500):
        ...     cut.update(torch.tensor([[[[-0.2, -0.8, -3.0, -1.0]]]]), labels)
        >>> bool(cut.value < -0.4)
        True
    """

    value: Tensor
    sums: Tensor

    def __init__(self, seeds: int = 1, trials: int = 1) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros(seeds, trials))
        self.register_buffer("sums", torch.zeros(5, seeds, trials))

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor, where: Tensor | None = None) -> None:
        """Update from a batch: ``logits [S, B, T, L]`` before its step, ``labels [S, B, 1 or T, L]``, and weights ``where``."""
        apart = logits.float() - self.value[:, None, :, None]
        known = torch.ones_like(apart) if where is None else where.float().expand_as(apart)
        chosen, near = (apart > 0) * known, apart.clamp(-20, 20).cosh() ** -2 * known
        counts = (chosen * labels, chosen, labels * known, near * labels, near)
        sums = torch.stack([each.sum(dim=(1, 3)) for each in counts])
        self.sums.copy_(torch.where(self.sums[2] + self.sums[4] > 0, self.sums.lerp(sums, RATE_OF_SUMS), sums))
        right, predicted, positive, near_positive, near_all = self.sums
        wanted = (right / (predicted + positive).clamp(min=1e-6)).clamp(LEAST, MOST)
        found = (near_positive / near_all.clamp(min=1e-6)).clamp(0.001, 0.999)
        self.value += RATE_OF_CUT * (wanted.logit() - found.logit())


def density_cut(logits: Tensor, density: float, known: Tensor | None = None) -> Tensor:
    """The cut ``[T]`` above which a share ``density`` of the scores lies.

    With scores of held-out rows and the label density of the training rows it is an upper bound: the best cut for F1 predicts
    as many labels as there are, or more if they are hard to predict. The labels of the held-out rows are not used.

    Args:
        logits: ``[T, N, L]``.
        density: in [0, 1].
        known: bool ``[N, L]``; the others do not count.

    Example:
        >>> density_cut(torch.tensor([[[-0.2, -0.8], [-3.0, -1.0]]]), 0.5)
        tensor([-0.9000])
    """
    flat = logits.float().flatten(1)
    if known is not None:
        flat = flat[:, known.flatten()]
    size = flat.shape[1]
    wanted = round(density * size)
    if wanted == 0:
        return flat.new_full((len(flat),), float("inf"))
    if wanted == size:
        least = flat.amin(dim=1)
        return (least.double() - rounding(least)).float()
    top = flat.topk(wanted + 1, dim=1).values
    return (top[:, -2] + top[:, -1]) / 2
