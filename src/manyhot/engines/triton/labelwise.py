"""Labelwise losses, a sum of one cost per label: host side."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from manyhot.engines import plain
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton import plans
from manyhot.engines.triton.bitmask import to_bitmask
from manyhot.engines.triton.calls import BYTES, Call, Kernel, new_grad, new_rows, per_row, resident_programs, type_of
from manyhot.engines.triton.launch.gate import falls_back_to
from manyhot.engines.triton.launch.launcher import Launcher, Numbers, launcher
from manyhot.engines.triton.plans import COUNTER_STRIDE, blocks
from manyhot.engines.triton.reductions import total
from manyhot.engines.triton.replay import workspace_for

# Powers up to this one are computed by multiplication.
MOST_FACTORS = 4
# The smallest margin with which half types lose less than their costs' last digit; see ``rows.costs.lean_margin_cost``.
LEAST_MARGIN = 2.0**-8


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
    if whole and not isinstance(row_scale, Tensor):
        if _is_flat(x, terms):
            return _flat_loss(x, terms, kind, powers, row_scale, grad), grad
        if isinstance(terms, DenseTerms) and _can_be_flattened(x, terms):
            return total(_tile_losses(x, terms, kind, powers, row_scale, grad), row_scale), grad
    values = _row_losses(x, terms, kind, powers, row_scale, grad)
    return total(values, row_scale) if whole else values, grad


def _is_flat(x: Tensor, terms: DenseTerms | SparseTerms) -> bool:
    """Whether the flat kernel can serve the call: contiguous scores, no mask, no weight per label, and labels of one byte each
    or, for large inputs, index lists."""
    weighted = isinstance(terms.pos_weight, Tensor) or isinstance(terms.neg_weight, Tensor)
    if weighted or terms.where is not None or terms.smoothing or not x.is_contiguous() or x.data_ptr() % 16:
        return False
    if isinstance(terms, SparseTerms):
        return terms.values is None and x.numel() >= plans.BITMASK_FROM
    labels = terms.labels
    same = labels.dtype in BYTES and labels.shape == x.shape and labels.is_contiguous()
    return same and labels.data_ptr() % 16 == 0 and x.numel() >= plans.TILE


def _flat_loss(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    kind: str,
    powers: tuple[float, float, float],
    row_scale: float,
    grad: Tensor,
) -> Tensor:
    """The sum of all costs times ``row_scale``; writes the gradient."""
    size, lists = x.numel(), isinstance(terms, SparseTerms)
    cut, programs = plans.cut_flat(resident_programs(x), size, score_bytes=x.element_size(), form=_form(powers, lists))
    tile = cut.block
    labels = (
        to_bitmask(x, terms.offsets, terms.indices, blocks(size, tile) * tile)
        if isinstance(terms, SparseTerms)
        else terms.labels
    )
    pos, neg = (1.0 if weight is None else float(weight) for weight in (terms.pos_weight, terms.neg_weight))
    weights = (pos, neg) != (1.0, 1.0), min(pos, neg) <= 0
    lean, groups = x.element_size() == 2 and _is_lean(powers, row_scale * neg), tile * x.element_size() // (512 * cut.warps)
    costs = (kind, powers[2] > 0, *whole_powers(powers))
    about = (*costs, lists, *weights, size % tile == 0, tile, lean, max(1, groups))
    ended = workspace_for(x, programs)
    values, out = ended[COUNTER_STRIDE:].view(torch.float32), x.new_empty((), dtype=torch.float32)
    numbers = (size, row_scale, pos, neg, *powers)
    others = (labels, values, grad, out, ended)
    types = (x.device, x.dtype, *map(type_of, others))
    _flat(about, cut.warps, cut.registers, types, numbers)(programs, x, others, numbers)
    return out


@functools.lru_cache(maxsize=1024)
def _flat(about: tuple[Any, ...], warps: int, registers: int | None, types: tuple[Any, ...], numbers: Numbers) -> Launcher:
    """The kernel of ``_flat_loss``."""
    from manyhot.engines.triton.rows.flat import flat_kernel

    kind, *constants = about
    given = ("bce" if kind == "bce" else "focal", *constants)
    return launcher(flat_kernel, given, warps, types, numbers, registers)


def _can_be_flattened(x: Tensor, terms: DenseTerms) -> bool:
    """Whether row boundaries can be ignored: scores and labels are contiguous, without a mask or weights per label."""
    if terms.where is not None or x.numel() < plans.TILE:
        return False
    weighted = isinstance(terms.pos_weight, Tensor) or isinstance(terms.neg_weight, Tensor)
    return not weighted and terms.labels.shape == x.shape and x.is_contiguous() and terms.labels.is_contiguous()


def _tile_losses(
    x: Tensor, terms: DenseTerms, kind: str, powers: tuple[float, float, float], row_scale: float, grad: Tensor
) -> Tensor:
    """Values of full tiles and of the remainder of the flattened scores; writes the gradient."""
    size, tile = x.numel(), plans.TILE
    even = size // tile * tile
    values = x.new_empty(blocks(size, tile), dtype=torch.float32)
    for begin, end, shape in ((0, even, (-1, tile)), (even, size, (1, -1))):
        if begin < end:
            part, labels, out = (tensor.view(-1)[begin:end].view(shape) for tensor in (x, terms.labels, grad))
            _row_losses(part, terms._replace(labels=labels), kind, powers, row_scale, out, values[begin // tile :])
    return values


def _row_losses(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    kind: str,
    powers: tuple[float, float, float],
    row_scale: Tensor | float,
    grad: Tensor,
    values: Tensor | None = None,
) -> Tensor:
    """The values of the rows; writes the gradient."""
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
    """The gammas as small whole numbers, whose powers a kernel multiplies out; -1 for both if it cannot."""
    pos, neg, margin = powers
    whole = all(power in range(MOST_FACTORS + 1) for power in (pos, neg)) and (margin > 0 or pos == neg > 0)
    return (int(pos), int(neg)) if whole else (-1, -1)


def _form(powers: tuple[float, float, float], lists: bool) -> str:
    """Which costs the flat kernel computes; see ``plans.FLAT_TILES``."""
    pos, _ = whole_powers(powers)
    if pos < 0 or powers[2] <= 0:
        return "" if pos < 0 else "even"
    return "apart lists" if lists else "apart"


def _is_lean(powers: tuple[float, float, float], scale: float) -> bool:
    """Whether ``lean_margin_cost`` serves. It multiplies powers out, loses digits of tiny margins and divides by the scale."""
    return whole_powers(powers)[0] >= 0 and powers[2] >= LEAST_MARGIN and 1e-18 <= scale <= 1e18


def _weight_kind(kind: str, number: float) -> str:
    """The kind of a side's weights, as the kernels take it."""
    return kind if kind == "label" else ("one" if number == 1 else ("number" if number > 0 else "zero"))
