"""Calibration of probabilities: expected calibration error and Brier error, per label and over all entries."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_choice, check_first_outside
from manyhot.metrics.blocks import NO_FAULT, Block, Labels, Table, arrange, checked_blocks, first_row

POOLING = ("pooled", "macro", "none")


def outside_unit(probs: Tensor, where: Tensor | None) -> Tensor:
    """bool ``[r]``: whether a row has a counted number outside [0, 1], or NaN."""
    wrong = ~((probs >= 0) & (probs <= 1))
    return (wrong if where is None else wrong & where).any(dim=1)


def check_probabilities(who: str, block: Block) -> Tensor:
    """The scores of a block, which must be probabilities. Reads values, so it syncs with the device."""
    if not isinstance(block.scores, Tensor):
        raise TypeError(f"{who}: probabilities must be given for all labels; got {block.scores!r}.")
    row = int(first_row(outside_unit(block.scores, block.where), block.start, block.scores.device))
    check_first_outside(who, "probs", -1 if row == NO_FAULT else row)
    return block.scores


def add_bins(total: Tensor, probs: Tensor, block: Block) -> Tensor:
    """Add entries to equally wide bins of probability; bin b is ``[b / bins, (b + 1) / bins)``, the last one closed.

    Args:
        total: float64 ``[2 or 3, N, bins]``; N is L, or 1 if labels are pooled. Holds the number of entries, the number of
            positives and, if there is a third part, the sum of probabilities. Changed in place.
        probs: ``[r, L]`` in [0, 1]; excluded entries may have any value.
        block: the block of the probabilities, with its positives and ``where``.

    Returns:
        ``total``.
    """
    rows, bins = probs.shape[0], total.shape[2]
    if total.shape[1] == 1:
        # Scatter into one histogram per row first: with all entries in a few bins, atomic adds on a GPU would wait for each
        # other.
        cells = torch.arange(rows, device=probs.device).unsqueeze(1)
        target = total.new_zeros((total.shape[0], rows * bins))
    else:
        cells = torch.arange(probs.shape[1], device=probs.device).unsqueeze(0)
        target = total.view(total.shape[0], -1)
    if block.where is not None:
        probs = torch.where(block.where, probs, 0)
    place = (probs * bins).long().clamp_(0, bins - 1) + cells * bins
    ones = torch.ones_like(probs) if block.where is None else block.where
    target[0].scatter_add_(0, place.flatten(), ones.double().flatten())
    listed = place[block.positives.rows, block.positives.indices]
    target[1].scatter_add_(0, listed, torch.ones_like(listed, dtype=torch.float64))
    if total.shape[0] == 3:
        target[2].scatter_add_(0, place.flatten(), probs.double().flatten())
    if total.shape[1] == 1:
        total += target.view(total.shape[0], rows, bins).sum(dim=1, keepdim=True)
    return total


def add_squares(total: Tensor, probs: Tensor, block: Block) -> Tensor:
    """Add ``sum (p - t)^2`` and the number of entries to ``total``, float64 ``[2, N]``; N is L, or 1 if labels are pooled."""
    exact = probs.double() if block.where is None else torch.where(block.where, probs, 0).double()
    squares = exact.square()
    listed = (block.positives.rows, block.positives.indices)
    squares[listed] = (1.0 - exact[listed]).square()
    entries = torch.ones_like(squares) if block.where is None else block.where.double()
    sums = torch.stack([squares.sum(dim=0), entries.sum(dim=0)])
    total += sums.sum(dim=1, keepdim=True) if total.shape[1] == 1 else sums
    return total


def calibration_error_of(sums: Tensor) -> Tensor:
    """ECE from ``add_bins``, ``[N]``; NaN without entries."""
    return (sums[2] - sums[1]).abs().sum(dim=-1) / sums[0].sum(dim=-1)


def brier_error_of(sums: Tensor) -> Tensor:
    """Brier error from ``add_squares``, ``[N]``; NaN without entries."""
    return sums[0] / sums[1]


def _averaged(values: Tensor, average: str) -> Tensor:
    if average == "none":
        return values
    return values[0] if average == "pooled" else values.nanmean()


def calibration_error(
    probs: Tensor,
    labels: Labels,
    *,
    bins: int = 15,
    average: str = "pooled",
    where: Tensor | None = None,
) -> Tensor:
    """ECE, the expected calibration error: the mean difference between probability and share of positives, over bins.

    ``sum_b |sum_{i in b} p_i - sum_{i in b} t_i| / N`` over equally wide bins. With thousands of labels nearly all
    entries lie in the lowest bin, and the pooled error is small for every model; then use the errors of single labels.

    Args:
        probs: ``[..., L]`` in [0, 1]; see ``manyhot.probabilities``.
        labels: ``[..., L]``, 0 or 1 of any number type, or ``SparseLabels``.
        bins: the number of bins.
        average: ``"pooled"`` is over all entries together, ``"macro"`` is the mean over labels, ``"none"`` returns each label.
        where: bool, broadcastable to ``probs``; False excludes an entry. A label without entries is NaN and excluded from the
            mean.

    Returns:
        A float64 scalar, or ``[L]`` with ``average="none"``.

    Example:
        >>> calibration_error(torch.tensor([[0.9, 0.2], [0.9, 0.2]]), torch.tensor([[1, 0], [1, 0]]))
        tensor(0.1500, dtype=torch.float64)
    """
    who = "calibration_error"
    check_choice(who, "average", average, POOLING)
    check_at_least(who, "bins", bins, 1)
    table = arrange(who, probs, labels, where=where)
    total = _zeros(table, 3, 1 if average == "pooled" else table.num_labels, bins)
    for block in checked_blocks(who, table):
        add_bins(total, check_probabilities(who, block), block)
    return _averaged(calibration_error_of(total), average)


def brier_error(probs: Tensor, labels: Labels, *, average: str = "pooled", where: Tensor | None = None) -> Tensor:
    """The mean squared error of the probabilities, ``mean (p - t)^2``. Arguments as in ``calibration_error``.

    Example:
        >>> brier_error(torch.tensor([[0.9, 0.2], [0.9, 0.2]]), torch.tensor([[1, 0], [1, 0]]))
        tensor(0.0250, dtype=torch.float64)
    """
    who = "brier_error"
    check_choice(who, "average", average, POOLING)
    table = arrange(who, probs, labels, where=where)
    total = _zeros(table, 2, 1 if average == "pooled" else table.num_labels)
    for block in checked_blocks(who, table):
        add_squares(total, check_probabilities(who, block), block)
    return _averaged(brier_error_of(total), average)


def _zeros(table: Table, *sizes: int) -> Tensor:
    return torch.zeros(sizes, dtype=torch.float64, device=table.labels.device)
