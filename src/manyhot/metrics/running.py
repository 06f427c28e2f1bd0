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
    """Metrics accumulated over batches of scores and labels; shared intermediate results are computed once.

    All metrics of label sets share one confusion count, and all ranking metrics one rank count. Memory does not grow with the
    number of rows, except for the exact mAP and AUROC, which keep every score; their ``-binned`` forms do not. States are
    sums, so that ``compute`` on several processes returns the value over all rows. Invalid values raise an error that names the
    row: on a CPU in ``update``; on a GPU in ``compute``, so that updates do not sync, with row numbers counted from the last
    reset. After an error call ``reset``.

    Args:
        names: the metrics; ``manyhot.METRICS`` lists them.
        num_labels: L.
        rule: the decision rule; None is ``s > 0``.
        link: the link to probabilities: ``"hard"``, ``"soft"``, ``"softmax"``, a ``Calibration``, ``"identity"`` if scores are
            probabilities already, or None if they only rank: metrics of probabilities are then an error.
        empty: MLC-F1 and jaccard of a row in which nothing is true and nothing is predicted.
        propensities: ``[L]`` for PSP@k, from ``label_propensities``.
        bins: bins of probability for the ``-binned`` metrics.
        calibration_bins: bins of probability for ECE.
        **settings: arguments of ``torchmetrics.Metric``, such as ``process_group``.

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
