"""Label powerset: every label set seen in training is a class of its own."""

from __future__ import annotations

import torch
from torch import Tensor

# Below every probability that float32 tells from zero.
TINY = 1e-30


class LabelSets:
    """The distinct label sets of some rows of ``labels [N, L]``, in sorted order.

    Args:
        labels: 0 or 1.
        rows: row numbers of the training rows; the others have the class -1.

    Example:
        >>> sets = LabelSets(torch.tensor([[1, 0], [1, 1], [1, 0], [0, 1]]), torch.tensor([0, 1, 2]))
        >>> len(sets), sets.classes.tolist()
        (2, [0, 1, 0, -1])
        >>> sets.label_scores(torch.tensor([[0.0, 1.0]])).sigmoid()
        tensor([[1.0000, 0.7311]])
    """

    def __init__(self, labels: Tensor, rows: Tensor) -> None:
        members, classes = labels[rows].unique(dim=0, return_inverse=True)  # type: ignore[no-untyped-call]
        self.members: Tensor = members.float()
        self.classes = torch.full((len(labels),), -1, dtype=torch.int64, device=labels.device)
        self.classes[rows] = classes

    def __len__(self) -> int:
        return len(self.members)

    def chosen(self, logits: Tensor) -> Tensor:
        """The labels ``[..., L]`` of the most probable set of ``logits [..., C]``."""
        return self.members[logits.argmax(dim=-1)]

    def label_scores(self, logits: Tensor) -> Tensor:
        """Log odds ``[..., L]`` of each label: the probability of the sets that have it against those that have not."""
        probs = torch.softmax(logits, dim=-1)
        return (probs @ self.members).clamp(min=TINY).log() - (probs @ (1 - self.members)).clamp(min=TINY).log()
