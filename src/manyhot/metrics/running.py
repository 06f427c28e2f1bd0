"""Metrics over batches: one accumulator for any set of names, synced over processes by torchmetrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torchmetrics import Metric

from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.rule import DecisionRule
from manyhot.metrics.metric_sums import MetricSums


class Metrics(MetricSums, Metric):
    """Any number of metrics over batches of scores and labels; what they share is computed once.

    One confusion count serves all metrics of label sets and one rank count all metrics of order. Memory does not grow
    with the rows, except for the exact mAP and AUROC, which keep every score; their ``-binned`` forms do not. States are
    sums, so that ``compute`` on several processes gives what one would. An update on a GPU does not wait for faults in
    the values: they are named by ``compute``, with rows counted since the last reset. On a CPU the update names them.
    After an error call ``reset``.

    Args:
        names: which metrics; ``manyhot.METRICS`` lists them.
        num_labels: L.
        rule: how scores become decisions; None is ``s > 0``.
        link: how scores become probabilities: ``"hard"``, ``"soft"``, ``"softmax"``, a ``Calibration``, ``"identity"`` where
            they are probabilities already, or None where they only rank: metrics of probabilities are then an error.
        empty: MLC-F1 and jaccard of a row where nothing is true and nothing predicted.
        propensities: ``[L]`` for PSP@k, from ``label_propensities``.
        bins: bins of probability for the ``-binned`` metrics.
        calibration_bins: bins of probability for ECE.
        **settings: of ``torchmetrics.Metric``, such as ``process_group``.

    Example:
        >>> import torch
        >>> metrics = Metrics(["micro-F1", "AvgPrec", "P@1"], num_labels=3)
        >>> metrics.update(torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, 0, 0]]))
        >>> metrics.update(torch.tensor([[-1.0, 1.0, 0.5]]), torch.tensor([[0, 0, 1]]))
        >>> {name: round(value, 4) for name, value in metrics.compute().items()}
        {'micro-F1': 0.6667, 'AvgPrec': 0.75, 'P@1': 0.5}
    """

    is_differentiable = False
    full_state_update = False

    def __init__(
        self,
        names: Sequence[str],
        *,
        num_labels: int,
        rule: DecisionRule | None = None,
        link: str | Calibration | None = "hard",
        empty: float = 1.0,
        propensities: Tensor | None = None,
        bins: int = 200,
        calibration_bins: int = 15,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self._set_up(names, num_labels, rule, link, empty, propensities, bins, calibration_bins)

    def _synced(self) -> Any:
        return self.sync_context(
            dist_sync_fn=self.dist_sync_fn,
            should_sync=self._to_sync,
            should_unsync=self._should_unsync,
        )
