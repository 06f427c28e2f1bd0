"""The losses as JAX functions: the names and arguments of the torch functions, one value per row as in Optax."""

from __future__ import annotations

from typing import Any

from manyhot._checks import check_at_least, check_choice, check_unit
from manyhot.integrations.jax.labels import Array, PaddedLabels, arranged, dense_labels, entry_weights, sum_type
from manyhot.integrations.jax.sides import log_sums, two_sided_logsumexp
from manyhot.integrations.registry import framework

jax: Any = framework("jax")
jnp: Any = jax.numpy


def zlpr_loss(logits: Array, labels: Array | PaddedLabels, **settings: Any) -> Array:
    """``log(1 + sum_pos e^{-s}) + log(1 + sum_neg e^{s})`` of each row; decide by ``s > 0``.

    Args:
        logits: ``[..., L]``.
        labels: ``[..., L]`` in [0, 1], or ``PaddedLabels``.
        **settings: ``where``, ``pos_weight``, ``neg_weight``, ``smoothing``, ``unknown``, ``axis``, ``axis_name`` of
            ``two_sided_logsumexp``.

    Returns:
        ``[...]``, one value per row; take the mean yourself.

    Example:
        >>> logits = jnp.array([[4.0, -3.0, 2.0], [-5.0, -4.0, -6.0]])
        >>> [round(float(value), 4) for value in zlpr_loss(logits, jnp.array([[1, 0, 1], [0, 0, 0]]))]
        [0.1915, 0.0272]
    """
    pos, neg = two_sided_logsumexp(logits, labels, who="zlpr_loss", **settings)
    return jax.nn.softplus(pos) + jax.nn.softplus(neg)


def tlpr_loss(logits: Array, labels: Array | PaddedLabels, threshold: Array | float, **settings: Any) -> Array:
    """``zlpr_loss`` with a threshold instead of zero; the threshold, a number or ``[...]``, gets a gradient.

    Example:
        >>> round(float(tlpr_loss(jnp.array([[4.0, 1.0, 3.0]]), jnp.array([[1, 0, 1]]), 2.0)[0]), 4)
        0.7209
    """
    pos, neg = log_sums("tlpr_loss", logits, labels, **settings)
    return jax.nn.softplus(pos.plus(threshold)) + jax.nn.softplus(neg.plus(-threshold))


def pairwise_loss(
    logits: Array, labels: Array | PaddedLabels, *, scale: float = 1.0, margin: float = 0.0, **settings: Any
) -> Array:
    """``log(1 + sum over (negative i, positive j) of e^{g (s_i - s_j + m)})`` of each row; decide by the top k.

    Example:
        >>> round(float(pairwise_loss(jnp.array([[3.0, 1.0, 0.0]]), jnp.array([[1, 0, 0]]))[0]), 4)
        0.1698
    """
    check_at_least("pairwise_loss", "scale", scale, 0, strict=True)
    scaled = logits if scale == 1 else jnp.asarray(logits) * scale
    pos, neg = log_sums("pairwise_loss", scaled, labels, **settings)
    return jax.nn.softplus(pos.times(neg).plus(scale * margin))


def bce_loss(
    logits: Array,
    labels: Array | PaddedLabels,
    *,
    where: Array | None = None,
    pos_weight: Array | float | None = None,
    neg_weight: Array | float | None = None,
    smoothing: float = 0.0,
    label_reduction: str = "mean",
    axis: int = -1,
) -> Array:
    """Binary cross-entropy of each row, the mean over its labels, or their sum with ``label_reduction="sum"``.

    Example:
        >>> round(float(bce_loss(jnp.array([[2.0, -1.0]]), jnp.array([[1, 0]]))[0]), 4)
        0.2201
    """

    sides = (lambda x: jax.nn.softplus(-x), jax.nn.softplus)
    weights = (pos_weight, neg_weight)
    return _labelwise("bce_loss", sides, logits, labels, where, weights, smoothing, label_reduction, axis)


def focal_loss(
    logits: Array,
    labels: Array | PaddedLabels,
    *,
    gamma: float = 2.0,
    alpha: float | None = 0.25,
    where: Array | None = None,
    smoothing: float = 0.0,
    label_reduction: str = "mean",
    axis: int = -1,
) -> Array:
    """Focal loss of each row: cross-entropy with less weight on labels that are already right.

    Example:
        >>> round(float(focal_loss(jnp.array([[2.0, -1.0]]), jnp.array([[1, 0]]))[0]), 4)
        0.0087
    """
    check_at_least("focal_loss", "gamma", gamma, 0)
    weights = (None, None) if alpha is None else (alpha, 1 - alpha)
    sides = _focal_sides(gamma, gamma, 0.0)
    return _labelwise("focal_loss", sides, logits, labels, where, weights, smoothing, label_reduction, axis)


def asymmetric_loss(
    logits: Array,
    labels: Array | PaddedLabels,
    *,
    gamma_pos: float = 1.0,
    gamma_neg: float = 4.0,
    margin: float = 0.05,
    where: Array | None = None,
    smoothing: float = 0.0,
    label_reduction: str = "mean",
    axis: int = -1,
) -> Array:
    """Asymmetric loss of each row: focal loss with one power per side; easy negatives have loss 0.

    Example:
        >>> round(float(asymmetric_loss(jnp.array([[2.0, -1.0]]), jnp.array([[1, 0]]))[0]), 4)
        0.0078
    """
    check_at_least("asymmetric_loss", "gamma_pos", gamma_pos, 0)
    check_at_least("asymmetric_loss", "gamma_neg", gamma_neg, 0)
    check_unit("asymmetric_loss", "margin", margin, open_end=True)
    sides = _focal_sides(gamma_pos, gamma_neg, margin)
    return _labelwise("asymmetric_loss", sides, logits, labels, where, (None, None), smoothing, label_reduction, axis)


def _focal_sides(gamma_pos: float, gamma_neg: float, margin: float) -> tuple[Any, Any]:
    """``-(1 - q)^{g+} log q`` and ``-m^{g-} log(1 - m)`` with ``q = sigma(s)`` and ``m = max(q - margin, 0)``."""

    def positive(x: Array) -> Array:
        return jnp.exp(-gamma_pos * jax.nn.softplus(x)) * jax.nn.softplus(-x)

    def negative(x: Array) -> Array:
        if not margin:
            return jnp.exp(-gamma_neg * jax.nn.softplus(-x)) * jax.nn.softplus(x)
        shifted = jnp.maximum(jax.nn.sigmoid(x) - margin, 0)
        # 0 to a power below 1 has no finite slope; the operand is replaced before the select.
        focus = jnp.where(shifted > 0, jnp.where(shifted > 0, shifted, 1.0) ** gamma_neg, 0.0 if gamma_neg else 1.0)
        return -focus * jnp.log1p(-shifted)

    return positive, negative


def _labelwise(
    who: str,
    sides: tuple[Any, Any],
    logits: Array,
    labels: Any,
    where: Array | None,
    weights: tuple[Any, Any],
    smoothing: float,
    label_reduction: str,
    axis: int,
) -> Array:
    """The terms of each label, summed or averaged over the entries that count."""
    check_choice(who, "label_reduction", label_reduction, ("mean", "sum"))
    check_unit(who, "smoothing", smoothing)
    logits, labels, where = arranged(who, logits, labels, where, axis)
    pos, neg = entry_weights(dense_labels(labels, logits), where, *weights, smoothing, sum_type(logits))
    x = logits.astype(pos.dtype)
    # Scores of weight 0 are replaced before the exponentials: 0 times an infinite slope is NaN.
    terms = (weight * side(jnp.where(weight > 0, x, 0.0)) for weight, side in zip((pos, neg), sides, strict=True))
    total = sum(terms).sum(axis=-1)
    if label_reduction == "sum":
        return total
    entries = logits.shape[-1] if where is None else where.sum(axis=-1)
    return total / jnp.maximum(entries, 1)
