"""Label powerset: every label set of the training rows is a class."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import shape_text
from manyhot.labels.sparse import SparseLabels

# Probabilities below this are raised to it before a logarithm is taken, so that log odds are finite.
TINY = 1e-30
# The largest number of float32 entries in the table of sets and labels: 400 MB.
LARGEST_TABLE = 100_000_000


class LabelSets:
    """Distinct label sets as classes.

    A set is looked up by its key: each label has a random 64-bit number, and the key is the sum over the set.

    Args:
        members: ``[C, L]``, one distinct set per row, 0 or 1.

    Example:
        >>> labels = SparseLabels.from_lists([[0], [0, 1], [0], [1]], num_labels=2)
        >>> sets = LabelSets.of(labels[:3])
        >>> len(sets), sets.classes(labels).tolist()
        (2, [0, 1, 0, -1])
        >>> sets.label_scores(torch.tensor([[0.0, 1.0]])).sigmoid()
        tensor([[1.0000, 0.7311]])
    """

    def __init__(self, members: Tensor) -> None:
        if members.ndim != 2:
            raise ValueError(f"LabelSets: `members` must be [C, L]; got {shape_text(members.shape)}.")
        self.members = members.float()
        draw = torch.Generator().manual_seed(members.shape[1])
        numbers = torch.randint(-(2**62), 2**62, (members.shape[1],), generator=draw, dtype=torch.int64)
        self.numbers = numbers.to(members.device)
        keys, self.order = torch.where(members > 0, self.numbers, 0).sum(dim=1).sort()
        self.keys = keys
        if bool((keys[1:] == keys[:-1]).any()):
            raise ValueError("LabelSets: `members` must be distinct sets.")

    @classmethod
    def of(cls, labels: SparseLabels) -> LabelSets:
        """The distinct sets of the rows of hard labels, in sorted order."""
        distinct = sorted(set(map(tuple, labels.lists())))
        if len(distinct) * labels.num_labels > LARGEST_TABLE:
            raise ValueError(
                f"label powerset: {len(distinct):,} label sets of {labels.num_labels:,} labels are too many to be classes."
                " Use another strategy."
            )
        return cls(SparseLabels.from_lists(distinct, num_labels=labels.num_labels).dense(torch.float32).to(labels.device))

    def __len__(self) -> int:
        return len(self.members)

    def classes(self, labels: SparseLabels) -> Tensor:
        """int64 ``[R]``: the class of each row's set, -1 for an unknown set."""
        keys = self.numbers.new_zeros(len(labels)).index_add_(0, labels.rows, self.numbers[labels.indices])
        place = torch.searchsorted(self.keys, keys).clamp(max=max(len(self) - 1, 0))
        return torch.where(self.keys[place] == keys, self.order[place], -1)

    def chosen(self, logits: Tensor) -> Tensor:
        """The labels ``[..., L]`` of the most probable set of ``logits [..., C]``."""
        return self.members[logits.argmax(dim=-1)]

    def label_scores(self, logits: Tensor) -> Tensor:
        """Log odds ``[..., L]`` of each label: the probability of the sets with the label against that of the others."""
        return label_scores(logits, self.members)


def label_scores(logits: Tensor, members: Tensor) -> Tensor:
    """Log odds ``[..., L]`` of each label from ``logits [..., C]`` of sets with ``members [C, L]``."""
    probs = torch.softmax(logits, dim=-1)
    return (probs @ members).clamp(min=TINY).log() - (probs @ (1 - members)).clamp(min=TINY).log()


def decided_scores(logits: Tensor, members: Tensor) -> Tensor:
    """``label_scores``, above 0 for the labels of the most probable set and not above 0 for the others.

    The most probable set can hold a label that is improbable by itself. Its score is then raised to just above 0, and that of
    a probable label outside the set lowered to 0, so that ``s > 0`` predicts the set.
    """
    scores, chosen = label_scores(logits, members), members[logits.argmax(dim=-1)] > 0
    return torch.where(chosen, scores.clamp(min=1e-6), scores.clamp(max=0.0))
