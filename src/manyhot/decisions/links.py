"""Links from logits to probabilities. The right link depends on the loss and on the kind of labels it was trained on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_broadcast, check_choice, check_logits, check_number
from manyhot.decisions.calibrate import Calibration
from manyhot.engines.terms import accumulation_dtype
from manyhot.losses.core.lazy import is_lazy
from manyhot.losses.core.logsumexp import Scores

LINKS = ("hard", "soft", "softmax")
# Descriptions of the links.
LINK_WORDS = {"hard": "sigmoid of the score", "soft": "sigmoid of twice the score", "softmax": "softmax"}


def probabilities(logits: Scores, link: str | Calibration = "hard", *, threshold: Tensor | float | None = None) -> Tensor:
    """The probability of each label.

    ``"hard"`` is ``sigma(s)``, for scores trained on hard labels: exact for ZLPR with one label, which is the logistic loss,
    and close with more. ``"soft"`` is ``sigma(2 s)``, for scores trained on soft labels, which it recovers exactly.
    ``"softmax"`` is for losses with one label per row. A ``Calibration`` is fitted on held-out data and needs no assumption.
    The catalog names the link of each loss (``get_loss(name).link`` and ``.soft_link``).

    With a given or learned threshold ``s0`` of TLPR, ``s - s0`` replaces ``s``: a label has a probability above one half
    exactly if ``s > s0`` predicts it.

    Args:
        logits: ``[..., L]``, or lazy scores, which are made dense.
        link: ``"hard"``, ``"soft"``, ``"softmax"`` or a ``Calibration``, which must have been fitted on ``s - s0`` if a
            threshold is given.
        threshold: s0, a number or a tensor broadcastable to the rows ``[...]``; None is 0. Not for ``"softmax"``, which a
            shift of all scores of a row does not change.

    Returns:
        ``[..., L]`` in [0, 1], float32 (float64 for float64 logits). NaN stays NaN.

    Example:
        >>> logits = torch.tensor([[0.0, 1.0, -1.0]])
        >>> probabilities(logits)
        tensor([[0.5000, 0.7311, 0.2689]])
        >>> probabilities(logits, "soft")
        tensor([[0.5000, 0.8808, 0.1192]])
        >>> probabilities(logits, threshold=torch.tensor([1.0]))
        tensor([[0.2689, 0.5000, 0.1192]])
    """
    scores: Any = logits.dense() if is_lazy(logits) else logits
    check_logits("probabilities", scores)
    if threshold is not None:
        scores = _above(scores, threshold, link)
    if isinstance(link, Calibration):
        return link(scores)
    if link is None:
        raise ValueError("probabilities: `link` must be given; got None: this loss only ranks. Use manyhot.fit_calibration.")
    check_choice("probabilities", "link", link, LINKS)
    scores = scores.to(accumulation_dtype(scores.dtype))
    if link == "softmax":
        return torch.softmax(scores, dim=-1)
    return torch.sigmoid(2 * scores if link == "soft" else scores)


def _above(scores: Tensor, threshold: Any, link: Any) -> Tensor:
    """``s - s0``, in the type that probabilities are computed in."""
    if link == "softmax":
        raise ValueError("probabilities: `threshold` must be left out for the link 'softmax': it would change nothing.")
    scores = scores.to(accumulation_dtype(scores.dtype))
    if isinstance(threshold, Tensor):
        check_broadcast("probabilities", "threshold", threshold, scores.shape[:-1], "a number or one value per row")
        return scores - threshold.to(scores).unsqueeze(-1)
    check_number("probabilities", "threshold", threshold, or_tensor=True)
    return scores - float(threshold)
