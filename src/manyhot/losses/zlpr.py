"""ZLPR and its form with a threshold: every positive above, every negative below one boundary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from manyhot._checks import check_choice, check_logits, check_number
from manyhot.engines.terms import LogSum, Weight
from manyhot.losses.core.dispatch import side_loss
from manyhot.losses.core.forms import side_form
from manyhot.losses.core.layout import Labels
from manyhot.losses.core.logsumexp import Dim, Scores
from manyhot.losses.core.reduction import softplus
from manyhot.losses.module import LossModule

LEARN = ("model", "row", "none")


def split_threshold(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Split scores that have one more class than there are labels; the last class is the threshold of its row.

    A head with ``L + 1`` outputs learns a threshold for each row. Both parts go to ``tlpr_loss`` in training, to ``decide`` and
    to ``probabilities`` afterwards. Scores minus their threshold give the same decisions with a boundary at 0.

    Args:
        scores: ``[..., L + 1]``.

    Returns:
        ``logits [..., L]`` and ``threshold [...]``, views of ``scores``.

    Example:
        >>> import torch
        >>> from manyhot import decide, probabilities
        >>> logits, threshold = split_threshold(torch.tensor([[2.0, 0.5, 1.0], [2.0, 0.5, -1.0]]))
        >>> decide(logits, threshold=threshold).tolist()
        [[True, False], [True, True]]
        >>> probabilities(logits, threshold=threshold)
        tensor([[0.7311, 0.3775],
                [0.9526, 0.8176]])
    """
    check_logits("split_threshold", scores, "scores")
    if scores.shape[-1] == 0:
        raise ValueError("split_threshold: `scores` must have a last class, the threshold, [..., L + 1]; got no class.")
    return scores[..., :-1], scores[..., -1]


@side_form("split")
def split_form(pos: LogSum, neg: LogSum, threshold: Tensor | float) -> Tensor:
    """``softplus(pos + s0) + softplus(neg - s0)`` of each row; s0 is 0 for ``zlpr_loss`` and the threshold for
    ``tlpr_loss``."""
    return softplus(pos.plus(threshold)) + softplus(neg.plus(-threshold))


def zlpr_loss(
    logits: Scores,
    labels: Labels,
    *,
    where: Tensor | None = None,
    pos_weight: Weight = None,
    neg_weight: Weight = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
    dim: Dim = -1,
    engine: str = "auto",
    validate: bool = False,
) -> Tensor:
    """Zero-bounded log-sum-exp and pairwise rank-based loss.

    ``log(1 + sum_pos e^{-s}) + log(1 + sum_neg e^{s})`` for hard labels, and ``log(1 + sum_i t_i e^{-s_i}) +
    log(1 + sum_i (1 - t_i) e^{s_i})`` for soft labels, of which the first is a special case. The gradient of each side is a
    softmax over its terms and one zero, so it adds up to less than 1 for any number of labels, and the loss needs no balancing.
    Decide by ``s > 0``. Unlike in ``bce_loss``, the labels of a row compete; unlike in ``pairwise_loss``, there is a boundary,
    so the number of labels need not be known.

    Args:
        logits: ``[..., L]``, or lazy scores.
        labels: ``[..., L]`` in [0, 1] of any number type, or ``SparseLabels``.
        where: bool, broadcastable to ``logits``; False leaves an entry out, with gradient 0 whatever its score.
        pos_weight: a number or ``[L]``, weighs the terms inside the positive sum. A single weight w, with ``neg_weight`` 1 / w,
            shifts the decision by log w in favour of predicting a label.
        neg_weight: the same for the negative sum.
        sample_weight: one value per row; the mean is ``sum w loss / sum w``.
        smoothing: uniform label smoothing ``t (1 - e) + e / 2``.
        reduction: ``"mean"`` over rows, ``"sum"``, or ``"none"`` for ``[...]``.
        dim: the label axis, or several that are taken together (a span grid, say).
        engine: the engine that computes it: ``"auto"``, ``"torch"``, ``"native"`` (CPU) or ``"triton"`` (CUDA); see
            ``manyhot.engines``.
        validate: look at the values of labels and weights too (on a GPU this waits for the device).

    Returns:
        A float32 scalar, or ``[...]`` with ``reduction="none"`` (float64 for float64 logits).

    Example:
        >>> import torch
        >>> logits = torch.tensor([[4.0, -3.0, 2.0], [-5.0, -4.0, -6.0]])
        >>> zlpr_loss(logits, torch.tensor([[1, 0, 1], [0, 0, 0]]), reduction="none")
        tensor([0.1915, 0.0272])
    """
    return side_loss(
        "zlpr_loss",
        "split",
        logits,
        labels,
        0.0,
        where=where,
        pos_weight=pos_weight,
        neg_weight=neg_weight,
        sample_weight=sample_weight,
        smoothing=smoothing,
        reduction=reduction,
        dim=dim,
        engine=engine,
        validate=validate,
    )


def tlpr_loss(
    logits: Scores,
    labels: Labels,
    threshold: Tensor | float,
    *,
    where: Tensor | None = None,
    pos_weight: Weight = None,
    neg_weight: Weight = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
    dim: Dim = -1,
    engine: str = "auto",
    validate: bool = False,
) -> Tensor:
    """ZLPR with a threshold instead of zero: ``log(1 + e^{s0} sum_pos e^{-s}) + log(1 + e^{-s0} sum_neg e^{s})``.

    Decide by ``s > s0``, and pass ``s0`` to ``probabilities`` too. The threshold may be learned, because the loss has a
    gradient for it: one for the whole model, or one per row as the score of an extra class (``split_threshold``). Adding a
    number to all scores and to the threshold changes nothing. With threshold 0 it is ``zlpr_loss``.

    Args:
        logits: ``[..., L]``, or lazy scores.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        threshold: a number, or a tensor broadcastable to the rows ``[...]``.
        where: see ``zlpr_loss``.
        pos_weight: see ``zlpr_loss``.
        neg_weight: see ``zlpr_loss``.
        sample_weight: see ``zlpr_loss``.
        smoothing: see ``zlpr_loss``.
        reduction: see ``zlpr_loss``.
        dim: see ``zlpr_loss``.
        engine: see ``zlpr_loss``.
        validate: see ``zlpr_loss``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[4.0, 1.0, 3.0]])
        >>> tlpr_loss(logits, torch.tensor([[1, 0, 1]]), torch.tensor([2.0]))
        tensor(0.7209)
    """
    if type(threshold) is not float:
        check_number("tlpr_loss", "threshold", threshold, or_tensor=True)
    return side_loss(
        "tlpr_loss",
        "split",
        logits,
        labels,
        threshold,
        where=where,
        pos_weight=pos_weight,
        neg_weight=neg_weight,
        sample_weight=sample_weight,
        smoothing=smoothing,
        reduction=reduction,
        dim=dim,
        engine=engine,
        validate=validate,
    )


class ZLPRLoss(LossModule):
    """``zlpr_loss`` as a module.

    Example:
        >>> import torch
        >>> ZLPRLoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.2539)
    """

    def __init__(
        self,
        *,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            zlpr_loss,
            pos_weight=pos_weight,
            neg_weight=neg_weight,
            smoothing=smoothing,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )


class TLPRLoss(LossModule):
    """``tlpr_loss`` as a module that holds its threshold: one number, learned with the model or fixed, or one per row.

    - ``learn="model"``: ``threshold`` is a parameter; give the loss's parameters to the optimiser too;
    - ``learn="row"``: the model has one output more than there are labels, and the last is the threshold of its row (see
      ``split_threshold``);
    - ``learn="none"``: ``threshold`` stays at ``initial``.

    Decide by ``logits > loss.threshold``; for ``"row"`` by ``decide(logits, threshold=threshold)`` of the split scores.

    Example:
        >>> import torch
        >>> loss = TLPRLoss()
        >>> loss(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]])).backward()
        >>> loss.threshold
        Parameter containing:
        tensor(0., requires_grad=True)
        >>> TLPRLoss(learn="row")(torch.tensor([[4.0, 1.0, 3.0, 2.0]]), torch.tensor([[1, 0, 1]]))
        tensor(0.7209)
    """

    threshold: Tensor

    def __init__(
        self,
        *,
        learn: str = "model",
        initial: float = 0.0,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            tlpr_loss,
            pos_weight=pos_weight,
            neg_weight=neg_weight,
            smoothing=smoothing,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )
        check_choice("TLPRLoss", "learn", learn, LEARN)
        check_number("TLPRLoss", "initial", initial)
        self.learn = learn
        if learn == "row" and initial:
            raise ValueError(
                f"TLPRLoss: `initial` must be left out with learn='row': the model outputs the thresholds; got {initial}."
            )
        if learn == "model":
            self.threshold = nn.Parameter(torch.tensor(float(initial)))
        elif learn == "none":
            self.register_buffer("threshold", torch.tensor(float(initial)))

    def current_settings(self) -> dict[str, Any]:
        """All settings, a threshold for all rows included."""
        settings = super().current_settings()
        return settings if self.learn == "row" else settings | {"threshold": self.threshold}

    def forward(
        self, logits: Scores, labels: Labels, *, where: Tensor | None = None, sample_weight: Tensor | None = None
    ) -> Tensor:
        """The loss; ``logits [..., L]``, or ``[..., L + 1]`` for ``learn="row"``; ``labels [..., L]`` or ``SparseLabels``."""
        if self.learn != "row":
            return super().forward(logits, labels, where=where, sample_weight=sample_weight)
        check_logits("TLPRLoss", logits)
        assert isinstance(logits, Tensor)
        scores, threshold = split_threshold(logits)
        settings = self.current_settings() | {"where": where, "sample_weight": sample_weight}
        return tlpr_loss(scores, labels, threshold, **settings)
