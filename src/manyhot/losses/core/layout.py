"""Checks a loss's arguments and reshapes them for the engines: the label axes come last, flattened into one."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot._checks import (
    check_dense_labels,
    check_device,
    check_label_values,
    check_logits,
    check_masked_scores,
    check_not_swapped,
    check_unit,
    check_weight,
    check_where,
    shape_text,
)
from manyhot.engines.terms import DenseTerms, SparseTerms, Weight
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.first_call import check_first_call
from manyhot.losses.core.lazy import Dim

_PLAIN_TYPES = (Tensor, torch.nn.Parameter)
_SCORES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
Labels = Tensor | SparseLabels


class Rows(NamedTuple):
    """A problem in the layout of the engines: logits ``[R, L]``, their terms, and the shape ``[...]`` of the R rows."""

    logits: Tensor
    terms: DenseTerms | SparseTerms
    shape: torch.Size


def arrange(
    who: str,
    logits: Any,
    labels: Any,
    *,
    where: Tensor | None = None,
    pos_weight: Weight = None,
    neg_weight: Weight = None,
    smoothing: float = 0.0,
    dim: Dim = -1,
    validate: bool = False,
) -> Rows:
    """Check the arguments that all losses share, move the label axes to the end and flatten them into one."""
    if (
        type(labels) is Tensor
        and (where is None and pos_weight is None and neg_weight is None)
        and (type(smoothing) is float and smoothing == 0)
        and (dim == -1 and type(dim) is int)
        and not validate
        and _is_plain(logits, labels)
    ):
        check_first_call(who, labels)
        return Rows(logits, DenseTerms(labels), logits.shape[:1])
    check_logits(who, logits)
    check_unit(who, "smoothing", smoothing)
    if isinstance(labels, Tensor):
        check_not_swapped(who, logits, labels)
    if validate and smoothing and where is None:
        check_masked_scores(who, logits)
    terms = check_terms(
        who,
        logits.shape,
        labels,
        where=where,
        pos_weight=pos_weight,
        neg_weight=neg_weight,
        smoothing=float(smoothing),
        dim=dim,
        validate=validate,
        device=logits.device,
    )
    moved = _to_end(logits, _axes(who, dim, logits.ndim))
    return Rows(_as_matrix(moved), terms, moved.shape[:-1])


def _is_plain(logits: Any, labels: Tensor) -> bool:
    """Whether this is the usual call, two matrices of the same shape, which needs no other checks."""
    return (
        type(logits) in _PLAIN_TYPES
        and logits.dtype in _SCORES
        and logits.ndim == 2
        and logits.shape == labels.shape
        and ((logits.is_cpu and labels.is_cpu) or logits.device == labels.device)
        and not (labels.requires_grad or labels.dtype.is_complex)
    )


def check_terms(
    who: str,
    shape: torch.Size,
    labels: Any,
    *,
    where: Tensor | None,
    pos_weight: Weight,
    neg_weight: Weight,
    smoothing: float,
    dim: Dim,
    validate: bool,
    device: torch.device | None = None,
) -> DenseTerms | SparseTerms:
    """Check labels, weights and ``where`` for scores of ``shape`` on ``device`` (None: any), and return them as terms."""
    dims = _axes(who, dim, len(shape))
    if isinstance(labels, SparseLabels):
        _check_sparse(who, labels, shape, dims)
    else:
        check_dense_labels(who, shape, labels)
    _check_device(who, "labels", labels, device)
    if where is not None:
        check_where(who, where, shape)
        _check_device(who, "where", where, device)
        where = _to_rows(where.expand(shape), dims)
    sizes = [shape[axis] for axis in dims]
    weights: list[Weight] = []
    for name, weight in (("pos_weight", pos_weight), ("neg_weight", neg_weight)):
        if weight is not None:
            check_weight(who, name, weight, sizes, validate=validate)
        if isinstance(weight, Tensor):
            _check_device(who, name, weight, device)
            weight = (weight.detach() if device is None else weight.detach().to(device)).expand(sizes).reshape(-1)
        elif weight is not None:
            weight = float(weight)
        weights.append(weight)
    if isinstance(labels, SparseLabels):
        return SparseTerms(labels.indices, labels.offsets, labels.values, where, weights[0], weights[1], smoothing)
    flat = _to_rows(labels.detach() if labels.requires_grad else labels, dims)
    if validate:
        check_label_values(who, flat, where)
    else:
        check_first_call(who, flat, where)
    return DenseTerms(flat, where, weights[0], weights[1], smoothing)


def _check_device(who: str, name: str, part: Any, device: torch.device | None) -> None:
    if device is not None:
        check_device(who, name, part, device)


def _check_sparse(who: str, labels: SparseLabels, shape: torch.Size, dims: list[int]) -> None:
    if dims != [len(shape) - 1]:
        raise ValueError(f"{who}: SparseLabels run along the last axis; got dim {dims}. Pass dense labels, or move axes.")
    rows = shape[:-1].numel()
    if shape[-1] != labels.num_labels or rows != len(labels):
        raise ValueError(
            f"{who}: `labels` must fit `logits`, {rows} rows of {shape[-1]} labels;"
            f" got {len(labels)} rows of {labels.num_labels}. Encode with the same label names."
        )


def _axes(who: str, dim: Dim, ndim: int) -> list[int]:
    """The axes as sorted numbers >= 0."""
    given = [dim] if isinstance(dim, int) else list(dim)
    axes = sorted(axis + ndim if axis < 0 else axis for axis in given)
    if not axes or len(set(axes)) != len(axes) or axes[0] < 0 or axes[-1] >= ndim:
        raise ValueError(f"{who}: `dim` must name axes of a tensor with {ndim} axes, each once; got {shape_text(given)}.")
    return axes


def _to_end(x: Tensor, dims: list[int]) -> Tensor:
    """The axes ``dims`` moved to the end and flattened into one."""
    if dims == [x.ndim - 1]:
        return x
    return x.movedim(dims, list(range(x.ndim - len(dims), x.ndim))).flatten(-len(dims))


def _to_rows(x: Tensor, dims: list[int]) -> Tensor:
    """``[R, L]``: the axes ``dims`` flattened into the last one, the others into the first."""
    return _as_matrix(_to_end(x, dims))


def _as_matrix(x: Tensor) -> Tensor:
    return x if x.ndim == 2 else x.reshape(x.shape[:-1].numel(), x.shape[-1])
