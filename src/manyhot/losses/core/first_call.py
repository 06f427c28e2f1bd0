"""A look at the label values on the first call of each loss, where looking is cheap.

With labels of a floating-point type ``loss(labels, logits)`` is a number like any other, and people who come from Keras write
it. The first call of a loss with such labels on the CPU is checked for them; later calls are not, so training pays nothing.
On a GPU a look would wait for the device, and in a graph that is being compiled there are no values: there the flags tell
(``check_not_swapped``), or ``validate=True``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import check_label_values

_CHECKED: set[str] = set()


def check_first_call(who: str, labels: Tensor, where: Tensor | None = None) -> None:
    """The labels of the first call of the loss ``who`` lie in [0, 1]."""
    if torch.compiler.is_compiling() or who in _CHECKED:
        return
    if type(labels) is not Tensor or not labels.is_floating_point() or labels.device.type != "cpu":
        return
    try:
        check_label_values(who, labels.detach(), where)
    except RuntimeError:  # torch.func wraps tensors whose values cannot be read
        return
    _CHECKED.add(who)
