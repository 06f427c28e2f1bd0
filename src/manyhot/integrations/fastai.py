"""fastai: losses of the catalog with ``activation`` and ``decodes``; logits and labels are not flattened."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_label_values
from manyhot.decisions import DecisionRule, decide, probabilities
from manyhot.integrations.registry import framework
from manyhot.losses import get_loss

framework("fastai")

from fastai.losses import BaseLoss  # noqa: E402


class MultiLabelLoss(BaseLoss):
    """A loss for ``Learner(..., loss_func=MultiLabelLoss("zlpr"))``. It does not flatten, because label sets need whole rows.

    ``activation`` returns probabilities, by the link of the loss. ``decodes`` takes these probabilities and returns the labels
    that the rule predicts, as ``Learner.predict`` and ``show_results`` expect.

    Args:
        loss: a name of ``manyhot.LOSSES`` that gives each label a probability, such as zlpr, bce or focal.
        rule: the decision rule, with thresholds on scores; None is ``s > 0``.
        **options: options of the loss module.

    Example:
        >>> loss = MultiLabelLoss("zlpr")
        >>> logits = torch.tensor([[2.0, -1.0]])
        >>> round(loss(logits, torch.tensor([[1.0, 0.0]])).item(), 4)
        0.4402
        >>> loss.decodes(loss.activation(logits)).tolist()
        [[True, False]]
    """

    def __init__(self, loss: str = "zlpr", *, rule: DecisionRule | None = None, **options: Any) -> None:
        info = get_loss(loss)
        if info.link not in ("hard", "soft"):
            raise ValueError(f"MultiLabelLoss: `loss` must give each label a probability; {loss} does not. Choose zlpr or bce.")
        super().__init__(info.module, flatten=False, floatify=True, is_2d=False, **options)
        self.link, self.rule = info.link, rule or DecisionRule()

    def __call__(self, inp: Tensor, targ: Tensor, **settings: Any) -> Tensor:
        """The loss of logits ``[B, L]`` and labels ``[B, L]``."""
        logits, labels = inp.as_subclass(torch.Tensor), targ.as_subclass(torch.Tensor)
        if logits.shape != labels.shape:
            raise ValueError(
                f"MultiLabelLoss: labels must have the shape of the logits, {list(logits.shape)}; got {list(labels.shape)}."
                " Use MultiCategoryBlock, and do not flatten."
            )
        labels = labels if labels.is_floating_point() else labels.float()
        check_label_values("MultiLabelLoss", labels)
        found: Tensor = self.func(logits, labels, **settings)
        return found

    def activation(self, x: Tensor) -> Tensor:
        """Probabilities ``[..., L]`` of logits."""
        return probabilities(x.as_subclass(torch.Tensor), self.link)

    def decodes(self, x: Tensor) -> Tensor:
        """bool ``[..., L]``: the labels that the rule predicts from probabilities."""
        probs = x.as_subclass(torch.Tensor).double()
        return decide(probs.logit() / (2 if self.link == "soft" else 1), self.rule)
