"""Scores and labels for fitting a calibration, in blocks of rows or of labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_dense_labels, check_label_values, check_logits, check_where
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.lazy import is_lazy

BLOCK_ELEMENTS = 1 << 21


class CalibrationData:
    """Scores, targets and ``where``, in float64 blocks of rows or of labels."""

    def __init__(self, who: str, logits: Any, labels: Any, where: Tensor | None) -> None:
        if is_lazy(logits):
            logits = logits.dense()
        check_logits(who, logits)
        shape = logits.shape
        size = (shape[:-1].numel(), shape[-1])
        if where is not None:
            check_where(who, where, shape)
            where = where.expand(shape).reshape(size)
        if isinstance(labels, SparseLabels):
            if tuple(labels.shape) != size:
                raise ValueError(
                    f"{who}: `labels` must fit `logits`, {size[0]} rows of {size[1]} labels;"
                    f" got {len(labels)} rows of {labels.num_labels}. Encode with the same label names."
                )
        else:
            check_dense_labels(who, shape, labels)
            labels = labels.reshape(size)
            check_label_values(who, labels, where)
        self.scores, self.labels, self.where = logits.detach().reshape(size), labels, where
        self.positives = self.entries = squares = largest = 0.0
        for start, (scores, targets, counts) in self._row_blocks_at():
            bad = ~scores.isfinite() & (counts > 0)
            if bool(bad.any()):
                row, column = bad.nonzero()[0].tolist()
                raise ValueError(
                    f"{who}: `logits` must be finite where they count; got {scores[row, column].item()}"
                    f" in row {start + row}, label {column}. Exclude it with `where`."
                )
            self.positives += float((targets * counts).sum())
            self.entries += float(counts.sum())
            most = float(scores.abs().max()) if scores.numel() else 0.0
            if most > largest:
                squares, largest = squares * (largest / most) ** 2, most
            if largest > 0:
                squares += float((scores / largest).square().sum())
        if self.entries == 0:
            raise ValueError(f"{who}: there is no entry to fit on; got logits of {size[0]} rows of {size[1]} labels.")
        # The root mean square of the scores, or 1 if all are 0.
        self.scale = largest * math.sqrt(squares / self.entries) or 1.0

    def row_blocks(self, *, every: int = 1) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """``(scores, targets, counts)``, each ``[r, L]``, of each row or only ``every`` so many rows."""
        return (block for _, block in self._row_blocks_at(every))

    def _row_blocks_at(self, every: int = 1) -> Iterator[tuple[int, tuple[Tensor, Tensor, Tensor]]]:
        rows, labels = self.scores.shape
        size = max(1, BLOCK_ELEMENTS // max(labels, 1)) * every
        for start in range(0, rows, size):
            yield start, self._block(slice(start, start + size, every), slice(None))

    def label_blocks(self) -> Iterator[tuple[slice, tuple[Tensor, Tensor, Tensor]]]:
        """``(which labels, (scores, targets, counts))``, each ``[R, l]``."""
        rows, labels = self.scores.shape
        size = max(1, BLOCK_ELEMENTS // max(rows, 1))
        for start in range(0, labels, size):
            columns = slice(start, min(start + size, labels))
            yield columns, self._block(slice(None), columns)

    def _block(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor, Tensor]:
        scores = self.scores[rows, columns].double()
        labels: Any = self.labels
        if isinstance(labels, SparseLabels):
            picked = labels[rows] if columns == slice(None) else labels.columns(columns.start, columns.stop)
            targets = picked.dense(torch.float64).to(scores.device)
        else:
            targets = labels[rows, columns].to(scores)
        counts = torch.ones_like(scores) if self.where is None else self.where[rows, columns].to(scores)
        # An excluded entry may be infinite or NaN, so its score must not be multiplied by 0.
        return torch.where(counts > 0, scores, 0.0), torch.where(counts > 0, targets, 0.0), counts
