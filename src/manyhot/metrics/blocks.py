"""Scores and labels as blocks of rows, so that intermediate results stay small. All metrics iterate over the same blocks.

The positives of a block are index lists for every form of labels, so that each metric is written once. Entries that ``where``
excludes are not positives and have the score ``-inf``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import (
    check_first_nan,
    check_first_soft,
    check_hard_labels,
    check_logits,
    check_same_table,
    check_where,
)
from manyhot.engines.terms import accumulation_dtype
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.lazy import LazyScores, is_lazy
from manyhot.scores.linear import LinearScores
from manyhot.scores.top import TopScores

Labels = Tensor | SparseLabels
Scores = Tensor | LazyScores | TopScores

NO_FAULT = 1 << 62


def block_elements(device: torch.device) -> int:
    """The number of entries of a block: about the size of the CPU's cache, or enough to keep a GPU busy. A GPU with enough
    memory processes a whole batch as one block, because splitting a table into blocks syncs with the device."""
    if device.type == "cpu":
        return 1 << 20
    most = torch.cuda.get_device_properties(device).total_memory // 512 if device.type == "cuda" else 0
    return max(1 << 24, min(1 << 27, most))


@dataclass(frozen=True)
class Table:
    """Checked scores and labels with their leading axes flattened: R rows of L labels."""

    shape: torch.Size
    labels: Labels
    scores: Tensor | LinearScores | TopScores | None
    predictions: Labels | None
    where: Tensor | None

    @property
    def num_rows(self) -> int:
        """R."""
        return self.shape[:-1].numel()

    @property
    def num_labels(self) -> int:
        """L."""
        return self.shape[-1]


@dataclass(frozen=True)
class Block:
    """Some rows of a table.

    Attributes:
        start: the number of the first row.
        scores: ``[r, L]`` in float32 or float64, ``-inf`` for excluded entries; or the best scores of each row; or None.
        positives: the positives that count.
        predictions: bool ``[r, L]`` or index lists, without excluded entries; or None.
        where: bool ``[r, L]``, or None if all entries count.
        known: int64 ``[r]``, the number of entries of each row that count.
        faults: int64 ``[2]``, on the device: the first row with a NaN score and the first with a label that is not hard,
            or ``NO_FAULT``.
    """

    start: int
    scores: Tensor | TopScores | None
    positives: SparseLabels
    predictions: Labels | None
    where: Tensor | None
    known: Tensor
    faults: Tensor

    @property
    def num_rows(self) -> int:
        """The number of rows of this block."""
        return len(self.positives)


def arrange(who: str, scores: Any, labels: Any, *, predictions: Any = None, where: Tensor | None = None) -> Table:
    """Check types, shapes and ``where`` for all metrics. Values are checked block by block."""
    of, shape = _shape(who, scores, predictions)
    for name, given in (("labels", labels), ("predictions", predictions)):
        if name == "labels" or given is not None:
            check_hard_labels(who, name, given)
            check_same_table(who, name, given.shape, of, shape)
    flat = (shape[:-1].numel(), shape[-1])
    if where is not None:
        check_where(who, where, shape)
        where = where.expand(shape).reshape(flat)
    if isinstance(predictions, Tensor) and predictions.dtype != torch.bool:
        raise TypeError(f"{who}: `predictions` must be a bool tensor or SparseLabels; got {predictions.dtype}. See decide.")
    return Table(
        shape=shape,
        labels=labels.detach().reshape(flat) if isinstance(labels, Tensor) else labels,
        scores=_flat_scores(scores, flat),
        predictions=predictions.reshape(flat) if isinstance(predictions, Tensor) else predictions,
        where=where,
    )


def _shape(who: str, scores: Any, predictions: Any) -> tuple[str, torch.Size]:
    if scores is None and predictions is not None:
        check_hard_labels(who, "predictions", predictions)
        return "predictions", torch.Size(predictions.shape)
    if not isinstance(scores, TopScores) and not is_lazy(scores):
        check_logits(who, scores, "scores")
    return "scores", torch.Size(scores.shape)


def _flat_scores(scores: Any, flat: tuple[int, int]) -> Tensor | LinearScores | TopScores | None:
    if scores is None or isinstance(scores, TopScores):
        return scores
    if isinstance(scores, LinearScores):
        return scores.with_hidden(scores.hidden.reshape(flat[0], -1))
    dense: Tensor = scores if isinstance(scores, Tensor) else scores.dense()
    return dense.detach().reshape(flat)


def blocks(table: Table) -> Iterator[Block]:
    """The rows of a table in blocks; at least one block, which may be empty."""
    with torch.no_grad():
        device = table.labels.device
        size = max(1, block_elements(device) // max(_width(table), 1))
        for start in range(0, max(table.num_rows, 1), size):
            yield _block(table, start, min(start + size, table.num_rows))


def _width(table: Table) -> int:
    """The number of entries that a row of a block takes: all labels, unless all arguments are index lists."""
    dense = [part for part in (table.labels, table.scores, table.predictions) if isinstance(part, (Tensor, LinearScores))]
    if dense or table.where is not None:
        return table.num_labels
    return table.scores.k if isinstance(table.scores, TopScores) else 1


def _block(table: Table, start: int, stop: int) -> Block:
    where = None if table.where is None else table.where[start:stop]
    positives, soft = _positives(table, start, stop, where)
    scores, nan = _scores(table, start, stop, where)
    known = positives.offsets.new_full((stop - start,), table.num_labels) if where is None else where.sum(dim=1)
    return Block(
        start=start,
        scores=scores,
        positives=positives,
        predictions=_predictions(table, start, stop, where),
        where=where,
        known=known,
        faults=torch.stack([first_row(nan, start, positives.device), first_row(soft, start, positives.device)]),
    )


def _rows(lists: SparseLabels, start: int, stop: int) -> SparseLabels:
    return lists if (start, stop) == (0, len(lists)) else lists[start:stop]


def _positives(table: Table, start: int, stop: int, where: Tensor | None) -> tuple[SparseLabels, Tensor | None]:
    """The positives that count, and for each row whether it has a label that is not hard; None if that is impossible."""
    if isinstance(table.labels, SparseLabels):
        return counting(_rows(table.labels, start, stop), where), None
    part = table.labels[start:stop]
    flags = part if part.dtype == torch.bool else part == 1
    positives = lists_of(flags if where is None else flags & where)
    if part.dtype == torch.bool:
        return positives, None
    nonzero = part != 0 if where is None else (part != 0) & where
    return positives, nonzero.sum(dim=1) != positives.counts()


def lists_of(flags: Tensor) -> SparseLabels:
    """The True entries of a bool tensor ``[r, L]`` as index lists."""
    rows, columns = flags.nonzero(as_tuple=True)
    cuts = torch.arange(flags.shape[0] + 1, device=flags.device)
    offsets = torch.searchsorted(rows.contiguous(), cuts)
    return SparseLabels(columns.contiguous(), offsets, flags.shape[1], validate=False)


def counting(lists: SparseLabels, where: Tensor | None) -> SparseLabels:
    """The listed entries that ``where`` keeps."""
    if where is None:
        return lists
    kept = where[lists.rows, lists.indices]
    before = torch.nn.functional.pad(kept.cumsum(0), (1, 0))
    return SparseLabels(lists.indices[kept], before[lists.offsets], lists.num_labels, validate=False)


def _scores(table: Table, start: int, stop: int, where: Tensor | None) -> tuple[Tensor | TopScores | None, Tensor | None]:
    """The scores of a block, and for each row whether it has a NaN that counts."""
    if table.scores is None:
        return None, None
    if isinstance(table.scores, TopScores):
        return _top_scores(table.scores[start:stop], where)
    source = table.scores
    part = source.with_hidden(source.hidden[start:stop]).dense() if isinstance(source, LinearScores) else source[start:stop]
    part = part.to(accumulation_dtype(part.dtype))
    if where is not None:
        part = part.masked_fill(~where, -torch.inf)
    return part, part.amax(dim=1).isnan() if part.shape[1] else None


def _top_scores(top: TopScores, where: Tensor | None) -> tuple[TopScores, Tensor]:
    """The lists with excluded entries moved to the end as empty places."""
    gone = top.indices < 0
    if where is not None:
        gone = gone | ~where.gather(1, top.indices.clamp(min=0))
        order = gone.byte().argsort(dim=1, stable=True)
        top = TopScores(top.values.gather(1, order), top.indices.gather(1, order), top.num_labels)
        gone = gone.gather(1, order)
    values = top.values.to(accumulation_dtype(top.values.dtype)).masked_fill(gone, -torch.inf)
    return TopScores(values, top.indices.masked_fill(gone, -1), top.num_labels), values.isnan().any(dim=1)


def _predictions(table: Table, start: int, stop: int, where: Tensor | None) -> Labels | None:
    if table.predictions is None:
        return None
    if isinstance(table.predictions, SparseLabels):
        return counting(_rows(table.predictions, start, stop), where)
    part = table.predictions[start:stop]
    return part if where is None else part & where


def first_row(wrong: Tensor | None, start: int, device: torch.device) -> Tensor:
    """The number of the first wrong row, or ``NO_FAULT``; stays on the device."""
    none = torch.full((1,), NO_FAULT, device=device)
    if wrong is None:
        return none[0]
    rows = torch.arange(start, start + wrong.shape[0], device=device)
    return torch.cat([torch.where(wrong, rows, NO_FAULT), none]).amin()


def raise_faults(who: str, faults: Tensor) -> None:
    """Raise an error that names the row, if there is a fault. Reads values, so it syncs with the device."""
    rows = [-1 if row == NO_FAULT else row for row in faults.tolist()]
    check_first_nan(who, "scores", rows[0])
    check_first_soft(who, "labels", rows[1])


def checked_blocks(who: str, table: Table) -> Iterator[Block]:
    """The blocks of a table, each checked before it is yielded."""
    for block in blocks(table):
        raise_faults(who, block.faults)
        yield block
