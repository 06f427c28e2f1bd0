"""Metrics of the catalog for the ``Trainer``; for each batch only the values that the metrics need are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_choice
from manyhot.decisions import Calibration, DecisionRule, decide
from manyhot.integrations.huggingface.loss import LABELS, PADDING
from manyhot.labels import SparseLabels
from manyhot.metrics import Metrics
from manyhot.metrics.info import DECISIONS
from manyhot.scores import TopScores

ROWS_AT_ONCE = 1024


class TrainerMetrics:
    """``compute_metrics`` and ``preprocess_logits_for_metrics`` of a ``Trainer``, by the names of ``manyhot.METRICS``.

    ``preprocess_logits_for_metrics`` keeps decisions (one byte per label) for metrics of label sets and the best k scores for
    metrics at k; all logits are kept only for metrics that need them, such as AvgPrec. With
    ``TrainingArguments(batch_eval_metrics=True)`` only sums are kept, updated batch by batch.

    Args:
        names: the names of the metrics.
        num_labels: L.
        rule: how scores become decisions; None is ``s > 0``.
        link: how scores become probabilities; see ``Metrics``.
        labels: ``"dense"`` or ``"lists"``, as in ``TrainerLoss``. NaN is unknown and excluded from all metrics.
        **settings: further settings of ``Metrics``, such as ``propensities``.

    Example:
        >>> metrics = TrainerMetrics(["micro-F1", "P@1"], num_labels=3)
        >>> logits, labels = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> kept = metrics.preprocess_logits_for_metrics(logits, labels)
        >>> [each.shape for each in kept]
        [torch.Size([1, 3]), torch.Size([1, 1]), torch.Size([1, 1])]
        >>> metrics.compute_metrics((kept, labels))["P@1"]
        1.0
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        num_labels: int,
        rule: DecisionRule | None = None,
        link: str | Calibration = "hard",
        labels: str = "dense",
        **settings: Any,
    ) -> None:
        check_choice("TrainerMetrics", "labels", labels, LABELS)
        # The Trainer gathers over the processes itself; a sync here would count every row several times.
        self.metrics = Metrics(names, num_labels=num_labels, rule=rule, link=link, sync_on_compute=False, **settings)
        self.rule, self.labels, self.num_labels = rule, labels, num_labels
        others = [name for name in self.metrics.names if name.info.needs != DECISIONS]
        self.keeps_decisions = len(others) < len(self.metrics.names)
        self.keeps_logits = any(not name.info.lists for name in others)
        self.best = 0 if self.keeps_logits else max((name.k or 1 for name in others), default=0)

    def preprocess_logits_for_metrics(self, logits: Any, labels: Any) -> Any:
        """The part of a batch that is kept: logits ``[B, L]``, or decisions and the best scores."""
        del labels
        scores = logits[0] if isinstance(logits, (tuple, list)) else logits
        if self.keeps_logits:
            return scores
        kept = [decide(scores, self.rule)] if self.keeps_decisions else []
        if self.best:
            top = TopScores.from_dense(scores, k=self.best)
            kept += [top.values, top.indices]
        return tuple(kept) if len(kept) > 1 else kept[0]

    def compute_metrics(self, prediction: Any, compute_result: bool = True) -> dict[str, float]:
        """Update with an ``EvalPrediction``; return the metrics and reset if ``compute_result`` is set."""
        kept, labels = (prediction[0], prediction[1])
        parts = [torch.as_tensor(part) for part in (kept if isinstance(kept, (tuple, list)) else [kept])]
        truth = torch.as_tensor(labels)
        for start in range(0, len(truth), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            self._update([part[rows].cpu() for part in parts], truth[rows].cpu())
        if not compute_result:
            return {}
        found = {name: float(value) for name, value in self.metrics.compute().items()}
        self.metrics.reset()
        return found

    def _update(self, parts: list[Tensor], labels: Tensor) -> None:
        truth, where = self._truth(labels)
        if self.keeps_logits:
            self.metrics.update(parts[0].float(), truth, where)
            return
        predictions = parts[0].bool() if self.keeps_decisions else None
        top = TopScores(parts[-2].float(), parts[-1].long(), self.num_labels) if self.best else None
        self.metrics.update(top, truth, where, predictions=predictions)

    def _truth(self, labels: Tensor) -> tuple[Any, Tensor | None]:
        if self.labels == "lists":
            # The Trainer pads with -100 where batches differ in width.
            clean = torch.where(labels < 0, PADDING, labels)
            return SparseLabels.from_padded(clean, num_labels=self.num_labels, padding=PADDING), None
        unknown = labels.isnan() if labels.is_floating_point() else torch.zeros_like(labels, dtype=torch.bool)
        if not bool(unknown.any()):
            return labels, None
        return torch.where(unknown, 0.0, labels), ~unknown
