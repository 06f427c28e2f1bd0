"""The losses and metrics as Keras 3 classes, on every backend, saved and loaded with the model.

Keras casts ``y_true`` to its float type. A label that is negative (-1, -100) or NaN is unknown: it leaves losses and metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manyhot._checks import check_at_least, check_unit, shape_text
from manyhot.integrations.registry import framework

keras: Any = framework("keras")
ops: Any = keras.ops

INF = float("inf")
# The log of an empty sum: its exponential is 0, and unlike -inf it has a gradient of 0.
EMPTY = -1e30
PACKAGE = "manyhot"
Tensor = Any


class _RowLoss(keras.losses.Loss):
    """Settings that all losses share; ``call`` gives one value per row."""

    def __init__(
        self,
        *,
        smoothing: float = 0.0,
        reduction: str = "sum_over_batch_size",
        name: str,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        check_unit(type(self).__name__, "smoothing", smoothing)
        self.smoothing = smoothing

    def get_config(self) -> dict[str, Any]:
        """All settings, for saving."""
        return {**super().get_config(), "smoothing": self.smoothing}

    def _weights(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``(scores, positive weight, negative weight)``, all ``[..., L]``; both weights are 0 where unknown."""
        scores, labels = ops.convert_to_tensor(y_pred), ops.convert_to_tensor(y_true)
        if len(scores.shape) != len(labels.shape) or scores.shape[-1] != labels.shape[-1]:
            raise ValueError(
                f"{type(self).__name__}: `y_true` must have the shape of `y_pred`, {_text(scores.shape)};"
                f" got {_text(labels.shape)}. Give one 0 or 1 for each label, not label numbers."
            )
        kind = "float64" if keras.backend.standardize_dtype(scores.dtype) == "float64" else "float32"
        scores, labels = ops.cast(scores, kind), ops.cast(labels, kind)
        known = labels >= 0
        soft = labels if self.smoothing == 0 else labels * (1 - self.smoothing) + self.smoothing / 2
        return scores, ops.where(known, soft, 0.0), ops.where(known, 1 - soft, 0.0)


@keras.saving.register_keras_serializable(package=PACKAGE)
class ZLPRLoss(_RowLoss):
    """``log(1 + sum_pos e^{-s}) + log(1 + sum_neg e^{s})`` of each row; the model gives logits, decide by ``s > 0``.

    Args:
        threshold: s0 in the place of zero (TLPR).
        smoothing: uniform label smoothing ``t (1 - e) + e / 2``.
        reduction: of Keras; the mean over rows unless told otherwise.
        name: of the loss in logs.
        dtype: of Keras.

    Example:
        >>> import numpy as np
        >>> labels, logits = np.array([[1.0, 0.0, 1.0]]), np.array([[4.0, -3.0, 2.0]], dtype="float32")
        >>> round(float(ZLPRLoss()(labels, logits)), 4)
        0.1915
    """

    def __init__(self, *, threshold: float = 0.0, name: str = "zlpr_loss", **settings: Any) -> None:
        super().__init__(name=name, **settings)
        self.threshold = threshold

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """One value per row ``[...]``."""
        scores, pos_weight, neg_weight = self._weights(y_true, y_pred)
        pos, neg = _log_sum(-scores, pos_weight), _log_sum(scores, neg_weight)
        return ops.softplus(pos + self.threshold) + ops.softplus(neg - self.threshold)

    def get_config(self) -> dict[str, Any]:
        """All settings, for saving."""
        return {**super().get_config(), "threshold": self.threshold}


@keras.saving.register_keras_serializable(package=PACKAGE)
class PairwiseLoss(_RowLoss):
    """``log(1 + sum over (negative i, positive j) of e^{g (s_i - s_j + m)})`` of each row; decide by the top k.

    Args:
        scale: g, > 0.
        margin: m, by which a positive should lead.
        name: of the loss in logs.
        **settings: of ``ZLPRLoss``, without ``threshold``.
    """

    def __init__(self, *, scale: float = 1.0, margin: float = 0.0, name: str = "pairwise_loss", **settings: Any) -> None:
        super().__init__(name=name, **settings)
        check_at_least("PairwiseLoss", "scale", scale, 0, strict=True)
        self.scale, self.margin = scale, margin

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """One value per row ``[...]``."""
        scores, pos_weight, neg_weight = self._weights(y_true, y_pred)
        pos, neg = _log_sum(-self.scale * scores, pos_weight), _log_sum(self.scale * scores, neg_weight)
        joined = ops.where((pos <= EMPTY) | (neg <= EMPTY), EMPTY, pos + neg)
        return ops.softplus(joined + self.scale * self.margin)

    def get_config(self) -> dict[str, Any]:
        """All settings, for saving."""
        return {**super().get_config(), "scale": self.scale, "margin": self.margin}


@keras.saving.register_keras_serializable(package=PACKAGE)
class AsymmetricLoss(_RowLoss):
    """Asymmetric loss of each row, the mean over its known labels; focal loss is equal powers and no margin.

    Args:
        gamma_pos: focusing power of the positives, >= 0.
        gamma_neg: focusing power of the negatives, >= 0.
        margin: negatives with a probability below it cost nothing.
        name: of the loss in logs.
        **settings: of ``ZLPRLoss``, without ``threshold``.
    """

    def __init__(
        self,
        *,
        gamma_pos: float = 1.0,
        gamma_neg: float = 4.0,
        margin: float = 0.05,
        name: str = "asymmetric_loss",
        **settings: Any,
    ) -> None:
        super().__init__(name=name, **settings)
        check_at_least("AsymmetricLoss", "gamma_pos", gamma_pos, 0)
        check_at_least("AsymmetricLoss", "gamma_neg", gamma_neg, 0)
        check_unit("AsymmetricLoss", "margin", margin, open_end=True)
        self.gamma_pos, self.gamma_neg, self.margin = gamma_pos, gamma_neg, margin

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """One value per row ``[...]``."""
        scores, pos_weight, neg_weight = self._weights(y_true, y_pred)
        # A score that does not count on a side must not reach its logarithms: 0 times an infinite slope is no number.
        right, wrong = ops.where(pos_weight > 0, scores, 0.0), ops.where(neg_weight > 0, scores, 0.0)
        gain = ops.exp(-self.gamma_pos * ops.softplus(right)) * ops.softplus(-right)
        if self.margin:
            shifted = ops.maximum(ops.sigmoid(wrong) - self.margin, 0.0)
            focus = ops.where(shifted > 0, ops.where(shifted > 0, shifted, 1.0) ** self.gamma_neg, float(self.gamma_neg == 0))
            cost = -focus * ops.log1p(-shifted)
        else:
            cost = ops.exp(-self.gamma_neg * ops.softplus(-wrong)) * ops.softplus(wrong)
        total = ops.sum(pos_weight * gain + neg_weight * cost, axis=-1)
        known = ops.sum(ops.cast((pos_weight > 0) | (neg_weight > 0), total.dtype), axis=-1)
        return total / ops.maximum(known, 1.0)

    def get_config(self) -> dict[str, Any]:
        """All settings, for saving."""
        own = {"gamma_pos": self.gamma_pos, "gamma_neg": self.gamma_neg, "margin": self.margin}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package=PACKAGE)
class F1Score(keras.metrics.Metric):
    """Micro or macro F1 of the decision ``s > threshold`` over all rows seen; unknown labels do not count.

    Args:
        num_labels: L.
        average: ``"micro"``, or ``"macro"``, in which a label without a positive counts as 0.
        threshold: a number, or one per label.
        name: of the metric in logs.
        dtype: of Keras.

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
        """Take in rows: labels and logits ``[..., L]``, weights ``[...]``."""
        truth, scores = ops.cast(y_true, self.dtype), ops.cast(y_pred, self.dtype)
        if truth.shape[-1] != self.num_labels or scores.shape[-1] != self.num_labels:
            raise ValueError(
                f"F1Score: labels and logits must have num_labels = {self.num_labels} columns;"
                f" got {_text(truth.shape)} and {_text(scores.shape)}."
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


def _log_sum(z: Tensor, weight: Tensor) -> Tensor:
    """``log sum w e^z`` over the last axis, ``EMPTY`` for an empty sum; terms of weight 0 are skipped.

    The operand is made safe before it meets the exponential, so that gradients are 0 where the weight is, whatever the
    score. The shift is a constant: its share of the gradient is 0.
    """
    counts = weight > 0
    top = ops.max(ops.where(counts, z, EMPTY), axis=-1, keepdims=True)
    shift = ops.stop_gradient(ops.where((top > EMPTY) & (ops.absolute(top) < INF), top, 0.0))
    relative = ops.where(counts & (z > -INF), z - shift, 0.0)
    total = ops.sum(ops.where(counts & (z > -INF), weight * ops.exp(relative), 0.0), axis=-1)
    some = total > 0
    log = ops.where(some, ops.log(ops.where(some, total, 1.0)), EMPTY)
    return ops.squeeze(shift, axis=-1) + log


def _text(shape: Any) -> str:
    return shape_text(-1 if size is None else size for size in shape)
