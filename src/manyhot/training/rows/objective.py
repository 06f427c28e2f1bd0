"""What a step minimises: the loss of the settings, with smoothing, mixup, R-Drop and a learned threshold."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from manyhot.decisions.rule import DecisionRule
from manyhot.labels.soften import mixup
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.catalog import get_loss
from manyhot.losses.divergence import rdrop_loss
from manyhot.losses.info import LossInfo
from manyhot.losses.zlpr import tlpr_loss
from manyhot.training.rows.inputs.prepare import Batch
from manyhot.training.rows.settings import AUTO, TrainSettings
from manyhot.training.rows.tracking_threshold import FollowedCut


class Objective(nn.Module):
    """The loss of a batch, given a body; holds the threshold where it is learned."""

    def __init__(self, settings: TrainSettings) -> None:
        super().__init__()
        self.settings = settings
        self.loss_settings = loss_settings(settings)
        self.learned = nn.Parameter(torch.zeros(1)) if settings.learn_threshold else None
        self.cut = FollowedCut() if settings.pos_weight == AUTO else None

    @property
    def threshold(self) -> Tensor | None:
        """The score from which on a label is predicted, where it is not zero."""
        return self.learned if self.cut is None else self.cut.value

    def forward(
        self, body: nn.Module, batch: Batch, labels: SparseLabels, where: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor:
        """The mean loss of the rows of ``batch``."""
        settings = self.settings
        targets: SparseLabels | Tensor = labels
        if settings.mixup and self.training and isinstance(batch, Tensor):
            batch, targets, _ = mixup(batch, labels.dense(torch.float32), alpha=settings.mixup)
        loss = self._loss()
        logits = body(batch).float()
        if self.cut is not None and self.training:
            self._follow(logits, targets, where, sample_weight)
        if settings.rdrop and self.training:
            again = body(batch).float()
            return rdrop_loss(logits, again, targets, alpha=settings.rdrop, loss=loss, where=where, sample_weight=sample_weight)
        value: Tensor = loss(logits, targets, where=where, sample_weight=sample_weight)
        return value

    def _follow(
        self, logits: Tensor, targets: SparseLabels | Tensor, where: Tensor | None, sample_weight: Tensor | None
    ) -> None:
        assert self.cut is not None
        dense = targets.dense(torch.float32) if isinstance(targets, SparseLabels) else targets
        counts = None if where is None else where.float()
        if sample_weight is not None:
            by_row = sample_weight.float()[:, None]
            counts = by_row if counts is None else counts * by_row
        self.cut.update(logits.detach()[None, :, None], dense[None, :, None], None if counts is None else counts[None, :, None])

    def _loss(self) -> Any:
        """The function of the loss itself, with its settings: ``rdrop_loss`` fuses two passes only where it knows it."""
        if self.learned is not None:
            return partial(tlpr_loss, threshold=self.learned, **self.loss_settings)
        info = get_loss(self.settings.loss)
        return partial(info.function, **{**info.settings, **self.loss_settings})


def loss_settings(settings: TrainSettings) -> dict[str, Any]:
    """The settings of the loss function that are not its own defaults.

    Losses that judge every label by itself are summed over labels, so that a row weighs what it does in ZLPR and one
    learning rate serves both.
    """
    function = get_loss("tlpr" if settings.learn_threshold else settings.loss).function
    takes = inspect.signature(function).parameters
    found: dict[str, Any] = {}
    for name in ("pos_weight", "smoothing"):
        value = getattr(settings, name)
        if value == AUTO:
            continue  # a shift of the scores: where decisions are changes, the loss does not
        if value and name not in takes:
            raise ValueError(f"TrainSettings: `{name}` must be left out with the loss {settings.loss!r}, which has none.")
        if value:
            found[name] = value
    if "label_reduction" in takes:
        found["label_reduction"] = "sum"
    return found


def link_of(settings: TrainSettings) -> str | None:
    """Which link the scores have: of the loss, for the kind of labels it saw."""
    info = get_loss(settings.loss)
    return info.soft_link if settings.smoothing or settings.mixup else info.link


def natural_rule(settings: TrainSettings, threshold: Tensor | None, cardinality: float) -> DecisionRule:
    """The rule that belongs to the loss; for losses that only rank, as many labels as rows have on average."""
    info: LossInfo = get_loss(settings.loss)
    if threshold is not None:
        return DecisionRule(threshold=float(threshold.detach()), min_labels=settings.min_labels)
    if info.decision == "argmax":
        return DecisionRule(top_k=1)
    if info.decision in ("top-k", "tuned"):
        return DecisionRule(top_k=max(1, round(cardinality), settings.min_labels))
    return DecisionRule(min_labels=settings.min_labels)
