"""F1 as a Keras 3 metric, saved and loaded with the model. A label that is negative or NaN is unknown and does not count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manyhot.integrations.keras.rows import Tensor, shape_words
from manyhot.integrations.registry import framework

keras: Any = framework("keras")
ops: Any = keras.ops


@keras.saving.register_keras_serializable(package="manyhot")
class F1Score(keras.metrics.Metric):
    """Micro or macro F1 of the decision ``s > threshold`` over all rows seen; unknown labels do not count.

    Args:
        num_labels: L.
        average: ``"micro"`` or ``"macro"``; in macro a label without positives counts as 0.
        threshold: a number, or one per label.
        name: the name of the metric in logs.
        dtype: as in Keras.

    Example:
        >>> metric = F1Score(3)
        >>> metric.update_state([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], [[2.0, -1.0, 0.5], [-1.0, 1.0, 0.5]])
        >>> round(float(metric.result()), 4)
        0.6667
    """

    def __init__(
        self,
        num_labels: int,
        *,
        average: str = "micro",
        threshold: float | Sequence[float] = 0.0,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        if average not in ("micro", "macro"):
            raise ValueError(f"F1Score: `average` must be one of 'micro', 'macro'; got {average!r}.")
        super().__init__(name=name or f"{average}_f1", dtype=dtype)
        self.num_labels, self.average = num_labels, average
        self.threshold = threshold if isinstance(threshold, (int, float)) else [float(each) for each in threshold]
        self.hits, self.predicted, self.positive = (
            self.add_weight(shape=(num_labels,), initializer="zeros", name=part) for part in ("hits", "predicted", "positive")
        )

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        """Add a batch: labels and logits ``[..., L]``, weights ``[...]``."""
        truth, scores = ops.cast(y_true, self.dtype), ops.cast(y_pred, self.dtype)
        if truth.shape[-1] != self.num_labels or scores.shape[-1] != self.num_labels:
            raise ValueError(
                f"F1Score: labels and logits must have num_labels = {self.num_labels} columns;"
                f" got {shape_words(truth.shape)} and {shape_words(scores.shape)}."
            )
        counts = ops.cast(truth >= 0, self.dtype)
        if sample_weight is not None:
            counts = counts * ops.expand_dims(ops.cast(sample_weight, self.dtype), -1)
        chosen = ops.cast(scores > ops.convert_to_tensor(self.threshold, dtype=self.dtype), self.dtype) * counts
        positive = ops.cast(truth > 0.5, self.dtype) * counts
        axes = tuple(range(len(truth.shape) - 1))
        self.hits.assign(self.hits + ops.sum(chosen * ops.cast(truth > 0.5, self.dtype), axis=axes))
        self.predicted.assign(self.predicted + ops.sum(chosen, axis=axes))
        self.positive.assign(self.positive + ops.sum(positive, axis=axes))

    def result(self) -> Tensor:
        """F1 of all rows since the last reset."""
        hits, both = ops.convert_to_tensor(self.hits), self.predicted + self.positive
        if self.average == "micro":
            hits, both = ops.sum(hits), ops.sum(both)
        scores = ops.where(both > 0, 2 * hits / ops.where(both > 0, both, 1.0), 0.0)
        return scores if self.average == "micro" else ops.mean(scores)

    def get_config(self) -> dict[str, Any]:
        """All settings, for saving."""
        own = {name: getattr(self, name) for name in ("num_labels", "average", "threshold")}
        return {**super().get_config(), **own}
