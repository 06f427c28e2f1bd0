"""Labels for the JAX functions: index lists, checks, and the weights of entries in the positive and the negative sum."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyhot._checks import shape_text
from manyhot.integrations.registry import framework

jax: Any = framework("jax")
jnp: Any = jax.numpy

Array = Any


class PaddedLabels(NamedTuple):
    """Positive labels as index lists: label numbers ``[..., K]``, padded with -1.

    Args:
        indices: integers ``[..., K]``; negative numbers are padding.
        values: soft labels ``[..., K]`` of the listed entries, or None for hard ones.

    Example:
        >>> import jax.numpy as jnp
        >>> labels = PaddedLabels(jnp.array([[2, 0], [1, -1]]))
        >>> labels.dense(3).astype(int).tolist()
        [[1, 0, 1], [0, 1, 0]]
    """

    indices: Array
    values: Array | None = None

    def dense(self, num_labels: int) -> Array:
        """``[..., L]``: bool for hard labels, the type of ``values`` for soft ones."""
        indices = jnp.asarray(self.indices)
        places = jnp.where(indices < 0, num_labels, indices).reshape(-1, indices.shape[-1])
        rows = jnp.arange(places.shape[0])[:, None]
        kind = jnp.bool_ if self.values is None else jnp.asarray(self.values).dtype
        given = True if self.values is None else jnp.asarray(self.values).reshape(places.shape)
        full = jnp.zeros((places.shape[0], num_labels), kind).at[rows, places].set(given, mode="drop")
        return full.reshape(*indices.shape[:-1], num_labels)

    def shard(self, start: Array | int, num_labels: int) -> PaddedLabels:
        """Only the labels from ``start`` up to ``start + num_labels``, numbered from 0, for one shard of the label axis."""
        moved = jnp.asarray(self.indices) - start
        inside = (jnp.asarray(self.indices) >= start) & (moved < num_labels)
        return PaddedLabels(jnp.where(inside, moved, -1), self.values)


def arranged(
    who: str, logits: Any, labels: Any, where: Any, axis: int, *, unknown: bool = False
) -> tuple[Array, Any, Array | None]:
    """Check the arguments, and move the label axis to the end."""
    logits = jnp.asarray(logits)
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise TypeError(
            f"{who}: `logits` must be floating-point [..., L]; got {logits.dtype}. The order is (logits, labels): are the"
            " arguments swapped?"
        )
    if logits.ndim == 0:
        raise ValueError(f"{who}: `logits` must have a label axis, [..., L]; got an array without axes.")
    if isinstance(labels, PaddedLabels):
        if axis not in (-1, logits.ndim - 1):
            raise ValueError(f"{who}: PaddedLabels run along the last axis; got axis {axis}.")
        if tuple(labels.indices.shape[:-1]) != tuple(logits.shape[:-1]):
            raise ValueError(
                f"{who}: `labels` must have the rows of `logits`, {shape_text(logits.shape[:-1])};"
                f" got {shape_text(labels.indices.shape[:-1])}."
            )
        if not jnp.issubdtype(jnp.asarray(labels.indices).dtype, jnp.integer):
            raise TypeError(f"{who}: PaddedLabels must hold integers; got {jnp.asarray(labels.indices).dtype}.")
    else:
        shape = jnp.shape(labels)
        if shape != logits.shape:
            raise ValueError(
                f"{who}: `labels` must have the shape of `logits`, {shape_text(logits.shape)}; got {shape_text(shape)}."
            )
        _check_values(who, labels, where, unknown=unknown)
        labels = jnp.moveaxis(jnp.asarray(labels), axis, -1)
    if where is not None:
        where = jnp.asarray(where)
        if where.dtype != jnp.bool_:
            raise TypeError(f"{who}: `where` must be bool, True where a label counts; got {where.dtype}.")
        where = jnp.moveaxis(jnp.broadcast_to(where, logits.shape), axis, -1)
    return jnp.moveaxis(logits, axis, -1), labels, where


def _check_values(who: str, labels: Any, where: Any, *, unknown: bool) -> None:
    """Raise an error for labels outside of [0, 1] if the values can be read: outside of ``jit``, and on the CPU."""
    for part in (labels, where):
        if isinstance(part, jax.core.Tracer) or (isinstance(part, jax.Array) and jax.default_backend() != "cpu"):
            return
    values = np.asarray(labels)
    if values.dtype == np.bool_:
        return
    wrong = values > 1 if unknown else ~((values >= 0) & (values <= 1))
    if where is not None:
        wrong = wrong & np.asarray(where, dtype=bool)
    if wrong.any():
        got = values[wrong].flat[0]
        raise ValueError(
            f"{who}: `labels` must lie in [0, 1]; got {got:g}. Exclude unknown labels with `where`, or mark them with"
            " negative numbers or NaN and pass unknown=True."
        )


def sum_type(logits: Array) -> Any:
    """The type of sums: float64 for float64 logits, float32 for all others."""
    return jnp.float64 if logits.dtype == jnp.float64 else jnp.float32


def dense_labels(labels: Any, logits: Array) -> Array:
    """Dense labels ``[..., L]``, also for index lists."""
    return labels.dense(logits.shape[-1]) if isinstance(labels, PaddedLabels) else labels


def entry_weights(
    labels: Array,
    where: Array | None,
    pos_weight: Any,
    neg_weight: Any,
    smoothing: float,
    kind: Any,
    *,
    unknown: bool = False,
) -> tuple[Array, Array]:
    """The weights of every entry in the positive and the negative sum.

    An excluded entry has weight 0; with ``unknown`` so has a label that is negative or NaN.
    """
    soft = labels.astype(kind)
    if unknown:
        where = soft >= 0 if where is None else where & (soft >= 0)
    if smoothing:
        soft = soft * (1 - smoothing) + smoothing / 2
    pos, neg = soft, 1 - soft
    if pos_weight is not None:
        pos = pos * pos_weight
    if neg_weight is not None:
        neg = neg * neg_weight
    if where is not None:
        pos, neg = jnp.where(where, pos, 0.0), jnp.where(where, neg, 0.0)
    return pos, neg
