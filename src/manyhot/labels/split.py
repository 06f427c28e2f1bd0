"""Splits that keep the share of every label: iterative stratification (Sechidis, Tsoumakas and Vlahavas, 2011)."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from manyhot._checks import check_at_least, shape_text
from manyhot.labels.sparse import SparseLabels


def stratified_split(labels: Tensor | SparseLabels, *, test_size: float = 0.2, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Split rows into training and test rows, with every label in the same proportion in both, as far as possible.

    Args:
        labels: ``[R, L]``, hard or soft (entries above 0 count), or ``SparseLabels``.
        test_size: the share of rows to test on, in (0, 1); the number of rows is exact.
        seed: the random seed.

    Returns:
        ``(train, test)``: increasing int64 row numbers; each row is in one of them.

    Example:
        >>> labels = torch.eye(2).repeat(50, 1)
        >>> train, test = stratified_split(labels, test_size=0.1)
        >>> len(train), len(test), labels[test].sum(dim=0).tolist()
        (90, 10, [5.0, 5.0])
    """
    check_at_least("stratified_split", "test_size", test_size, 0, strict=True)
    if test_size >= 1:
        raise ValueError(f"stratified_split: `test_size` must be a share of the rows, in (0, 1); got {test_size!r}.")
    sparse = _positives("stratified_split", labels)
    test_rows = round(test_size * len(sparse))
    if not 0 < test_rows < len(sparse):
        raise ValueError(
            f"stratified_split: `test_size` must leave rows on both sides; {test_size!r} of {len(sparse)} rows is {test_rows}."
        )
    train, test = _stratify(sparse, [len(sparse) - test_rows, test_rows], seed)
    return train, test


def stratified_folds(labels: Tensor | SparseLabels, *, num_folds: int = 5, seed: int = 0) -> list[Tensor]:
    """Split rows into ``num_folds`` folds of equal size (up to one row), with every label in the same proportion in each.

    Args:
        labels: ``[R, L]``, hard or soft (entries above 0 count), or ``SparseLabels``.
        num_folds: the number of folds, from 2 to R.
        seed: the random seed.

    Returns:
        ``num_folds`` tensors of increasing int64 row numbers; each row is in one of them.

    Example:
        >>> labels = torch.eye(3).repeat(8, 1)
        >>> [labels[fold].sum(dim=0).tolist() for fold in stratified_folds(labels, num_folds=2)]
        [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]
    """
    sparse = _positives("stratified_folds", labels)
    if isinstance(num_folds, bool) or not isinstance(num_folds, int) or not 2 <= num_folds <= len(sparse):
        raise ValueError(
            f"stratified_folds: `num_folds` must be from 2 to the number of rows, {len(sparse)}; got {num_folds!r}."
        )
    small, more = divmod(len(sparse), num_folds)
    return _stratify(sparse, [small + (fold < more) for fold in range(num_folds)], seed)


def _positives(who: str, labels: Tensor | SparseLabels) -> SparseLabels:
    if isinstance(labels, Tensor):
        if labels.ndim != 2:
            raise ValueError(f"{who}: `labels` must be [R, L]; got {shape_text(labels.shape)}.")
        labels = SparseLabels.from_dense(labels > 0)
    elif not isinstance(labels, SparseLabels):
        raise TypeError(f"{who}: `labels` must be a tensor or SparseLabels; got {type(labels).__name__}.")
    return labels


def _stratify(labels: SparseLabels, sizes: Sequence[int], seed: int) -> list[Tensor]:
    """Iterative stratification: the rarest label comes first. Each of its rows goes to the part that needs the label most; full
    parts get no more rows."""
    draw = random.Random(seed)
    lists, rows_of = labels.lists(), labels.transposed().lists()
    shares = [size / len(labels) for size in sizes]
    wanted = [[len(rows) * share for share in shares] for rows in rows_of]
    free, part_of = list(sizes), [-1] * len(labels)
    left = [len(rows) for rows in rows_of]
    order = [draw.random() for _ in left]
    queue = [(count, order[label], label) for label, count in enumerate(left) if count]
    heapq.heapify(queue)

    def deal(row: int, lack: Sequence[float]) -> None:
        part = max((p for p in range(len(sizes)) if free[p]), key=lambda p: (lack[p], free[p] / sizes[p], draw.random()))
        part_of[row] = part
        free[part] -= 1
        for label in lists[row]:
            wanted[label][part] -= 1
            left[label] -= 1
            if left[label]:
                heapq.heappush(queue, (left[label], order[label], label))

    while queue:
        count, _, label = heapq.heappop(queue)
        if count != left[label]:
            continue  # an outdated entry of a label whose rows were distributed meanwhile
        rows = [row for row in rows_of[label] if part_of[row] < 0]
        draw.shuffle(rows)
        for row in rows:
            deal(row, wanted[label])
    rest = [row for row, part in enumerate(part_of) if part < 0]
    draw.shuffle(rest)
    for row in rest:
        deal(row, [0.0] * len(sizes))
    parts = torch.tensor(part_of, device=labels.device)
    return [(parts == part).nonzero().flatten() for part in range(len(sizes))]
