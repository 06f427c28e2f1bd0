"""Statistics of labels: counts, imbalance, co-occurrence, and leaks between splits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_where, shape_text
from manyhot.labels.sparse import SparseLabels

PAIRED_LABELS = 1000


@dataclass(frozen=True)
class LabelPair:
    """Two labels that occur together; ``lift`` is their frequency divided by that of independent labels.

    Example:
        >>> describe_labels(torch.ones(3, 2)).pairs
        (LabelPair(first=0, second=1, count=3, lift=1.0),)
    """

    first: int | str
    second: int | str
    count: int
    lift: float


@dataclass(frozen=True)
class LabelStatistics:
    """Statistics of labels, from ``describe_labels``.

    Args:
        rows: R.
        labels: L.
        cardinality: mean number of positives per row.
        density: positives as a share of the known entries.
        counts: the number of positives of each label.
        empty_rows: rows without a positive.
        distinct_sets: different label sets, the empty one included.
        imbalance: positives of the most frequent label divided by those of the rarest label that occurs.
        mean_imbalance: the mean of IRLbl, the positives of the most frequent label divided by those of a label. Labels that
            never occur are skipped.
        without_positives: the labels that never occur.
        pairs: the most frequent pairs; with more than 1,000 labels, among the 1,000 most frequent labels.

    Example:
        >>> describe_labels(torch.eye(2)).counts
        (1, 1)
    """

    rows: int
    labels: int
    cardinality: float
    density: float
    counts: tuple[int, ...]
    empty_rows: int
    distinct_sets: int
    imbalance: float
    mean_imbalance: float
    without_positives: tuple[int | str, ...]
    pairs: tuple[LabelPair, ...]


@dataclass(frozen=True)
class Leaks:
    """Test rows whose content also occurs in training.

    Args:
        pairs: ``(test row, training row)``, the first training row with that content.
        test_rows: the number of test rows.
        share: leaking rows as a share of the test rows.

    Example:
        >>> find_leaks(["a"], ["b", "a"]).pairs
        ((1, 0),)
    """

    pairs: tuple[tuple[int, int], ...]
    test_rows: int
    share: float


def describe_labels(
    labels: Tensor | SparseLabels,
    *,
    names: Sequence[str] | None = None,
    where: Tensor | None = None,
    top_pairs: int = 10,
) -> LabelStatistics:
    """The usual statistics of multi-label data.

    Args:
        labels: ``[R, L]``, hard or soft (entries above 0 count), or ``SparseLabels``.
        names: the names of the labels; None uses label numbers.
        where: bool, broadcastable to ``labels``; False marks an unknown entry, which is not counted at all.
        top_pairs: the number of pairs to list.

    Returns:
        ``LabelStatistics``.

    Example:
        >>> labels = SparseLabels.from_lists([[0, 1], [0, 1], [0], []], num_labels=3)
        >>> found = describe_labels(labels, names=["sun", "sea", "snow"])
        >>> found.cardinality, found.distinct_sets, found.without_positives
        (1.25, 3, ('snow',))
        >>> found.pairs[0]
        LabelPair(first='sun', second='sea', count=2, lift=1.3333333333333333)
    """
    who = "describe_labels"
    check_at_least(who, "top_pairs", top_pairs, 0)
    if isinstance(labels, Tensor):
        if labels.ndim != 2:
            raise ValueError(f"{who}: `labels` must be [R, L]; got {shape_text(labels.shape)}.")
        labels = SparseLabels.from_dense(labels > 0)
    rows, num_labels = labels.shape
    if names is not None and len(names) != num_labels:
        raise ValueError(f"{who}: `names` must have one name per label, {num_labels}; got {len(names)}.")
    kept = torch.ones_like(labels.indices, dtype=torch.bool) if labels.values is None else labels.values > 0
    known = rows * num_labels
    if where is not None:
        check_where(who, where, labels.shape)
        where = where.expand(labels.shape)
        kept &= where[labels.rows, labels.indices]
        known = int(where.sum())
    row, column = labels.rows[kept].cpu(), labels.indices[kept].cpu()
    counts = torch.bincount(column, minlength=num_labels)
    per_row = torch.bincount(row, minlength=rows)
    imbalance, mean_imbalance = _imbalance(counts)
    total = int(counts.sum())
    name: Sequence[int | str] = range(num_labels) if names is None else names
    return LabelStatistics(
        rows=rows,
        labels=num_labels,
        cardinality=total / max(rows, 1),
        density=total / max(known, 1),
        counts=tuple(counts.tolist()),
        empty_rows=int((per_row == 0).sum()),
        distinct_sets=_distinct_sets(column.numpy(), per_row.tolist()),
        imbalance=imbalance,
        mean_imbalance=mean_imbalance,
        without_positives=tuple(name[label] for label in (counts == 0).nonzero().flatten().tolist()),
        pairs=tuple(
            LabelPair(name[a], name[b], count, count * rows / (int(counts[a]) * int(counts[b])))
            for a, b, count in _top_pairs(row.numpy(), column.numpy(), (rows, num_labels), top_pairs)
        ),
    )


def _imbalance(counts: Tensor) -> tuple[float, float]:
    """``imbalance`` and ``mean_imbalance`` of ``LabelStatistics``."""
    present = counts[counts > 0].double()
    if len(present) == 0:
        return 1.0, 1.0
    return float(present.max() / present.min()), float((present.max() / present).mean())


def _distinct_sets(column: np.ndarray[Any, Any], per_row: list[int]) -> int:
    parts, start = set(), 0
    for size in per_row:
        parts.add(column[start : start + size].tobytes())
        start += size
    return len(parts)


def _top_pairs(row: Any, column: Any, shape: tuple[int, int], top: int) -> list[tuple[int, int, int]]:
    """``(label, higher label, count)`` of the most frequent pairs; ties go to lower label numbers."""
    from scipy.sparse import csr_array, triu

    labels = np.arange(shape[1])
    if shape[1] > PAIRED_LABELS:
        # Counts of all pairs of very many labels do not fit in memory. A pair is at most as frequent as its rarer label, so the
        # most frequent pairs are nearly always among frequent labels.
        counts = np.bincount(column, minlength=shape[1])
        labels = np.sort(np.argsort(-counts, kind="stable")[:PAIRED_LABELS])
        place = np.full(shape[1], -1)
        place[labels] = np.arange(len(labels))
        kept = place[column] >= 0
        row, column = row[kept], place[column[kept]]
    matrix = csr_array((np.ones(len(row), dtype=np.int64), (row, column)), shape=(shape[0], len(labels)))
    together = triu(matrix.T @ matrix, k=1).tocoo()
    order = np.lexsort((together.col, together.row, -together.data))[:top]
    return [(int(labels[together.row[i]]), int(labels[together.col[i]]), int(together.data[i])) for i in order]


def find_leaks(train_rows: Any, test_rows: Any) -> Leaks:
    """Find test rows that also occur in training, by a hash of their content.

    The content must be identical: texts that differ in spaces or case are different. Numbers are compared as float64, so that
    their type does not matter.

    Args:
        train_rows: a sequence of texts, or features ``[R, D]`` as tensor, array or scipy sparse matrix.
        test_rows: the same kind.

    Returns:
        ``Leaks``.

    Example:
        >>> find_leaks(["a cat", "a dog"], ["a dog", "A dog"])
        Leaks(pairs=((0, 1),), test_rows=2, share=0.5)
    """
    seen: dict[bytes, int] = {}
    for place, key in enumerate(_digests("train_rows", train_rows)):
        seen.setdefault(key, place)
    keys = list(_digests("test_rows", test_rows))
    pairs = tuple((place, seen[key]) for place, key in enumerate(keys) if key in seen)
    return Leaks(pairs, len(keys), len(pairs) / max(len(keys), 1))


def _digests(name: str, rows: Any) -> Iterator[bytes]:
    for content in _contents(name, rows):
        yield hashlib.blake2b(content, digest_size=16).digest()


def _contents(name: str, rows: Any) -> Iterator[bytes]:
    """Each row's content as bytes."""
    if isinstance(rows, Tensor):
        rows = rows.detach().cpu().numpy()
    if hasattr(rows, "tocsr"):
        sparse = rows.tocsr(copy=True)
        sparse.sum_duplicates()
        sparse.eliminate_zeros()
        for start, stop in zip(sparse.indptr[:-1], sparse.indptr[1:], strict=True):
            yield sparse.indices[start:stop].astype(np.int64).tobytes() + sparse.data[start:stop].astype(np.float64).tobytes()
    elif isinstance(rows, np.ndarray):
        if rows.ndim != 2:
            raise ValueError(f"find_leaks: `{name}` must be texts or features [R, D]; got shape {shape_text(rows.shape)}.")
        for row in rows:
            yield (row.astype(np.float64) + 0.0).tobytes()  # -0.0 is 0.0
    else:
        for place, text in enumerate(rows):
            if not isinstance(text, str):
                raise TypeError(f"find_leaks: `{name}` must be texts or features [R, D]; row {place} is {type(text).__name__}.")
            yield text.encode()
