"""The losses as ``keras.losses.Loss`` classes: they store the settings, and ``rows`` computes."""

from __future__ import annotations

from typing import Any

from manyhot._checks import check_at_least, check_unit
from manyhot.integrations.keras.rows import Tensor, prepared, row_losses
from manyhot.integrations.registry import framework

keras: Any = framework("keras")
PACKAGE = "manyhot"


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


@keras.saving.register_keras_serializable(package=PACKAGE)
class ZLPRLoss(_RowLoss):
    """``log(1 + sum_pos e^{-s}) + log(1 + sum_neg e^{s})`` of each row; the model gives logits, decide by ``s > 0``.

    Args:
        threshold: s0, the threshold instead of zero (TLPR).
        smoothing: uniform label smoothing ``t (1 - e) + e / 2``.
        reduction: as in Keras; the default is the mean over rows.
        name: the name of the loss in logs.
        dtype: as in Keras.

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
        rows = prepared("ZLPRLoss", y_true, y_pred)
        return rows.marked(row_losses().zlpr(rows, self.threshold, self.smoothing))

    def get_config(self) -> dict[str, Any]:
        """All settings, for saving."""
        return {**super().get_config(), "threshold": self.threshold}


@keras.saving.register_keras_serializable(package=PACKAGE)
class PairwiseLoss(_RowLoss):
    """``log(1 + sum over (negative i, positive j) of e^{g (s_i - s_j + m)})`` of each row; decide by the top k.

    Args:
        scale: g, > 0.
        margin: m, by which a positive should score above a negative.
        name: the name of the loss in logs.
        **settings: the settings of ``ZLPRLoss``, without ``threshold``.
    """

    def __init__(self, *, scale: float = 1.0, margin: float = 0.0, name: str = "pairwise_loss", **settings: Any) -> None:
        super().__init__(name=name, **settings)
        check_at_least("PairwiseLoss", "scale", scale, 0, strict=True)
        self.scale, self.margin = scale, margin

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """One value per row ``[...]``."""
        rows = prepared("PairwiseLoss", y_true, y_pred)
        return rows.marked(row_losses().pairwise(rows, self.scale, self.margin, self.smoothing))

    def get_config(self) -> dict[str, Any]:
        """All settings, for saving."""
        return {**super().get_config(), "scale": self.scale, "margin": self.margin}


@keras.saving.register_keras_serializable(package=PACKAGE)
class AsymmetricLoss(_RowLoss):
    """Asymmetric loss of each row, the mean over its known labels; with equal powers and no margin it is the focal loss.

    Args:
        gamma_pos: focusing power of the positives, >= 0.
        gamma_neg: focusing power of the negatives, >= 0.
        margin: negatives with a probability below it have loss 0.
        name: the name of the loss in logs.
        **settings: the settings of ``ZLPRLoss``, without ``threshold``.
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
        rows = prepared("AsymmetricLoss", y_true, y_pred)
        powers = {"gamma_pos": self.gamma_pos, "gamma_neg": self.gamma_neg, "margin": self.margin}
        return rows.marked(row_losses().asymmetric(rows, self.smoothing, **powers))

    def get_config(self) -> dict[str, Any]:
        """All settings, for saving."""
        own = {"gamma_pos": self.gamma_pos, "gamma_neg": self.gamma_neg, "margin": self.margin}
        return {**super().get_config(), **own}
