"""The plain forms of the functions that engines compute in one pass: values of the rows and their gradient, by autograd.

An engine that fails falls back to these; see ``manyhot.engines.plain``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines import plain
from manyhot.engines.plain import plain_form
from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms
from manyhot.engines.totals import total
from manyhot.losses.core.forms import FORMS, LABEL_TERMS
from manyhot.losses.core.labelwise import sum_over_labels
from manyhot.losses.core.layout import Rows


@plain_form("fused")
def fused(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    form: str = "split",
    offset: Tensor | float = 0.0,
    row_scale: Tensor | float = 1.0,
    *,
    whole: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """``(values, grad, offset_grad)``; see ``manyhot.engines.native.engine.fused``."""
    pos, neg = plain.sides(x, terms)
    with torch.enable_grad():
        inputs = [side.rest.detach().requires_grad_() for side in (pos, neg)]
        if isinstance(offset, Tensor):
            inputs.append(offset.detach().to(inputs[0].dtype).requires_grad_())
        sums = [LogSum(side.shift, rest) for side, rest in zip((pos, neg), inputs[:2], strict=True)]
        values = FORMS[form](sums[0], sums[1], inputs[2] if isinstance(offset, Tensor) else offset)
        by_pos, by_neg, *slope = torch.autograd.grad(values, inputs, torch.ones_like(values))
    values = values.detach()
    grad = plain.gradient(x, terms, pos, neg, by_pos * row_scale, by_neg * row_scale)
    return total(values, row_scale) if whole else values, grad, slope[0] if slope else None


@plain_form("labelwise")
def labelwise(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    kind: str,
    *,
    row_scale: Tensor | float = 1.0,
    whole: bool = False,
    **powers: Any,
) -> tuple[Tensor, Tensor]:
    """``(values, grad)``; see ``manyhot.engines.native.engine.labelwise``."""
    with torch.enable_grad():
        scores = x.detach().requires_grad_()
        values = sum_over_labels(Rows(scores, terms, scores.shape[:1]), LABEL_TERMS[kind](**powers))
        reduced = total(values, row_scale)
        (grad,) = torch.autograd.grad(reduced, scores)
    return reduced.detach() if whole else values.detach(), grad
