"""``two_sided_logsumexp`` in JAX, with a custom gradient.

pos = log sum_i t_i e^{-s_i}            neg = log sum_i (1 - t_i) e^{s_i}
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from manyhot._checks import check_unit
from manyhot.integrations.jax.labels import Array, PaddedLabels, arranged, dense_labels, entry_weights, sum_type
from manyhot.integrations.registry import framework

jax: Any = framework("jax")
jnp: Any = jax.numpy

INF = float("inf")


class _Settings(NamedTuple):
    smoothing: float
    axis_name: Any
    unknown: bool


def two_sided_logsumexp(
    logits: Array,
    labels: Array | PaddedLabels,
    *,
    where: Array | None = None,
    pos_weight: Array | float | None = None,
    neg_weight: Array | float | None = None,
    smoothing: float = 0.0,
    axis: int = -1,
    axis_name: Any = None,
    unknown: bool = False,
    who: str = "two_sided_logsumexp",
) -> tuple[Array, Array]:
    """The log-sums ``(pos, neg)`` of the two sides of each row, ``-inf`` for an empty sum.

    Args:
        logits: ``[..., L]``, floating-point.
        labels: ``[..., L]`` in [0, 1] of any number type, or ``PaddedLabels``.
        where: bool, broadcastable to ``logits``; False leaves an entry out.
        pos_weight: a number or ``[L]``, weighs the terms of the positive sum.
        neg_weight: the same for the negative sum.
        smoothing: uniform label smoothing ``t (1 - e) + e / 2``.
        axis: the label axis; the last one for ``PaddedLabels``.
        axis_name: the mapped axis over which the labels are sharded: each device holds the logits of some labels, and the
            sums are taken over all of them. Take gradients inside the mapped function, or of a ``shard_map``.
        unknown: leave out labels that are negative or NaN. Unlike ``where``, this saves no mask for backward.
        who: the name that error messages start with.

    Returns:
        Two arrays ``[...]``, float32 (float64 for float64 logits).

    Example:
        >>> pos, neg = two_sided_logsumexp(jnp.array([[2.0, -1.0, 0.5]]), jnp.array([[1, 0, 0]]))
        >>> [round(float(side[0]), 4) for side in (pos, neg)]
        [-2.0, 0.7014]
    """
    pos, neg = log_sums(
        who,
        logits,
        labels,
        where=where,
        pos_weight=pos_weight,
        neg_weight=neg_weight,
        smoothing=smoothing,
        axis=axis,
        axis_name=axis_name,
        unknown=unknown,
    )
    return pos.plus(0.0), neg.plus(0.0)


class LogSum(NamedTuple):
    """``log sum w e^x`` as ``shift + rest``: a single float would lose ``rest`` at a score of 1e7.

    Gradients flow through ``rest``; ``shift`` is a constant.
    """

    shift: Array
    rest: Array

    def plus(self, offset: Array | float) -> Array:
        """The log-sum plus ``offset``, which is added to the shift first: if they cancel, ``rest`` keeps all its digits."""
        return (self.shift + offset) + self.rest

    def times(self, other: LogSum) -> LogSum:
        """The log of the product of both sums, ``-inf`` where one is empty even if the other is infinite."""
        empty = (self.rest == -INF) | (other.rest == -INF)
        return LogSum(self.shift + other.shift, jnp.where(empty, -INF, self.rest + other.rest))


def log_sums(
    who: str,
    logits: Array,
    labels: Array | PaddedLabels,
    *,
    where: Array | None = None,
    pos_weight: Array | float | None = None,
    neg_weight: Array | float | None = None,
    smoothing: float = 0.0,
    axis: int = -1,
    axis_name: Any = None,
    unknown: bool = False,
) -> tuple[LogSum, LogSum]:
    """``two_sided_logsumexp`` with each sum as a ``LogSum``, for losses that add an offset to it."""
    check_unit(who, "smoothing", smoothing)
    logits, labels, where = arranged(who, logits, labels, where, axis, unknown=unknown)
    weights = [None if weight is None else jnp.asarray(weight, sum_type(logits)) for weight in (pos_weight, neg_weight)]
    pos, neg = _sides(_Settings(float(smoothing), axis_name, unknown), logits, labels, where, *weights)
    return pos, neg


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sides(
    settings: _Settings, logits: Array, labels: Any, where: Any, pos_weight: Any, neg_weight: Any
) -> tuple[LogSum, LogSum]:
    return _log_sums(settings, logits, labels, where, pos_weight, neg_weight)


def _sides_forward(
    settings: _Settings, logits: Array, labels: Any, where: Any, pos_weight: Any, neg_weight: Any
) -> tuple[tuple[LogSum, LogSum], Any]:
    pos, neg = _log_sums(settings, logits, labels, where, pos_weight, neg_weight)
    # Saved for backward: the arguments, which exist anyway, and four numbers per row.
    return (pos, neg), (logits, labels, where, pos_weight, neg_weight, pos, neg)


def _sides_backward(settings: _Settings, kept: Any, grads: tuple[LogSum, LogSum]) -> tuple[Any, ...]:
    """``grad_neg (1 - t) e^{s - neg} - grad_pos t e^{-s - pos}``; the shifts are constants."""
    logits, labels, where, pos_weight, neg_weight, pos, neg = kept
    dense, kind = dense_labels(labels, logits), sum_type(logits)
    grad_pos, grad_neg = (grad.rest[..., None] for grad in grads)
    x = logits.astype(kind)
    pos_w, neg_w = entry_weights(dense, where, pos_weight, neg_weight, settings.smoothing, kind, unknown=settings.unknown)
    columns = [LogSum(*(part[..., None] for part in total)) for total in (pos, neg)]
    gradient = grad_neg * _shares(x, neg_w, columns[1]) - grad_pos * _shares(-x, pos_w, columns[0])
    return gradient.astype(logits.dtype), None, None, None, None


_sides.defvjp(_sides_forward, _sides_backward)


def _log_sums(
    settings: _Settings, logits: Array, labels: Any, where: Any, pos_weight: Any, neg_weight: Any
) -> tuple[LogSum, LogSum]:
    dense, kind = dense_labels(labels, logits), sum_type(logits)
    x = logits.astype(kind)
    pos_w, neg_w = entry_weights(dense, where, pos_weight, neg_weight, settings.smoothing, kind, unknown=settings.unknown)
    pos, neg = (_log_sum(z, weight, settings.axis_name) for z, weight in ((-x, pos_w), (x, neg_w)))
    return pos, neg


def _log_sum(z: Array, weight: Array, axis_name: Any) -> LogSum:
    """``log sum w e^z`` of each row; terms of weight 0 are skipped, and the sum runs over all shards of ``axis_name``."""
    top = jnp.max(jnp.where(weight > 0, z, -INF), axis=-1, initial=-INF)
    if axis_name is not None:
        top = jax.lax.pmax(top, axis_name)
    shift = jnp.where(jnp.isfinite(top), top, 0.0)
    terms = weight * jnp.exp(jnp.where(weight > 0, z - shift[..., None], 0.0))
    total = jnp.where(weight > 0, terms, 0.0).sum(axis=-1)
    return LogSum(shift, jnp.log(total if axis_name is None else jax.lax.psum(total, axis_name)))


def _shares(z: Array, weight: Array, total: LogSum) -> Array:
    """The softmax weight of each term within its side; an infinite term gets all of it."""
    counts = (weight > 0) & (z != -INF)
    relative = jnp.where((z == INF) & (total.rest == INF), 0.0, (z - total.shift) - total.rest)
    return jnp.where(counts, weight * jnp.exp(jnp.where(counts, relative, 0.0)), 0.0)
