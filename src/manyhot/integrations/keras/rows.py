"""Row losses for each backend of Keras: custom gradients on torch, JAX and TensorFlow, ``keras.ops`` on the others.

A row function takes scores and labels ``[..., L]``, and ``where``, bool ``[..., L]``, or None if all labels are known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from manyhot._checks import shape_text
from manyhot.integrations.registry import framework

keras: Any = framework("keras")
ops: Any = keras.ops

INF = float("inf")
# The log of an empty sum: its exponential is 0, and unlike -inf it has a gradient of 0.
EMPTY = -1e30
TOO_LARGE = "{who}: a label in `y_true` must lie in [0, 1], or be negative or NaN where it is unknown; got {got:g}."
Tensor = Any


class KerasRows(NamedTuple):
    """Arguments of a row function; ``sound [...]`` is NaN for rows with an invalid label and 1 for others, or None."""

    scores: Tensor
    labels: Tensor
    where: Tensor | None
    sound: Tensor | None = None

    def marked(self, values: Tensor) -> Tensor:
        """The losses of the rows, NaN for rows with an invalid label."""
        return values if self.sound is None else values * self.sound


def prepared(who: str, y_true: Tensor, y_pred: Tensor) -> KerasRows:
    """Labels and scores of equal shape; unknown labels are 0 and excluded by ``where``.

    A label above 1 is an error. A compiled step cannot raise one: there the loss of the row is NaN.
    """
    scores, labels = ops.convert_to_tensor(y_pred), ops.convert_to_tensor(y_true)
    if len(scores.shape) != len(labels.shape) or scores.shape[-1] != labels.shape[-1]:
        raise ValueError(
            f"{who}: `y_true` must have the shape of `y_pred`, {shape_words(scores.shape)};"
            f" got {shape_words(labels.shape)}. Give one 0 or 1 for each label, not label numbers."
        )
    kind = "float64" if keras.backend.standardize_dtype(scores.dtype) == "float64" else "float32"
    scores, labels = ops.cast(scores, kind), ops.cast(labels, kind)
    if keras.backend.backend() == "torch" and labels.numel() and not labels.is_cuda:
        low, high = (float(end) for end in labels.aminmax())
        if low >= 0 and high <= 1:
            return KerasRows(scores, labels, None)
    too_large, sound = labels > 1, None
    if not _is_concrete(labels):
        sound = _sound(too_large)
    elif bool(ops.any(too_large)):
        raise ValueError(TOO_LARGE.format(who=who, got=float(ops.max(ops.where(too_large, labels, 0.0)))))
    # These backends find unknown labels themselves: a mask computed here would be saved for backward.
    if keras.backend.backend() == "jax":
        return KerasRows(scores, labels, None, sound)
    if keras.backend.backend() == "tensorflow":
        return KerasRows(scores, labels, None)
    known = labels >= 0
    return KerasRows(scores, ops.where(known, ops.minimum(labels, 1.0), 0.0), known, sound)


def _sound(too_large: Tensor) -> Tensor:
    """NaN for rows with a label that is too large, 1 for others."""
    return ops.where(ops.any(too_large, axis=-1), float("nan"), 1.0)


def _is_concrete(tensor: Tensor) -> bool:
    """Whether the values can be read: outside of a compiled step, and without waiting for a GPU."""
    backend = keras.backend.backend()
    if backend == "torch":
        return not tensor.is_cuda
    if backend == "jax":
        import jax

        return not isinstance(tensor, jax.core.Tracer)
    return backend != "tensorflow" or hasattr(tensor, "numpy")


class TorchRows:
    """manyhot's functions, on the engine that fits the device."""

    @staticmethod
    def zlpr(rows: KerasRows, threshold: float, smoothing: float) -> Tensor:
        """``softplus(pos + s0) + softplus(neg - s0)``."""
        from manyhot.losses import tlpr_loss, zlpr_loss

        settings: Any = {"where": rows.where, "smoothing": smoothing, "reduction": "none"}
        if threshold == 0:
            return zlpr_loss(rows.scores, rows.labels, **settings)
        return tlpr_loss(rows.scores, rows.labels, threshold, **settings)

    @staticmethod
    def pairwise(rows: KerasRows, scale: float, margin: float, smoothing: float) -> Tensor:
        """``softplus(pos(g s) + neg(g s) + g m)``."""
        from manyhot.losses import pairwise_loss

        given: Any = {"where": rows.where, "smoothing": smoothing, "reduction": "none"}
        return pairwise_loss(rows.scores, rows.labels, scale=scale, margin=margin, **given)

    @staticmethod
    def asymmetric(rows: KerasRows, smoothing: float, **powers: Any) -> Tensor:
        """The mean over known labels."""
        from manyhot.losses import asymmetric_loss

        given: Any = {"where": rows.where, "smoothing": smoothing, "reduction": "none"}
        return asymmetric_loss(rows.scores, rows.labels, **powers, **given)


class JaxRows:
    """The functions of ``manyhot.integrations.jax``; unknown labels are still negative or NaN."""

    @staticmethod
    def zlpr(rows: KerasRows, threshold: float, smoothing: float) -> Tensor:
        """``softplus(pos + s0) + softplus(neg - s0)``."""
        from manyhot.integrations.jax import tlpr_loss

        return tlpr_loss(rows.scores, rows.labels, threshold, unknown=True, smoothing=smoothing)

    @staticmethod
    def pairwise(rows: KerasRows, scale: float, margin: float, smoothing: float) -> Tensor:
        """``softplus(pos(g s) + neg(g s) + g m)``."""
        from manyhot.integrations.jax import pairwise_loss

        given: Any = {"unknown": True, "smoothing": smoothing}
        return pairwise_loss(rows.scores, rows.labels, scale=scale, margin=margin, **given)

    @staticmethod
    def asymmetric(rows: KerasRows, smoothing: float, **powers: Any) -> Tensor:
        """The mean over known labels."""
        from manyhot.integrations.jax import asymmetric_loss

        known = rows.labels >= 0
        labels = ops.where(known, rows.labels, 0.0)
        return asymmetric_loss(rows.scores, labels, where=known, smoothing=smoothing, **powers)


class OpsRows:
    """``keras.ops``, differentiated by the backend."""

    @staticmethod
    def zlpr(rows: KerasRows, threshold: float, smoothing: float) -> Tensor:
        """``softplus(pos + s0) + softplus(neg - s0)``."""
        pos_weight, neg_weight = _weights(rows, smoothing)
        pos, neg = _log_sum(-rows.scores, pos_weight), _log_sum(rows.scores, neg_weight)
        return ops.softplus(pos + threshold) + ops.softplus(neg - threshold)

    @staticmethod
    def pairwise(rows: KerasRows, scale: float, margin: float, smoothing: float) -> Tensor:
        """``softplus(pos(g s) + neg(g s) + g m)``."""
        pos_weight, neg_weight = _weights(rows, smoothing)
        pos, neg = _log_sum(-scale * rows.scores, pos_weight), _log_sum(scale * rows.scores, neg_weight)
        joined = ops.where((pos <= EMPTY) | (neg <= EMPTY), EMPTY, pos + neg)
        return ops.softplus(joined + scale * margin)

    @staticmethod
    def asymmetric(rows: KerasRows, smoothing: float, gamma_pos: float, gamma_neg: float, margin: float) -> Tensor:
        """The mean over known labels."""
        pos_weight, neg_weight = _weights(rows, smoothing)
        # Scores of weight 0 are replaced before the exponentials: 0 times an infinite slope is NaN.
        right, wrong = ops.where(pos_weight > 0, rows.scores, 0.0), ops.where(neg_weight > 0, rows.scores, 0.0)
        gain = ops.exp(-gamma_pos * ops.softplus(right)) * ops.softplus(-right)
        if margin:
            shifted = ops.maximum(ops.sigmoid(wrong) - margin, 0.0)
            focus = ops.where(shifted > 0, ops.where(shifted > 0, shifted, 1.0) ** gamma_neg, float(gamma_neg == 0))
            cost = -focus * ops.log1p(-shifted)
        else:
            cost = ops.exp(-gamma_neg * ops.softplus(-wrong)) * ops.softplus(wrong)
        total = ops.sum(pos_weight * gain + neg_weight * cost, axis=-1)
        known = ops.sum(ops.cast((pos_weight > 0) | (neg_weight > 0), total.dtype), axis=-1)
        return total / ops.maximum(known, 1.0)


class TensorFlowRows:
    """The log-sums of ``tensorflow_rows``; unknown labels are still negative or NaN, and a label above 1 makes its row NaN."""

    @staticmethod
    def zlpr(rows: KerasRows, threshold: float, smoothing: float) -> Tensor:
        """``softplus(pos + s0) + softplus(neg - s0)``."""
        from manyhot.integrations.keras.tensorflow_rows import sides

        pos, neg = sides(rows.scores, rows.labels, smoothing)
        return ops.softplus(pos + threshold) + ops.softplus(neg - threshold)

    @staticmethod
    def pairwise(rows: KerasRows, scale: float, margin: float, smoothing: float) -> Tensor:
        """``softplus(pos(g s) + neg(g s) + g m)``."""
        from manyhot.integrations.keras.tensorflow_rows import sides

        pos, neg = sides(scale * rows.scores, rows.labels, smoothing)
        joined = ops.where((pos <= EMPTY) | (neg <= EMPTY), EMPTY, pos + neg)
        return ops.softplus(joined + scale * margin)

    @staticmethod
    def asymmetric(rows: KerasRows, smoothing: float, **powers: Any) -> Tensor:
        """The mean over known labels."""
        known = rows.labels >= 0
        labels = ops.where(known, ops.minimum(rows.labels, 1.0), 0.0)
        return OpsRows.asymmetric(KerasRows(rows.scores, labels, known), smoothing, **powers) * _sound(rows.labels > 1)


def row_losses() -> Any:
    """The row functions of the backend that Keras runs on."""
    return {"torch": TorchRows, "jax": JaxRows, "tensorflow": TensorFlowRows}.get(keras.backend.backend(), OpsRows)


def _weights(rows: KerasRows, smoothing: float) -> tuple[Tensor, Tensor]:
    """The weights of every entry in the positive and the negative sum, 0 if it is unknown."""
    soft = rows.labels if smoothing == 0 else rows.labels * (1 - smoothing) + smoothing / 2
    if rows.where is None:
        return soft, 1 - soft
    return ops.where(rows.where, soft, 0.0), ops.where(rows.where, 1 - soft, 0.0)


def _log_sum(z: Tensor, weight: Tensor) -> Tensor:
    """``log sum w e^z`` over the last axis, ``EMPTY`` for an empty sum; terms of weight 0 are skipped.

    The operand is replaced before the exponential, so that gradients are 0 where the weight is 0, whatever the score. The shift
    is a constant and has no gradient.
    """
    counts = weight > 0
    top = ops.max(ops.where(counts, z, EMPTY), axis=-1, keepdims=True)
    shift = ops.stop_gradient(ops.where((top > EMPTY) & (ops.absolute(top) < INF), top, 0.0))
    relative = ops.where(counts & (z > -INF), z - shift, 0.0)
    total = ops.sum(ops.where(counts & (z > -INF), weight * ops.exp(relative), 0.0), axis=-1)
    some = total > 0
    log = ops.where(some, ops.log(ops.where(some, total, 1.0)), EMPTY)
    return ops.squeeze(shift, axis=-1) + log


def shape_words(shape: Any) -> str:
    """A shape for an error message; -1 is a size that is not known yet."""
    return shape_text(-1 if size is None else size for size in shape)
