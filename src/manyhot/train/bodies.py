"""Bodies: prepared inputs to logits ``[B, L]``. All of them end in a head whose bias starts at the label's log odds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from manyhot.train.encoder import make_encoder
from manyhot.train.inputs import Batch, SparseRows


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
        summed = embedding_bag(
            batch.columns,
            self.weight,
            batch.offsets,
            per_sample_weights=batch.values,
            mode="sum",
            sparse=self.sparse_gradient,
            include_last_offset=True,
        )
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


class HiddenBody(nn.Module):
    """One hidden layer; on sparse rows its first product is a weighted sum of learned embeddings."""

    def __init__(self, width: int, num_labels: int, *, hidden: int, dropout: float, sparse_gradient: bool = False) -> None:
        super().__init__()
        self.first = Columns(width, hidden, sparse_gradient=sparse_gradient)
        # Rows of sparse inputs have length 1; columns of dense ones do, so their sum grows with the width.
        deviation = 1.0 if sparse_gradient else width**-0.5
        nn.init.normal_(self.first.weight, std=deviation)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, num_labels)

    def forward(self, batch: Batch) -> Tensor:
        """``[B, L]``."""
        out: Tensor = self.head(self.dropout(torch.relu(self.first(batch))))
        return out


class ConvBody(nn.Module):
    """Three convolutions, the strongest answer over the whole image, a head: is it anywhere in the picture?"""

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


def make_body(shape: dict[str, Any]) -> nn.Module:
    """A body from its description: ``body``, a model of the settings, ``width``, ``num_labels``, ``hidden``, ``dropout``."""
    name, width, num_labels = shape["body"], int(shape["width"]), int(shape["num_labels"])
    if name == "encoder":
        return make_encoder(shape)
    if name == "linear":
        return LinearBody(width, num_labels, sparse_gradient=bool(shape["sparse"]))
    if name == "conv":
        return ConvBody(width, num_labels, hidden=int(shape["hidden"]), dropout=float(shape["dropout"]))
    hidden, dropout = int(shape["hidden"]), float(shape["dropout"])
    return HiddenBody(width, num_labels, hidden=hidden, dropout=dropout, sparse_gradient=bool(shape["sparse"]))


def set_prior(body: nn.Module, log_odds: Tensor) -> None:
    """Start the head's bias at the labels' log odds; a hidden body's head starts small, so that the bias is what it says."""
    head = body.head
    assert isinstance(head, (nn.Linear, Columns))
    with torch.no_grad():
        head.bias.copy_(log_odds)
        if isinstance(head, nn.Linear):
            head.weight.mul_(0.1)
