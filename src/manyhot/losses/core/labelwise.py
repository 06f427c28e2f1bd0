"""Sums over the labels of a row for losses that are not functions of the two sides (BCE, focal, dice, softmax).

A term is a function ``(x, pos_weight, neg_weight)`` of scores and the weights ``p t`` and ``n (1 - t)``. If an entry does not
count, its score and both weights are 0. Index lists are read as a background plus the listed entries, so that no dense label
tensor is built.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot._checks import check_choice
from manyhot.engines.terms import DenseTerms, accumulation_dtype
from manyhot.losses.core.forms import Term as Term
from manyhot.losses.core.layout import Rows

LABEL_REDUCTIONS = ("mean", "sum")


def weigh(weight: Tensor, value: Tensor) -> Tensor:
    """``weight * value``, and 0 where the weight is 0, even if the value is infinite."""
    return torch.where(weight > 0, weight * value, 0.0)


def sum_over_labels(rows: Rows, term: Term) -> Tensor:
    """``sum_i term(x_i, p_i t_i, n_i (1 - t_i))`` of each row, ``[...]``."""
    terms = rows.terms
    x = rows.logits.to(accumulation_dtype(rows.logits.dtype))
    if isinstance(terms, DenseTerms):
        return _at(term, x, *terms.weights(x.dtype)).sum(dim=-1).reshape(rows.shape)
    pos_rest, neg_rest = terms.background(x)
    pos_rest = x.new_zeros(()) if pos_rest is None else pos_rest
    if terms.where is not None:
        pos_rest, neg_rest = torch.where(terms.where, pos_rest, 0.0), torch.where(terms.where, neg_rest, 0.0)
    place = (terms.rows, terms.indices)
    values = _at(term, x, pos_rest, neg_rest)
    values = values.index_put(place, _at(term, x[place], *terms.listed_weights(x.dtype)))
    return values.sum(dim=-1).reshape(rows.shape)


def count_labels(rows: Rows) -> Tensor | int:
    """How many entries of each row count: one number, or ``[...]`` if there is a ``where``."""
    if rows.terms.where is None:
        return rows.logits.shape[-1]
    return rows.terms.where.sum(dim=-1).reshape(rows.shape)


def over_labels(who: str, rows: Rows, term: Term, label_reduction: str) -> Tensor:
    """The sum of the terms of each row, or their mean over the labels that count (0 if none does)."""
    check_choice(who, "label_reduction", label_reduction, LABEL_REDUCTIONS)
    total = sum_over_labels(rows, term)
    if label_reduction == "sum":
        return total
    count = count_labels(rows)
    return total / (count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1))


def _at(term: Term, x: Tensor, pos_weight: Tensor, neg_weight: Tensor) -> Tensor:
    counts = (pos_weight > 0) | (neg_weight > 0)
    return term(torch.where(counts, x, 0.0), pos_weight, neg_weight)
