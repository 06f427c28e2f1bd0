"""The registry of strategies: how the labels of a multi-label problem become the targets of a body and a loss.

To add a strategy, write a function from labels to targets, and one ``Strategy`` entry. A strategy whose targets are not the
labels themselves also returns a reader: a module from the body's logits ``[B, M]`` to scores of the labels ``[B, L]``. The
reader is part of the model: held-out scores, the decision rule and predictions use its scores; the loss uses the body's logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from manyhot._checks import check_choice
from manyhot.labels.powerset import LabelSets, decided_scores, label_scores
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.catalog import BINARY, RANKING, SINGLE

PLAIN, POWERSET = "plain", "label-powerset"
# The reader of a mean of several losses, as saved bodies name it; it is not a strategy.
MEAN_READER = "mean-of-losses"


class Posed(NamedTuple):
    """The targets of a body, ``[N, M]``, and the module that computes label scores from its logits."""

    labels: SparseLabels
    reader: nn.Module | None = None


@dataclass(frozen=True)
class Strategy:
    """One strategy.

    Args:
        name: its name in settings and saved models.
        aliases: other names that settings accept.
        summary: a one-line description.
        pose: maps the labels ``[N, L]`` of the training rows to the targets of the body.
        make_reader: makes an empty reader from the description of a saved body, for its tensors to be loaded into; None if
            ``pose`` returns no reader.
        loss: the default loss; empty for that of the settings.
        families: families of losses that it takes; empty for all.
    """

    name: str
    aliases: tuple[str, ...]
    summary: str
    pose: Callable[[SparseLabels], Posed]
    make_reader: Callable[[dict[str, Any]], nn.Module] | None = None
    loss: str = ""
    families: tuple[str, ...] = ()


class SetReader(nn.Module):
    """Scores of the labels from the logits of label sets: ``s > 0`` for those of the most probable set, and only for them.

    Args:
        members: ``[C, L]``, 0 or 1: which labels each set has.
    """

    members: Tensor

    def __init__(self, members: Tensor) -> None:
        super().__init__()
        self.register_buffer("members", members)

    def forward(self, logits: Tensor) -> Tensor:
        """``[B, L]`` of ``[B, C]``."""
        return decided_scores(logits, self.members)


class MeanReader(nn.Module):
    """Scores of the labels from logits of labels, followed by logits of label sets: the mean of both, as log odds.

    Args:
        members: ``[C, L]``, 0 or 1: which labels each set has.
        scale: ``[3]``: the slope and the intercept that turn the sets' label scores into log odds, and their share of the mean.
    """

    members: Tensor
    scale: Tensor

    def __init__(self, members: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("members", members)
        self.register_buffer("scale", scale)

    def forward(self, logits: Tensor) -> Tensor:
        """``[B, L]`` of ``[B, L + C]``."""
        labels = self.members.shape[1]
        slope, intercept, share = self.scale.unbind()
        of_sets = label_scores(logits[..., labels:], self.members) * slope + intercept
        return (1 - share) * logits[..., :labels] + share * of_sets


def _pose_sets(labels: SparseLabels) -> Posed:
    """Each row's label set as its one class."""
    if labels.values is not None:
        raise ValueError(f"train: `strategy` {POWERSET} must have hard labels; the examples or the teacher give soft ones.")
    sets = LabelSets.of(labels)
    classes = sets.classes(labels)
    one_each = SparseLabels(classes, torch.arange(len(classes) + 1), len(sets), validate=False)
    return Posed(one_each, SetReader(sets.members))


_ENTRIES = (
    Strategy(PLAIN, (), "the labels as they are, with the loss of the settings", Posed),
    Strategy(
        "binary-relevance",
        ("br", "binary relevance"),
        "every label judged by itself",
        Posed,
        loss="bce",
        families=(BINARY,),
    ),
    Strategy(
        "label-ranking",
        ("lr", "label ranking"),
        "positives ranked above negatives",
        Posed,
        loss="pairwise",
        families=(RANKING,),
    ),
    Strategy(
        POWERSET,
        ("lp", "label powerset", "powerset"),
        "each label set of the training rows is a class; the most probable one is predicted",
        _pose_sets,
        make_reader=lambda shape: SetReader(torch.zeros(int(shape["num_labels"]), int(shape["read_labels"]))),
        loss="softmax",
        families=(SINGLE,),
    ),
)
STRATEGIES: dict[str, Strategy] = {entry.name: entry for entry in _ENTRIES}


def get_strategy(name: str) -> Strategy:
    """The entry of a strategy, by its name or an alias.

    Example:
        >>> get_strategy("plain").summary
        'the labels as they are, with the loss of the settings'
    """
    for entry in STRATEGIES.values():
        if name in entry.aliases:
            return entry
    check_choice("train", "strategy", name, tuple(STRATEGIES))
    return STRATEGIES[name]


def reader_of(shape: dict[str, Any]) -> nn.Module | None:
    """An empty reader for the body that ``shape`` describes; None if it has none."""
    if shape.get("strategy") == MEAN_READER:
        sets = int(shape["num_labels"]) - int(shape["read_labels"])
        return MeanReader(torch.zeros(sets, int(shape["read_labels"])), torch.zeros(3))
    make_reader = get_strategy(shape.get("strategy", PLAIN)).make_reader
    return None if make_reader is None else make_reader(shape)


class ReadBody(nn.Module):
    """A body with a reader: the body's own logits in training, scores of the labels in evaluation.

    Args:
        body: maps a batch to logits ``[B, M]``; has a ``head``.
        reader: maps them to scores ``[B, L]``.
    """

    def __init__(self, body: nn.Module, reader: nn.Module) -> None:
        super().__init__()
        self.body, self.reader = body, reader

    @property
    def head(self) -> nn.Module:
        """The layer that ends the body."""
        head: nn.Module = self.body.head  # type: ignore[assignment]
        return head

    def forward(self, batch: Any) -> Tensor:
        """``[B, M]`` in training, else ``[B, L]``."""
        logits: Tensor = self.body(batch)
        if self.training:
            return logits
        with torch.autocast(logits.device.type, enabled=False):
            scores: Tensor = self.reader(logits.float())
        return scores


def without_reader(body: nn.Module) -> nn.Module:
    """The body itself, without the reader around it."""
    return body.body if isinstance(body, ReadBody) else body
