"""``nn.Module`` shells: they hold settings and make one call. The arithmetic is in the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from manyhot.engines.terms import Weight
from manyhot.losses.binary import asymmetric_loss, bce_loss, focal_loss
from manyhot.losses.core.logsumexp import Dim, Labels, Scores
from manyhot.losses.divergence import Loss, rdrop_loss
from manyhot.losses.overlap import dice_loss
from manyhot.losses.ranking import lsep_loss, pairwise_loss, softmax_loss, two_way_loss
from manyhot.losses.zlpr import tlpr_loss, zlpr_loss


class LossModule(nn.Module):
    """Settings of one loss function; tensors among them are buffers, so that ``.to(device)`` moves them."""

    def __init__(self, function: Callable[..., Tensor], **settings: Any) -> None:
        super().__init__()
        self.function = function
        self.settings = {name: value for name, value in settings.items() if not isinstance(value, Tensor)}
        for name, value in settings.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)

    def current_settings(self) -> dict[str, Any]:
        """All settings, buffers included."""
        return self.settings | dict(self.named_buffers(recurse=False))

    def forward(
        self, logits: Scores, labels: Labels, *, where: Tensor | None = None, sample_weight: Tensor | None = None
    ) -> Tensor:
        """The loss; ``logits [..., L]``, ``labels`` likewise or ``SparseLabels``."""
        return self.function(logits, labels, where=where, sample_weight=sample_weight, **self.current_settings())

    def extra_repr(self) -> str:
        """The settings that are not None."""
        given = {name: value for name, value in self.current_settings().items() if value is not None}
        return ", ".join(
            f"{name}={list(value.shape) if isinstance(value, Tensor) else repr(value)}" for name, value in given.items()
        )


class ZLPRLoss(LossModule):
    """``zlpr_loss`` as a module.

    Example:
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
    """``tlpr_loss`` as a module that holds its threshold, learned beside the model or fixed.

    ``threshold`` is what to decide by: ``logits > loss.threshold``. With ``learn=True`` it is a parameter: give the loss's
    parameters to the optimiser too.

    Example:
        >>> loss = TLPRLoss(learn=True)
        >>> loss(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]])).backward()
        >>> loss.threshold
        Parameter containing:
        tensor(0., requires_grad=True)
    """

    threshold: Tensor

    def __init__(
        self,
        *,
        learn: bool = True,
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
        if learn:
            self.threshold = nn.Parameter(torch.tensor(float(initial)))
        else:
            self.register_buffer("threshold", torch.tensor(float(initial)))

    def current_settings(self) -> dict[str, Any]:
        """All settings, the threshold included."""
        return super().current_settings() | {"threshold": self.threshold}


class PairwiseLoss(LossModule):
    """``pairwise_loss`` as a module.

    Example:
        >>> PairwiseLoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0181)
    """

    def __init__(
        self,
        *,
        scale: float = 1.0,
        margin: float = 0.0,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            pairwise_loss,
            scale=scale,
            margin=margin,
            pos_weight=pos_weight,
            neg_weight=neg_weight,
            smoothing=smoothing,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )


class SoftmaxLoss(LossModule):
    """``softmax_loss`` as a module.

    Example:
        >>> SoftmaxLoss(smoothing=0.1)(torch.tensor([[2.0, -2.0]]), torch.tensor([0]))
        tensor(0.4181)
    """

    def __init__(self, *, smoothing: float = 0.0, reduction: str = "mean", validate: bool = False) -> None:
        super().__init__(softmax_loss, smoothing=smoothing, reduction=reduction, validate=validate)


class BCELoss(LossModule):
    """``bce_loss`` as a module.

    Example:
        >>> BCELoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.1269)
    """

    def __init__(
        self,
        *,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        label_reduction: str = "mean",
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            bce_loss,
            pos_weight=pos_weight,
            neg_weight=neg_weight,
            smoothing=smoothing,
            label_reduction=label_reduction,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )


class FocalLoss(LossModule):
    """``focal_loss`` as a module.

    Example:
        >>> FocalLoss(alpha=None)(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0018)
    """

    def __init__(
        self,
        *,
        gamma: float = 2.0,
        alpha: float | None = 0.25,
        smoothing: float = 0.0,
        label_reduction: str = "mean",
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            focal_loss,
            gamma=gamma,
            alpha=alpha,
            smoothing=smoothing,
            label_reduction=label_reduction,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )


class AsymmetricLoss(LossModule):
    """``asymmetric_loss`` as a module.

    Example:
        >>> AsymmetricLoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0076)
    """

    def __init__(
        self,
        *,
        gamma_pos: float = 1.0,
        gamma_neg: float = 4.0,
        margin: float = 0.05,
        smoothing: float = 0.0,
        label_reduction: str = "mean",
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> None:
        super().__init__(
            asymmetric_loss,
            gamma_pos=gamma_pos,
            gamma_neg=gamma_neg,
            margin=margin,
            smoothing=smoothing,
            label_reduction=label_reduction,
            reduction=reduction,
            dim=dim,
            engine=engine,
            validate=validate,
        )


class DiceLoss(LossModule):
    """``dice_loss`` as a module.

    Example:
        >>> DiceLoss(squared=True)(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0102)
    """

    def __init__(
        self,
        *,
        squared: bool = False,
        epsilon: float = 1.0,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        validate: bool = False,
    ) -> None:
        super().__init__(
            dice_loss,
            squared=squared,
            epsilon=epsilon,
            smoothing=smoothing,
            reduction=reduction,
            dim=dim,
            validate=validate,
        )


class LSEPLoss(LossModule):
    """``lsep_loss`` as a module.

    Example:
        >>> LSEPLoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0181)
    """

    def __init__(
        self,
        *,
        max_pairs: int | None = 1000,
        generator: torch.Generator | None = None,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        validate: bool = False,
    ) -> None:
        super().__init__(
            lsep_loss,
            max_pairs=max_pairs,
            generator=generator,
            smoothing=smoothing,
            reduction=reduction,
            dim=dim,
            validate=validate,
        )


class TwoWayLoss(LossModule):
    """``two_way_loss`` as a module.

    Example:
        >>> TwoWayLoss()(torch.tensor([[2.0, -2.0]]), torch.tensor([[1, 0]]))
        tensor(0.0181)
    """

    def __init__(
        self,
        *,
        pos_temperature: float = 4.0,
        neg_temperature: float = 1.0,
        batch_weight: float = 1.0,
        smoothing: float = 0.0,
        reduction: str = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(
            two_way_loss,
            pos_temperature=pos_temperature,
            neg_temperature=neg_temperature,
            batch_weight=batch_weight,
            smoothing=smoothing,
            reduction=reduction,
            validate=validate,
        )


class RDropLoss(nn.Module):
    """``rdrop_loss`` as a module: two passes in, one loss out.

    Example:
        >>> a, b = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, -2.0]])
        >>> RDropLoss(alpha=4.0)(a, b, torch.tensor([[1, 0]]))
        tensor(0.7378)
    """

    def __init__(self, *, alpha: float = 1.0, loss: Loss = zlpr_loss, kind: str = "sigmoid", reduction: str = "mean") -> None:
        super().__init__()
        self.alpha, self.loss, self.kind, self.reduction = alpha, loss, kind, reduction

    def forward(
        self,
        logits_a: Tensor,
        logits_b: Tensor,
        labels: Labels,
        *,
        where: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """The loss; both logits ``[..., L]``, ``labels`` likewise or ``SparseLabels``."""
        return rdrop_loss(
            logits_a,
            logits_b,
            labels,
            alpha=self.alpha,
            loss=self.loss,
            kind=self.kind,
            where=where,
            sample_weight=sample_weight,
            reduction=self.reduction,
        )
