"""A decision threshold for each row: one more class score, which is subtracted from all label scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from manyhot.training.rows.bodies.networks import Columns


class RowThreshold(nn.Module):
    """A body with ``L + 1`` outputs whose last one is the threshold ``s0`` of the row: gives ``s - s0 [B, L]``.

    TLPR at ``(s, s0)`` is ZLPR at ``s - s0``: the loss, the decision ``s > s0`` and the links depend only on the differences.
    ``folded`` gives a body of L outputs that computes them by itself.

    Args:
        body: maps a batch to ``[B, L + 1]`` and ends in a linear ``head``.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    @property
    def head(self) -> Any:
        """The last layer, which has the threshold as its last output."""
        return self.body.head

    @property
    def first(self) -> Any:
        """The first layer, where the body has one."""
        return getattr(self.body, "first", None)

    def forward(self, batch: Any) -> Tensor:
        """``[B, L]``."""
        out: Tensor = self.body(batch)
        return out[:, :-1] - out[:, -1:]

    @torch.no_grad()
    def folded(self) -> nn.Module:
        """The body without the threshold, whose weights are subtracted from those of every label."""
        head = self.body.head
        assert isinstance(head, (nn.Linear, Columns))
        # Columns holds one column a label, Linear one row.
        axis = 1 if isinstance(head, Columns) else 0
        labels = head.weight.shape[axis] - 1
        weight = head.weight.narrow(axis, 0, labels) - head.weight.narrow(axis, labels, 1)
        head.weight = nn.Parameter(weight.contiguous())
        head.bias = nn.Parameter(head.bias[:-1] - head.bias[-1:])
        if isinstance(head, nn.Linear):
            head.out_features = labels
        return self.body
