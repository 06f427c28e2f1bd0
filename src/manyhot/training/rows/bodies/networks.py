"""Bodies: prepared inputs to logits ``[B, L]``. All of them end in a head whose bias starts at the label's log odds."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from manyhot._sparse import sparse_tensor
from manyhot.explain.contributions import LinearFactors
from manyhot.heads.linear import LinearHead
from manyhot.training.rows.inputs.row_batches import Batch, SparseRows

# Standard deviation of a new embedding.
EMBEDDING_DEVIATION = 0.3
# Below this width, a gradient with one row per entry is faster than sorting the entries.
NARROW = 64


class _WeightedSum(torch.autograd.Function):
    """``x W`` for sparse rows. The gradient of W is sparse: it holds only the rows of W whose columns occur in x."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, columns: Tensor, offsets: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(columns, offsets, values)
        ctx.size = weight.shape
        return embedding_bag(columns, weight, offsets, per_sample_weights=values, mode="sum", include_last_offset=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """``x^T g`` by the same weighted sum, over the entries sorted by column."""
        columns, offsets, values = ctx.saved_tensors
        rows = torch.arange(len(offsets) - 1, device=columns.device).repeat_interleave(offsets.diff())
        ordered, order = columns.sort(stable=True)
        distinct, counts = ordered.unique_consecutive(return_counts=True)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        gradient = gradients[0].contiguous()
        moved = embedding_bag(
            rows[order], gradient, starts, per_sample_weights=values[order], mode="sum", include_last_offset=True
        )
        table = sparse_tensor(distinct[None], moved, ctx.size, is_coalesced=True)
        return table, None, None, None


class Columns(nn.Module):
    """``x W + b`` for dense rows and for sparse ones, ``W [F, H]``, ``b [H]``."""

    def __init__(self, width: int, out: int, *, sparse_gradient: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, out))
        self.bias = nn.Parameter(torch.zeros(out))
        self.sparse_gradient = sparse_gradient

    def forward(self, batch: Batch) -> Tensor:
        """``[B, H]``."""
        if isinstance(batch, Tensor):
            return batch @ self.weight + self.bias
        assert isinstance(batch, SparseRows)
        if self.weight.shape[1] < NARROW:
            columns, offsets, values = batch
            narrow = embedding_bag(
                columns,
                self.weight,
                offsets,
                per_sample_weights=values,
                mode="sum",
                sparse=self.sparse_gradient,
                include_last_offset=True,
            )
            return narrow + self.bias
        summed: Tensor = _WeightedSum.apply(self.weight, batch.columns, batch.offsets, batch.values)  # type: ignore[no-untyped-call]
        return summed + self.bias


class LinearBody(nn.Module):
    """One layer."""

    def __init__(self, width: int, num_labels: int, *, sparse_gradient: bool = False) -> None:
        super().__init__()
        self.head = Columns(width, num_labels, sparse_gradient=sparse_gradient)

    def forward(self, batch: Batch) -> Tensor:
        """``[B, L]``."""
        out: Tensor = self.head(batch)
        return out

    def factors(self) -> LinearFactors:
        """The weights and the bias."""
        return LinearFactors(self.head.weight.detach(), None, self.head.bias.detach())


class HiddenBody(nn.Module):
    """One hidden layer; on sparse rows its first product is a weighted sum of learned embeddings.

    ``activation`` is ``relu`` or ``none``. Without one the body is a low-rank linear model. On text, where linear models are
    hard to beat, this is better than with an activation, and the body stays small with thousands of labels.
    """

    def __init__(
        self, width: int, num_labels: int, *, hidden: int, dropout: float, activation: str, sparse_gradient: bool = False
    ) -> None:
        super().__init__()
        self.first = Columns(width, hidden, sparse_gradient=sparse_gradient)
        # Sparse rows have length 1. Dense inputs are scaled by column, so the length of a row grows with the width.
        deviation = EMBEDDING_DEVIATION if sparse_gradient else width**-0.5
        nn.init.normal_(self.first.weight, std=deviation)
        self.activation = {"relu": nn.ReLU(), "none": nn.Identity()}[activation]
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, num_labels)

    def forward(self, batch: Batch) -> Tensor:
        """``[B, L]``."""
        out: Tensor = self.head(self.dropout(self.activation(self.first(batch))))
        return out

    def factors(self) -> LinearFactors | None:
        """The two weight matrices and the bias; None if there is an activation between them."""
        if not isinstance(self.activation, nn.Identity):
            return None
        with torch.no_grad():
            bias = self.head.weight @ self.first.bias + self.head.bias
        return LinearFactors(self.first.weight.detach(), self.head.weight.detach(), bias)


def mean_linear(bodies: Sequence[LinearBody]) -> LinearBody:
    """One body whose logits are the mean of those of ``bodies``."""
    joined = copy.deepcopy(bodies[0])
    with torch.no_grad():
        for name, each in joined.named_parameters():
            each.copy_(torch.stack([body.get_parameter(name) for body in bodies]).mean(dim=0))
    return joined


def mean_hidden(bodies: Sequence[HiddenBody]) -> HiddenBody:
    """One body whose logits are the mean of those of ``bodies``, with their hidden layers side by side."""
    if len(bodies) == 1:
        return bodies[0]
    joined = copy.deepcopy(bodies[0])
    with torch.no_grad():
        _put_beside(joined.first, [each.first for each in bodies])
        joined.head.weight = nn.Parameter(torch.cat([each.head.weight for each in bodies], dim=1) / len(bodies))
        joined.head.bias = nn.Parameter(torch.stack([each.head.bias for each in bodies]).mean(dim=0))
    joined.head.in_features = joined.head.weight.shape[1]
    return joined


def _put_beside(joined: Columns, parts: Sequence[Columns]) -> None:
    """Give ``joined`` the outputs of all ``parts``, one after the other."""
    joined.weight = nn.Parameter(torch.cat([each.weight for each in parts], dim=1))
    joined.bias = nn.Parameter(torch.cat([each.bias for each in parts]))


def linear_beside(bodies: Sequence[LinearBody]) -> LinearBody:
    """One body with the logits of all ``bodies``, concatenated."""
    joined = copy.deepcopy(bodies[0])
    with torch.no_grad():
        _put_beside(joined.head, [each.head for each in bodies])
    return joined


def hidden_beside(bodies: Sequence[HiddenBody]) -> HiddenBody:
    """One body with the logits of all ``bodies``, concatenated; the head is block-diagonal over their hidden layers."""
    joined = copy.deepcopy(bodies[0])
    with torch.no_grad():
        _put_beside(joined.first, [each.first for each in bodies])
        joined.head.weight = nn.Parameter(torch.block_diag(*(each.head.weight for each in bodies)))  # type: ignore[no-untyped-call]
        joined.head.bias = nn.Parameter(torch.cat([each.head.bias for each in bodies]))
    joined.head.out_features, joined.head.in_features = joined.head.weight.shape
    return joined


class ConvBody(nn.Module):
    """Three convolutions, global max pooling over the image, a head."""

    def __init__(self, channels: int, num_labels: int, *, hidden: int, dropout: float) -> None:
        super().__init__()
        sizes = (channels, max(hidden // 4, 8), max(hidden // 2, 8), hidden)
        layers: list[nn.Module] = []
        for place, (before, after) in enumerate(pairwise(sizes)):
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            layers += [nn.MaxPool2d(2, ceil_mode=True)] if place < 2 else []
        self.layers = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, num_labels)

    def forward(self, batch: Tensor) -> Tensor:
        """``[B, L]``."""
        out: Tensor = self.head(self.dropout(self.layers(batch).amax(dim=(2, 3))))
        return out


def make_linear(shape: dict[str, Any]) -> LinearBody:
    """A linear body from its description."""
    return LinearBody(int(shape["width"]), int(shape["num_labels"]), sparse_gradient=bool(shape["sparse"]))


def make_hidden(shape: dict[str, Any]) -> HiddenBody:
    """A body with one hidden layer from its description."""
    return HiddenBody(
        int(shape["width"]),
        int(shape["num_labels"]),
        hidden=int(shape["hidden"]),
        dropout=float(shape["dropout"]),
        activation=shape.get("activation", "relu"),
        sparse_gradient=bool(shape["sparse"]),
    )


def make_conv(shape: dict[str, Any]) -> ConvBody:
    """A body of convolutions from its description."""
    width, num_labels = int(shape["width"]), int(shape["num_labels"])
    return ConvBody(width, num_labels, hidden=int(shape["hidden"]), dropout=float(shape["dropout"]))


def set_prior(body: nn.Module, log_odds: Tensor) -> None:
    """Set the head's bias to the labels' log odds. Weights after a hidden layer are made small, so that the bias determines
    the first scores."""
    head = body.head
    assert isinstance(head, (nn.Linear, LinearHead, Columns))
    with torch.no_grad():
        assert head.bias is not None
        if isinstance(head, LinearHead):
            head.set_bias(log_odds)
        else:
            head.bias.copy_(log_odds)
        if not isinstance(head, Columns):
            head.weight.mul_(0.1)
