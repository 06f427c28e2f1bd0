"""The losses by name, with what the rest of the library must know of each: link, label kinds, natural decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch import Tensor

from manyhot._checks import check_choice
from manyhot.losses import modules
from manyhot.losses.binary import asymmetric_loss, bce_loss, focal_loss
from manyhot.losses.overlap import dice_loss
from manyhot.losses.ranking import lsep_loss, pairwise_loss, softmax_loss, two_way_loss
from manyhot.losses.zlpr import tlpr_loss, zlpr_loss

HARD, SOFT, SPARSE = "hard", "soft", "sparse"


@dataclass(frozen=True)
class LossInfo:
    """One loss of the catalog.

    Attributes:
        name: what it is called in settings and tables.
        function: ``(logits, labels, *, ...) -> loss``.
        module: its ``nn.Module`` shell.
        settings: what sets it apart from others with the same function.
        link: which link turns its scores into probabilities after training on hard labels: ``"hard"`` sigma(s),
            ``"softmax"``, or None where scores only rank.
        soft_link: the same after training on soft labels.
        decision: the natural one: ``"zero"`` (s > 0), ``"threshold"`` (s > s0), ``"top-k"``, ``"argmax"`` or ``"tuned"``.
        label_kinds: which labels it takes, of ``hard``, ``soft``, ``sparse``.
        lazy: whether it takes lazy scores.
        row_separable: whether each row's value depends on that row alone.
        summary: one line for people.
    """

    name: str
    function: Callable[..., Tensor]
    module: type[modules.LossModule]
    link: str | None
    soft_link: str | None
    decision: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    label_kinds: frozenset[str] = frozenset({HARD, SOFT, SPARSE})
    lazy: bool = False
    row_separable: bool = True

    def __call__(self, logits: Any, labels: Any, **settings: Any) -> Tensor:
        """The loss with its settings; a setting given here wins."""
        return self.function(logits, labels, **{**self.settings, **settings})


_ENTRIES = (
    LossInfo(
        "zlpr",
        zlpr_loss,
        modules.ZLPRLoss,
        "hard",
        "soft",
        "zero",
        "all positives above zero, all negatives below; balances itself",
        lazy=True,
    ),
    LossInfo(
        "tlpr",
        tlpr_loss,
        modules.TLPRLoss,
        "hard",
        "soft",
        "threshold",
        "ZLPR with a threshold that is given or learned",
        MappingProxyType({"threshold": 0.0}),
        lazy=True,
    ),
    LossInfo(
        "pairwise",
        pairwise_loss,
        modules.PairwiseLoss,
        None,
        None,
        "top-k",
        "every positive above every negative, for a known number of labels",
        lazy=True,
    ),
    LossInfo(
        "softmax",
        softmax_loss,
        modules.SoftmaxLoss,
        "softmax",
        "softmax",
        "argmax",
        "cross-entropy for exactly one label a row",
    ),
    LossInfo(
        "bce",
        bce_loss,
        modules.BCELoss,
        "hard",
        "hard",
        "zero",
        "binary cross-entropy, every label by itself",
    ),
    LossInfo(
        "focal",
        focal_loss,
        modules.FocalLoss,
        "hard",
        "hard",
        "zero",
        "cross-entropy in which easy entries count less",
    ),
    LossInfo(
        "asymmetric",
        asymmetric_loss,
        modules.AsymmetricLoss,
        "hard",
        "hard",
        "zero",
        "focal with a stronger power on negatives and easy ones cut off",
    ),
    LossInfo(
        "dice1",
        dice_loss,
        modules.DiceLoss,
        "hard",
        "hard",
        "zero",
        "overlap of the label sets",
        MappingProxyType({"squared": False}),
    ),
    LossInfo(
        "dice2",
        dice_loss,
        modules.DiceLoss,
        "hard",
        "hard",
        "zero",
        "overlap of the label sets, squares in the denominator",
        MappingProxyType({"squared": True}),
    ),
    LossInfo(
        "lsep",
        lsep_loss,
        modules.LSEPLoss,
        None,
        None,
        "top-k",
        "pairwise over at most 1,000 sampled pairs a row",
    ),
    LossInfo(
        "two_way",
        two_way_loss,
        modules.TwoWayLoss,
        None,
        None,
        "tuned",
        "pairwise along labels and along the batch, with temperatures",
        row_separable=False,
    ),
)

LOSSES: Mapping[str, LossInfo] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def get_loss(name: str) -> LossInfo:
    """The loss called ``name``.

    Example:
        >>> get_loss("zlpr").decision
        'zero'
    """
    check_choice("get_loss", "name", name, tuple(LOSSES))
    return LOSSES[name]
