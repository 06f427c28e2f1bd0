"""A decision rule and a link folded into the weights of a linear head.

A server that applies a sigmoid and a threshold of 0.5 then makes the same decisions as the rule, without knowing about it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from manyhot._checks import check_choice, shape_text
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.links import LINKS
from manyhot.decisions.rule import DecisionRule

# The bias of a label that is never predicted (or always): a probability of 1e-35 or 1, with no overflow of exp in float32,
# which stock pipelines would warn about.
CERTAIN = 80.0


def fold_rule(weight: Tensor, bias: Tensor, rule: DecisionRule, link: str | Calibration | None = None) -> tuple[Tensor, Tensor]:
    """Fold a rule into weights: their scores are positive exactly for the labels that the rule predicts.

    ``W' = a W`` and ``b' = a (b - t)`` with the thresholds ``t`` and the slope ``a > 0`` of the link: ``sigmoid(s') > 0.5``
    is ``s > t``. The slope changes no decision. It keeps the spread of the probabilities; the sigmoids equal the probabilities
    where the threshold is at probability 0.5.

    Args:
        weight: ``[L, H]``, as in ``torch.nn.Linear``.
        bias: ``[L]``.
        rule: a rule of thresholds; limits on the number of labels cannot be folded.
        link: the link or calibration whose slope is used; None uses slope 1.

    Returns:
        ``(W' [L, H], b' [L])``, in the types of ``weight`` and ``bias``; the arithmetic is float64.

    Example:
        >>> weight, bias = fold_rule(torch.eye(2), torch.zeros(2), DecisionRule(threshold=(0.5, -1.0)))
        >>> bias.tolist()
        [-0.5, 1.0]
    """
    _check_head("fold_rule", weight, bias)
    check_foldable("fold_rule", rule, len(bias))
    slope, _ = affine_link("fold_rule", link, len(bias)) if _has_slope(link) else (torch.ones(len(bias)).double(), None)
    given = rule.threshold if isinstance(rule.threshold, tuple) else (rule.threshold,) * len(bias)
    if len(given) != len(bias):
        raise ValueError(f"fold_rule: `rule` must have one threshold per label, {len(bias)}; got {len(given)}.")
    cuts = torch.tensor(given, dtype=torch.float64, device=bias.device)
    sure = cuts.isinf()
    folded = slope[:, None].to(weight.device) * weight.double()
    moved = slope.to(bias.device) * (bias.double() - cuts.masked_fill(sure, 0))
    folded = folded.masked_fill(sure[:, None].to(folded.device), 0)
    moved = torch.where(sure, -CERTAIN * cuts.sign(), moved)
    return folded.to(weight.dtype), moved.to(bias.dtype)


def fold_link(weight: Tensor, bias: Tensor, link: str | Calibration) -> tuple[Tensor, Tensor]:
    """Fold a link or calibration into weights, so that sigmoids are its probabilities: ``W' = a W``, ``b' = a b + c``.

    Args:
        weight: ``[L, H]``.
        bias: ``[L]``.
        link: ``"hard"``, ``"soft"`` or a calibration that is not isotonic; ``"softmax"`` cannot be folded.

    Example:
        >>> fold_link(torch.ones(1, 2), torch.tensor([1.0]), "soft")
        (tensor([[2., 2.]]), tensor([2.]))
    """
    _check_head("fold_link", weight, bias)
    slope, shift = affine_link("fold_link", link, len(bias))
    folded = slope[:, None].to(weight.device) * weight.double()
    moved = slope.to(bias.device) * bias.double() + shift.to(bias.device)
    return folded.to(weight.dtype), moved.to(bias.dtype)


def affine_link(who: str, link: str | Calibration | None, num_labels: int) -> tuple[Tensor, Tensor]:
    """``(slope, intercept)``, float64 ``[L]``, of a probability ``sigmoid(slope s + intercept)``.

    Raises:
        ValueError: if the link does not have that form.
    """
    if isinstance(link, Calibration):
        if link.kind == "isotonic":
            raise ValueError(f"{who}: an isotonic calibration is not a sigmoid. Fit another: manyhot tune --calibrate platt")
        slope, shift = (part.expand(num_labels).clone() for part in (link.slope, link.intercept))
        if bool((slope <= 0).any()):
            raise ValueError(f"{who}: the slope of the calibration must be positive; got {float(slope.min()):g}.")
        return slope, shift
    check_choice(who, "link", link, LINKS)
    if link == "softmax":
        raise ValueError(
            f"{who}: the softmax of a row is not a sigmoid of each score. Fit a calibration: manyhot tune --calibrate platt"
        )
    return torch.full((num_labels,), 2.0 if link == "soft" else 1.0).double(), torch.zeros(num_labels).double()


def check_foldable(who: str, rule: DecisionRule, num_labels: int) -> None:
    """Check that the rule consists of thresholds only; a ``max_labels`` that no row can exceed is accepted."""
    most = rule.max_labels if rule.max_labels is not None and rule.max_labels < num_labels else None
    limits = {"top_k": rule.top_k, "min_labels": rule.min_labels or None, "max_labels": most}
    given = [f"{name}={value}" for name, value in limits.items() if value is not None]
    given += ["softmax"] if rule.softmax else []
    given += ["row_f1"] if rule.row_f1 is not None else []
    if rule.sets is not None:
        raise ValueError(
            f"{who}: a rule for whole label sets cannot be folded into a head: whether a label is predicted depends on the"
            " others. Export to ONNX, which holds the whole rule, or tune thresholds: manyhot tune --metric micro-F1"
        )
    if given:
        raise ValueError(
            f"{who}: a rule that looks at the whole row ({', '.join(given)}) cannot be folded into a head: whether a label"
            " is predicted depends on the others. Export to ONNX, which holds the whole rule, or tune thresholds alone."
        )


def _has_slope(link: str | Calibration | None) -> bool:
    return link in ("hard", "soft") or (isinstance(link, Calibration) and link.kind != "isotonic")


def _check_head(who: str, weight: Tensor, bias: Tensor) -> None:
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ValueError(
            f"{who}: `weight` must be [L, H] and `bias` [L]; got {shape_text(weight.shape)} and {shape_text(bias.shape)}."
        )
    if not (weight.is_floating_point() and bias.is_floating_point()):
        raise TypeError(f"{who}: `weight` and `bias` must be floating-point; got {weight.dtype} and {bias.dtype}.")
    if math.prod(weight.shape) and not bool(weight.isfinite().all()):
        raise ValueError(f"{who}: `weight` must be finite.")
