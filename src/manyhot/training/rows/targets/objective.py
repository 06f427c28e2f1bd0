"""The training objective: the loss of the settings, with smoothing, flipping, mixup, R-Drop and a learned threshold."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from manyhot.decisions.natural import natural_decision
from manyhot.decisions.rule import DecisionRule
from manyhot.heads.mesh import local
from manyhot.labels.soften import flip_labels
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.catalog import get_loss
from manyhot.losses.divergence import rdrop_loss
from manyhot.losses.zlpr import tlpr_loss
from manyhot.metrics.at_k import LEAST_ROWS, label_propensities
from manyhot.training.rows.inputs.row_batches import Batch
from manyhot.training.rows.rules.tracking_threshold import TrackingThreshold
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO
from manyhot.training.rows.strategies import get_strategy
from manyhot.training.rows.targets.mixing import mix_batch


class Objective(nn.Module):
    """The loss of a batch, given a body; holds the threshold if one is learned.

    Args:
        settings: the resolved settings.
        positive_weights: ``[L]``, further weights of the positives; None for none.
    """

    positive_weights: Tensor | None

    def __init__(self, settings: TrainSettings, positive_weights: Tensor | None = None) -> None:
        super().__init__()
        self.settings = settings
        self.register_buffer("positive_weights", positive_weights, persistent=False)
        self.info = get_loss(settings.usual_loss)
        self.loss_settings = loss_settings(settings)
        self.learned = nn.Parameter(torch.zeros(1)) if settings.learns_threshold else None
        self.cut = TrackingThreshold() if settings.pos_weight == AUTO else None

    @property
    def threshold(self) -> Tensor | None:
        """The tracked threshold: labels are predicted above this score; None if the threshold is zero."""
        return None if self.cut is None else self.cut.value

    @torch.no_grad()
    def fold_threshold(self, head: Any) -> float | None:
        """Subtract the learned threshold from the biases of ``head``, so that 0 decides and links give probabilities.

        Shifting all scores and the threshold alike changes no loss, decision or ranking. The threshold is 0 afterwards.

        Returns:
            The threshold, or None if none is learned.
        """
        if self.learned is None:
            return None
        found = float(self.learned)
        local(head.bias).sub_(self.learned)
        self.learned.zero_()
        return found

    def forward(
        self, body: nn.Module, batch: Batch, labels: SparseLabels, where: Tensor | None, sample_weight: Tensor | None
    ) -> Tensor:
        """The mean loss of the rows of ``batch``."""
        settings = self.settings
        targets: SparseLabels | Tensor = labels
        if self.training and settings.flip:
            kind = "single" if self.info.one_label else "uniform"
            targets = flip_labels(labels.dense(torch.float32), settings.flip, kind=kind)
        if self.training and settings.mixup:
            dense = _dense(targets)
            batch, targets, where, sample_weight = mix_batch(batch, dense, where, sample_weight, alpha=settings.mixup)
        loss = self._loss()
        scores = body(batch)
        logits = scores.float() if isinstance(scores, Tensor) else scores
        if self.cut is not None and self.training:
            self._track_threshold(logits, _dense(targets), where, sample_weight)
        if settings.rdrop and self.training:
            again = body(batch).float()
            return rdrop_loss(logits, again, targets, alpha=settings.rdrop, loss=loss, where=where, sample_weight=sample_weight)
        value: Tensor = loss(logits, targets, where=where, sample_weight=sample_weight)
        return value

    def _track_threshold(self, logits: Tensor, labels: Tensor, where: Tensor | None, sample_weight: Tensor | None) -> None:
        assert self.cut is not None
        counts = None if where is None else where.float()
        if sample_weight is not None:
            by_row = sample_weight.float()[:, None]
            counts = by_row if counts is None else counts * by_row
        self.cut.update(
            logits.detach()[None, :, None], labels[None, :, None], None if counts is None else counts[None, :, None]
        )

    def _loss(self) -> Any:
        """The loss function with its settings, unwrapped: ``rdrop_loss`` fuses two passes only for functions that it knows."""
        own = dict(self.loss_settings)
        if self.positive_weights is not None:
            own["pos_weight"] = self.positive_weights * own.get("pos_weight", 1.0)
        if self.learned is not None:
            return partial(tlpr_loss, threshold=self.learned, **own)
        return partial(self.info.function, **{**self.info.settings, **own})


def loss_settings(settings: TrainSettings) -> dict[str, Any]:
    """The settings of the loss function that are not its own defaults.

    Labelwise losses are summed over labels, so that a row has the same weight as in ZLPR and one learning rate serves both.
    """
    info = get_loss(settings.usual_loss)
    found: dict[str, Any] = info.parse_options(settings.loss_option)
    if settings.pos_weight not in (None, AUTO):  # auto shifts the scores: the threshold moves, the loss does not change
        found["pos_weight"] = settings.pos_weight
    if settings.smoothing:
        found["smoothing"] = settings.smoothing
    if info.takes("label_reduction"):
        found["label_reduction"] = "sum"
    return found


def inverse_propensities(labels: SparseLabels) -> Tensor:
    """float32 ``[L]``: one over each label's propensity, divided by the mean over the positives of the rows."""
    counts = torch.bincount(labels.indices, minlength=labels.num_labels)
    weights = 1.0 / label_propensities(counts, max(len(labels), LEAST_ROWS))
    mean = (weights * counts).sum() / counts.sum().clamp(min=1)
    return (weights / mean if mean > 0 else torch.ones_like(weights)).float()


def check_loss(settings: TrainSettings) -> None:
    """Raise an error for settings that the loss does not support, and for values that its function does not take."""
    info = get_loss(settings.usual_loss)
    given = {"pos_weight": settings.pos_weight not in (None, AUTO)}
    given |= {name: bool(getattr(settings, name)) for name in ("smoothing", "mixup", "rdrop")}
    given["propensity_weights"] = settings.propensity_weights
    for name, wanted in given.items():
        why = info.why_not("pos_weight" if name == "propensity_weights" else name) if wanted else None
        if why is not None:
            raise ValueError(f"train: `{name}` must be left out: {why}.")
    try:
        info(torch.zeros(2, 2), torch.eye(2), **loss_settings(settings))
    except (ValueError, TypeError) as error:
        raise ValueError(f"train: `loss_option` must suit the loss {settings.loss}: {error}") from None


def link_of(settings: TrainSettings, *, soft: bool) -> str | None:
    """Which link the scores have: the link of the loss for hard or soft labels; log odds for label powerset.

    Args:
        settings: smoothing and mixup make soft labels of hard ones; flipping leaves them hard.
        soft: whether the labels of the examples are soft.
    """
    if get_strategy(settings.strategy).make_reader is not None:
        return "hard"
    info = get_loss(settings.usual_loss)
    return info.soft_link if soft or settings.smoothing or settings.mixup or settings.teacher else info.link


def natural_rule(settings: TrainSettings, cut: Tensor | None, cardinality: float) -> DecisionRule:
    """The rule that belongs to the loss; for losses that only rank, as many labels as rows have on average."""
    if cut is not None:
        return DecisionRule(threshold=float(cut.detach()), min_labels=settings.min_labels)
    if get_strategy(settings.strategy).make_reader is not None:
        return DecisionRule(min_labels=settings.min_labels)
    decision = natural_decision(get_loss(settings.usual_loss).decision)
    return decision.rule(cardinality=cardinality, min_labels=settings.min_labels)


def _dense(labels: SparseLabels | Tensor) -> Tensor:
    return labels.dense(torch.float32) if isinstance(labels, SparseLabels) else labels
