"""Labelwise losses, a sum of one cost per label: host side."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from manyhot.engines import plain
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton import plans
from manyhot.engines.triton.calls import Call, Kernel, new_grad, new_rows, per_row, type_of
from manyhot.engines.triton.launch.gate import falls_back_to
from manyhot.engines.triton.launch.launcher import Launcher, Numbers, launcher
from manyhot.engines.triton.marks import mark
from manyhot.engines.triton.plans import blocks
from manyhot.engines.triton.reductions import total

# Powers up to this one are products.
MOST_FACTORS = 4


@falls_back_to(plain.labelwise)
def labelwise(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    kind: str,
    *,
    gamma_pos: float = 0.0,
    gamma_neg: float = 0.0,
    margin: float = 0.0,
    row_scale: Tensor | float = 1.0,
    whole: bool = False,
) -> tuple[Tensor, Tensor]:
    """``(values, grad)`` in one pass; see ``manyhot.engines.native.engine.labelwise``."""
    powers = float(gamma_pos), float(gamma_neg), float(margin)
    grad = new_grad(x)
    if whole and not isinstance(row_scale, Tensor) and isinstance(terms, DenseTerms) and _is_flat(x, terms):
        return total(_judge_flat(x, terms, kind, powers, row_scale, grad), row_scale), grad
    if whole and not isinstance(row_scale, Tensor) and isinstance(terms, SparseTerms) and _is_flat_lists(x, terms):
        return total(_judge_lists(x, terms, kind, powers, row_scale, grad), row_scale), grad
    values = _judge(x, terms, kind, powers, row_scale, grad)
    return total(values, row_scale) if whole else values, grad


def _is_flat(x: Tensor, terms: DenseTerms) -> bool:
    """Whether scores and labels are contiguous and need no row ends."""
    if terms.where is not None or x.numel() < plans.TILE:
        return False
    weighted = isinstance(terms.pos_weight, Tensor) or isinstance(terms.neg_weight, Tensor)
    return not weighted and terms.labels.shape == x.shape and x.is_contiguous() and terms.labels.is_contiguous()


def _judge_flat(
    x: Tensor, terms: DenseTerms, kind: str, powers: tuple[float, float, float], row_scale: float, grad: Tensor
) -> Tensor:
    """Values of full tiles and of the remainder, with the gradient written, so that every number of labels is equally fast."""
    size, tile = x.numel(), plans.TILE
    even = size // tile * tile
    values = x.new_empty(blocks(size, tile), dtype=torch.float32)
    for begin, end, shape in ((0, even, (-1, tile)), (even, size, (1, -1))):
        if begin < end:
            part, labels, out = (tensor.view(-1)[begin:end].view(shape) for tensor in (x, terms.labels, grad))
            _judge(part, terms._replace(labels=labels), kind, powers, row_scale, out, values[begin // tile :])
    return values


def _is_flat_lists(x: Tensor, terms: SparseTerms) -> bool:
    """Whether scores are contiguous and many, and all labels of a side count alike."""
    if terms.where is not None or terms.values is not None or terms.smoothing or not x.is_contiguous():
        return False
    weighted = isinstance(terms.pos_weight, Tensor) or isinstance(terms.neg_weight, Tensor)
    return not weighted and x.numel() >= plans.MARKED and x.data_ptr() % 16 == 0


def _judge_lists(
    x: Tensor, terms: SparseTerms, kind: str, powers: tuple[float, float, float], row_scale: float, grad: Tensor
) -> Tensor:
    """Values of the tiles of one line of scores with index lists, with the gradient written."""
    size, tile = x.numel(), plans.TILE
    values = x.new_empty(blocks(size, tile), dtype=torch.float32)
    bits = mark(x, terms.offsets, terms.indices, len(values) * tile)
    pos, neg = (1.0 if weight is None else float(weight) for weight in (terms.pos_weight, terms.neg_weight))
    numbers = (size, row_scale, pos, neg, *powers)
    about = (kind, powers[2] > 0, *whole_powers(powers), (pos, neg) != (1.0, 1.0), min(pos, neg) <= 0, size % tile == 0)
    types = (x.device, x.dtype, bits.dtype, values.dtype, grad.dtype)
    _lists_kernel(about, tile, types, numbers)(len(values), x, (bits, values, grad), numbers)
    return values


@functools.lru_cache(maxsize=1024)
def _lists_kernel(about: tuple[Any, ...], tile: int, types: tuple[Any, ...], numbers: Numbers) -> Launcher:
    """The kernel of ``_judge_lists``."""
    from manyhot.engines.triton.rows.flat_lists import flat_lists_kernel

    kind, *constants = about
    warps = max(1, tile // (512 if types[1].itemsize == 2 else 256))
    given = ("bce" if kind == "bce" else "focal", *constants, tile)
    registers = plans.LABEL_REGISTERS if kind != "bce" and types[1].itemsize == 2 else None
    return launcher(flat_lists_kernel, given, warps, types, numbers, registers)


def _judge(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    kind: str,
    powers: tuple[float, float, float],
    row_scale: Tensor | float,
    grad: Tensor,
    values: Tensor | None = None,
) -> Tensor:
    """The values of the rows, with the gradient written."""
    call = Call(x, terms, "labelwise")
    layout = call.layout
    chunks = layout.plan.chunks
    if values is None:
        values = new_rows(x) if chunks == 1 else x.new_empty((x.shape[0], chunks), dtype=torch.float32)
    scales, scale_number = per_row(row_scale)
    has_margin, factors = powers[2] > 0, whole_powers(powers)
    weights = tuple(_weight_kind(*each) for each in zip(layout.kinds[2:], call.numbers[:2], strict=True))

    def kernel(_: Any) -> Kernel:
        from manyhot.engines.triton.rows.labelwise import labelwise_kernel

        labels, has_where, *_ = layout.kinds
        constants = ("bce" if kind == "bce" else "focal", has_margin, *factors, labels, layout.hard, has_where, *weights)
        return labelwise_kernel, (
            *constants,
            scales is not None,
            layout.even,
            chunks,
            layout.plan.rows,
            layout.plan.block,
            layout.unit,
        )

    numbers = (scale_number, *call.numbers, *powers)
    call.start((kind, has_margin, factors, weights, type_of(scales)), kernel, (scales, values, grad), numbers)
    return values if chunks == 1 else values.sum(dim=1)


def whole_powers(powers: tuple[float, float, float]) -> tuple[int, int]:
    """The gammas as small whole numbers, which a kernel multiplies out; -1 for both where it does not."""
    pos, neg, margin = powers
    whole = all(power in range(MOST_FACTORS + 1) for power in (pos, neg)) and (margin > 0 or pos == neg > 0)
    return (int(pos), int(neg)) if whole else (-1, -1)


def _weight_kind(kind: str, number: float) -> str:
    """What a kernel knows of the weights of a side."""
    return kind if kind == "label" else ("one" if number == 1 else ("number" if number > 0 else "zero"))
