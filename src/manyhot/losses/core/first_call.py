"""A check of the label values on the first call of each loss, where that is cheap.

If labels have a floating-point type, the swapped call ``loss(labels, logits)``, which is the order of Keras, runs without an
error. To catch it, the first call of each loss with such labels on the CPU is checked; later calls are not, so training pays
nothing. On a GPU the check would wait for the device, and a graph that is being compiled has no values. There only
``requires_grad`` is checked (``check_not_swapped``), or everything with ``validate=True``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import check_label_values

_CHECKED: set[str] = set()


def check_first_call(who: str, labels: Tensor, where: Tensor | None = None) -> None:
    """Check that the labels of the first call of the loss ``who`` lie in [0, 1]."""
    if torch.compiler.is_compiling() or who in _CHECKED:
        return
    if type(labels) is not Tensor or not labels.is_floating_point() or labels.device.type != "cpu":
        return
    try:
        check_label_values(who, labels.detach(), where)
    except RuntimeError:  # torch.func wraps tensors whose values cannot be read
        return
    _CHECKED.add(who)
