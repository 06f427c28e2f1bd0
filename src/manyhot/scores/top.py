"""The best scores of each row, for label sets too large to score whole."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_logits, shape_text
from manyhot.scores.best import best_in_groups


class TopScores:
    """The K best labels of each row and their scores, best first; the scores of all other labels are not kept.

    Search indexes, trees and top-k kernels return this form. Metrics of the top of the ranking accept it instead of dense
    scores: P@k, R@k, nDCG@k, PSP@k and one-error.

    Args:
        values: floating-point ``[R, K]``, falling along a row.
        indices: int64 ``[R, K]``, label numbers, each at most once per row; -1 marks an empty place, after all others.
        num_labels: L, the size of the whole label set.
        log_sums: ``[R]``, the logarithm of the sum of ``e^s`` over all labels of a row, if known. ``values`` minus ``log_sums``
            is the logarithm of the row's softmax.

    Example:
        >>> top = TopScores.from_dense(torch.tensor([[0.1, 2.0, -1.0, 0.5]]), k=2)
        >>> top.indices.tolist(), top.num_labels
        ([[1, 3]], 4)
        >>> top
        TopScores(1 rows, best 2 of 4 labels)
    """

    __slots__ = ("indices", "log_sums", "num_labels", "values")

    def __init__(self, values: Tensor, indices: Tensor, num_labels: int, log_sums: Tensor | None = None) -> None:
        check_logits("TopScores", values, "values")
        if values.ndim != 2:
            raise ValueError(f"TopScores: `values` must be [R, K]; got {shape_text(values.shape)}.")
        if not isinstance(indices, Tensor) or indices.dtype != torch.int64 or indices.shape != values.shape:
            got = f"{indices.dtype} {shape_text(indices.shape)}" if isinstance(indices, Tensor) else type(indices).__name__
            raise ValueError(f"TopScores: `indices` must be int64 {shape_text(values.shape)}, like `values`; got {got}.")
        check_at_least("TopScores", "num_labels", num_labels, 0)
        if log_sums is not None and log_sums.shape != values.shape[:1]:
            raise ValueError(f"TopScores: `log_sums` must be [{len(values)}]; got {shape_text(log_sums.shape)}.")
        self.log_sums = log_sums
        self.values, self.indices, self.num_labels = values, indices, int(num_labels)

    @classmethod
    def from_dense(cls, scores: Tensor, *, k: int) -> TopScores:
        """The ``k`` best of dense scores ``[..., L]``, or all if there are fewer labels."""
        check_logits("TopScores.from_dense", scores, "scores")
        check_at_least("TopScores.from_dense", "k", k, 1)
        flat = scores.detach().reshape(scores.shape[:-1].numel(), scores.shape[-1])
        found = best_in_groups(flat, None, None, k) if flat.numel() else None
        if found is not None:
            return cls(found[0].to(scores.dtype), found[1], scores.shape[-1])
        best = flat.topk(min(k, scores.shape[-1]), dim=-1)
        return cls(best.values, best.indices, scores.shape[-1])

    @property
    def shape(self) -> torch.Size:
        """``[R, L]``, as the dense tensor would have it."""
        return torch.Size((len(self), self.num_labels))

    @property
    def k(self) -> int:
        """K, how many labels a row lists."""
        return self.values.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the lists are."""
        return self.values.device

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> TopScores:
        """The same scores on ``device``."""
        values = self.values.to(device, non_blocking=non_blocking)
        sums = None if self.log_sums is None else self.log_sums.to(device, non_blocking=non_blocking)
        return TopScores(values, self.indices.to(device, non_blocking=non_blocking), self.num_labels, sums)

    def log_softmax(self) -> TopScores:
        """The same labels with the logarithms of the row's softmax as their scores."""
        if self.log_sums is None:
            raise ValueError("TopScores: a softmax needs `log_sums`; got None. Compute them with top(k, log_sums=True).")
        return TopScores(self.values - self.log_sums.unsqueeze(1), self.indices, self.num_labels)

    def __len__(self) -> int:
        return self.values.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> TopScores:
        """Some rows: a slice, an index or a bool tensor."""
        sums = None if self.log_sums is None else self.log_sums[rows]
        return TopScores(self.values[rows], self.indices[rows], self.num_labels, sums)

    def __repr__(self) -> str:
        return f"TopScores({len(self)} rows, best {self.k} of {self.num_labels} labels)"
