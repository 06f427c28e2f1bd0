"""A table of word vectors for sparse rows: trained by row-wise AdaGrad inside backward, kept in 8 bits if it is large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from manyhot.engines.triton.linear import table
from manyhot.training.rows.inputs.row_batches import SparseRows

START_DEVIATION = 0.3
# The largest number of a row in 8 bits.
LARGEST_BYTE = 127
# Rows that are rounded at once.
ROWS_AT_ONCE = 1 << 16


class _MovedSum(torch.autograd.Function):
    """``x W`` for sparse rows; backward updates the rows of W that occur in x by row-wise AdaGrad."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, squares: Tensor, rate: Tensor, *batch: Tensor) -> Tensor:
        columns, offsets, values = batch
        ctx.save_for_backward(columns, offsets, values)
        ctx.moved = weight.detach(), squares, rate
        if table.sums_rows(weight):
            return table.bag(weight.detach(), columns, offsets, values)
        return embedding_bag(columns, weight, offsets, per_sample_weights=values, mode="sum", include_last_offset=True)

    @staticmethod
    @torch.no_grad()
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """``x^T g``, applied at once."""
        columns, offsets, values = ctx.saved_tensors
        weight, squares, rate = ctx.moved
        size, kind = columns.shape[0], columns.dtype
        if size:
            entries = torch.arange(size, dtype=kind, device=columns.device)
            rows = torch.searchsorted(offsets[1:-1], entries, right=True, out_int32=kind == torch.int32)
            gradient = gradients[0].float().contiguous()
            move = table.update if table.serves(weight) else _move
            move(weight, squares, rate, columns, rows, values, gradient)
        return (None,) * 6


def _move(
    weight: Tensor, squares: Tensor, rate: Tensor, columns: Tensor, rows: Tensor, values: Tensor, gradient: Tensor
) -> None:
    """The plain form of ``table.update``: the entries are summed in the order of their columns.

    Only the device knows the number of different columns. So there is a slot for each entry: the first slots hold the columns,
    the others are empty and add zeros to column 0.
    """
    ordered, order = columns.sort(stable=True)
    size = ordered.shape[0]
    first = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=first[1:])
    place = first.cumsum(0) - 1
    entries = torch.arange(size, dtype=ordered.dtype, device=ordered.device)
    starts = entries.new_full((size + 1,), size).scatter_reduce_(0, place, entries, "amin")
    distinct = ordered.new_zeros(size).scatter_(0, place, ordered)
    change = embedding_bag(
        rows[order], gradient, starts, per_sample_weights=values[order], mode="sum", include_last_offset=True
    )
    squares.index_add_(0, distinct, change.square().mean(dim=1))
    length = squares[distinct].sqrt_().clamp_(min=1e-30)
    weight.index_add_(0, distinct, change.mul_((-rate / length).unsqueeze(1)))
    torch.autograd.graph.increment_version(weight)


class WordTable(nn.Module):
    """``x W`` for sparse rows, ``W [F, H]``; in training, backward updates W by row-wise AdaGrad.

    Args:
        width: F.
        hidden: H.
        moves: whether it is trained; the sums of squared gradients are then part of its state.
        dtype: the dtype of W; must be float32 if it is trained. With int8 each row has a scale.
        device: where the initial weights are drawn; the seed comes from torch's CPU generator.
        zeros: the first feature that starts at 0, and the one after the last. The vectors of rare features hardly move,
            so that a random start would only add noise.
    """

    rate: Tensor
    squares: Tensor | None
    scales: Tensor | None

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        moves: bool,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        zeros: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__()
        weight = torch.empty(width, hidden, dtype=dtype, device=device)
        # On the meta device, filling would only import torch's compiler.
        if dtype == torch.int8 and not weight.is_meta:
            weight.zero_()
        elif weight.is_cuda:
            # The CPU takes seconds to draw a table that a GPU draws in milliseconds.
            draw = torch.Generator(weight.device).manual_seed(int(torch.randint(1 << 62, ())))
            weight.normal_(std=START_DEVIATION, generator=draw)
        elif not weight.is_meta:
            weight.normal_(std=START_DEVIATION)
        if zeros[1] > zeros[0]:
            weight[slice(*zeros)] = 0
        self.weight = nn.Parameter(weight, requires_grad=dtype != torch.int8)
        self.register_buffer("scales", torch.zeros(width) if dtype == torch.int8 else None)
        self.register_buffer("squares", torch.zeros(width) if moves else None)
        self.register_buffer("rate", torch.tensor(0.0), persistent=False)

    def forward(self, batch: SparseRows) -> Tensor:
        """``[B, H]``."""
        columns, offsets, values = batch
        if self.squares is not None and torch.is_grad_enabled():
            moved: Tensor = _MovedSum.apply(self.weight, self.squares, self.rate, columns, offsets, values)  # type: ignore[no-untyped-call]
            return moved
        if self.scales is not None:
            return _byte_sums(self.weight, self.scales, batch)
        own = values.to(self.weight.dtype)
        return embedding_bag(columns, self.weight, offsets, per_sample_weights=own, mode="sum", include_last_offset=True)

    @torch.no_grad()
    def hold(self, parts: Sequence[Tensor]) -> None:
        """Hold the vectors of ``parts [F, H']`` side by side, rounded to the dtype of this table, a block of rows at a time."""
        width, hidden = len(parts[0]), sum(part.shape[1] for part in parts)
        weight = parts[0].new_empty((width, hidden), dtype=self.weight.dtype)
        scales = None if self.scales is None else parts[0].new_empty(width, dtype=torch.float32)
        for start in range(0, width, ROWS_AT_ONCE):
            own = slice(start, start + ROWS_AT_ONCE)
            block = torch.cat([part[own] for part in parts], dim=1)
            if scales is not None:
                scales[own] = block.abs().amax(dim=1) / LARGEST_BYTE
                block = block.div_(scales[own].clamp(min=1e-30).unsqueeze(1)).round_()
            weight[own] = block
        self.weight, self.scales = nn.Parameter(weight, requires_grad=scales is None), scales


def _byte_sums(weight: Tensor, scales: Tensor, batch: SparseRows) -> Tensor:
    """float32 ``[B, H]`` of a table in 8 bits."""
    columns, offsets, values = batch
    own = values * scales[columns]
    if table.sums_rows(weight):
        return table.bag(weight, columns, offsets, own)
    # torch sums no bytes: the rows that the batch names are expanded, each once.
    named, places = torch.unique(columns, return_inverse=True)
    rows = weight[named].float()
    return embedding_bag(places, rows, offsets.long(), per_sample_weights=own, mode="sum", include_last_offset=True)
