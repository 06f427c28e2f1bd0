"""The Triton engine: host side. Launches kernels as planned, keeps the contract of ``manyhot.engines.terms``.

Scores are ``x [R, L]`` in float32, bfloat16 or float16 on a CUDA device (or, with TRITON_INTERPRET=1 set before the first
import, in float32 on the CPU). Nothing waits for the device.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import Any

import torch
from torch import Tensor

from manyhot.engines import totals
from manyhot.engines.terms import INF, DenseTerms, LogSum, SparseTerms
from manyhot.engines.triton import plans as triton_plans
from manyhot.engines.triton.calls import Call, Kernel, as_matrix, blocks, new_grad, new_rows, per_row, type_of
from manyhot.engines.triton.launch.launcher import Launcher, Started, interpreted, launcher
from manyhot.engines.triton.plans import APART, adds_up, cut_labels, cut_pairs, cut_rows
from manyhot.engines.triton.ready import kind_of_call, remember, room_for, start_again

SCORES = (torch.float32, torch.bfloat16, torch.float16)
# Gradients so small that reading and writing them costs less than a launch that may find nothing to do.
SMALL = 1 << 21
SCALED = 8192
# Values of so many rows are summed by one program; of more by torch.
MOST_ROWS = 1 << 17


@functools.cache
def available() -> tuple[bool, str]:
    """Whether the engine is there, and why not."""
    if importlib.util.find_spec("triton") is None:
        return False, "triton is not installed."
    if not torch.cuda.is_available() and not interpreted():
        return False, "no CUDA device is visible to torch."
    return True, ""


def supports(x: Tensor, terms: DenseTerms | SparseTerms) -> bool:
    """Whether this engine can serve scores ``x`` with ``terms``."""
    cuda = x.is_cuda
    if x.dtype not in SCORES or cuda == interpreted():
        return False
    for field in terms:  # noqa: SIM110 - all() over a generator takes twice as long, and this is done for every call.
        if isinstance(field, Tensor) and field.is_cuda != cuda:
            return False
    return True


def sides(x: Tensor, terms: DenseTerms | SparseTerms) -> tuple[LogSum, LogSum]:
    """``terms.sides(x)``: ``(pos, neg)``, float32 ``[R]``."""
    call = Call(x, terms, "sides", cut_rows)
    partial = x.new_empty((x.shape[0], call.layout.plan.chunks, 4), dtype=torch.float32)
    call.launch("none", partial=partial)
    return _merge(partial[..., 0], partial[..., 1]), _merge(partial[..., 2], partial[..., 3])


def _merge(top: Tensor, total: Tensor) -> LogSum:
    """One log-sum a row from those of its chunks."""
    if top.shape[1] == 1:
        return _log_sum(top[:, 0], total[:, 0])
    highest = torch.where(total == 0, -INF, top).amax(dim=1)
    highest = torch.where(highest == -INF, 0.0, highest)
    apart = torch.where(top == highest.unsqueeze(1), 0.0, top - highest.unsqueeze(1))
    return _log_sum(highest, torch.where(total == 0, 0.0, total * torch.exp(apart)).sum(dim=1))


def _log_sum(top: Tensor, total: Tensor) -> LogSum:
    infinite = top == INF
    return LogSum(torch.where(infinite, 0.0, top), torch.where(infinite, INF, total.log()))


def gradient(
    x: Tensor, terms: DenseTerms | SparseTerms, pos: LogSum, neg: LogSum, grad_pos: Tensor, grad_neg: Tensor
) -> Tensor:
    """``terms.gradient(x, pos, neg, grad_pos, grad_neg)`` in the type of ``x``."""
    call = Call(x, terms, "gradient", cut_rows)
    parts = []
    for side in (pos, neg):
        infinite = side.rest == INF
        parts += [torch.where(infinite, INF, side.shift), torch.where(infinite, 1.0, side.rest.exp())]
    grad = new_grad(x)
    pulls = grad_pos.contiguous(), grad_neg.contiguous()
    call.launch("none", grad_pos=pulls[0], grad_neg=pulls[1], out_grad=grad, state=torch.stack(parts))
    return grad


def fused(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    form: str = "split",
    offset: Tensor | float = 0.0,
    row_scale: Tensor | float = 1.0,
    *,
    whole: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """``(values, grad, offset_grad)`` in one pass; see ``manyhot.engines.native.engine.fused``."""
    kind = kind_of_call(x, terms, form, offset, row_scale) if whole else None
    again = None if kind is None else start_again(kind[0], x, kind[1])
    return _fuse(x, terms, form, offset, row_scale, kind, whole=whole) if again is None else (*again, None)


def _fuse(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    form: str,
    offset: Tensor | float,
    row_scale: Tensor | float,
    kind: tuple[Any, list[Tensor]] | None,
    *,
    whole: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """``fused`` of the first call of a kind, and of those that have none."""
    wordwise = form == "split" and not isinstance(offset, Tensor) and offset == 0
    if not isinstance(row_scale, Tensor) and row_scale < 0:
        row_scale = x.new_full((x.shape[0],), row_scale, dtype=torch.float32)
    call = Call(x, terms, "fused", cut_rows, wordwise)
    num_rows, chunks, programs = x.shape[0], call.layout.plan.chunks, call.layout.programs
    slope = new_rows(x) if isinstance(offset, Tensor) else None
    partial = arrived = added = ended = None
    how = "none"
    if whole and adds_up(call.layout.plan, programs):
        ended = room_for(x)
        values, added = ended[APART : APART + programs // chunks].view(torch.float32), x.new_empty((), dtype=torch.float32)
        how = "mean" if not isinstance(row_scale, Tensor) and row_scale == 1.0 / num_rows else "sum"
    else:
        values = new_rows(x)
    grad = new_grad(x)
    if chunks > 1:
        partial = x.new_empty((num_rows, chunks, 4), dtype=torch.float32)
        arrived = x.new_zeros(num_rows * APART, dtype=torch.int32)
    started = call.launch(
        form,
        offset=offset,
        row_scale=row_scale,
        out_value=values,
        out_slope=slope,
        out_grad=grad,
        partial=partial,
        arrived=arrived,
        out_total=added,
        ended=ended,
        total=how,
    )
    if not whole:
        return values, grad, slope
    summing = None
    if added is None:
        added, summing = _sum(values, row_scale)
    if kind is not None and (how != "none" or summing is not None):
        remember(kind[0], call, kind[1], x, started, summing)
    return added, grad, slope


def can_fuse(x: Tensor) -> bool:
    """Whether ``fused`` can serve ``x``: programs that wait for each other need a device that runs them together."""
    return not (interpreted() and x.shape[1] > triton_plans.SEGMENT)


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
    values = _judge(x, terms, kind, powers, row_scale, grad)
    return total(values, row_scale) if whole else values, grad


def _is_flat(x: Tensor, terms: DenseTerms) -> bool:
    """Whether scores and labels are one line of numbers, to which it makes no difference where a row ends."""
    if terms.where is not None or x.numel() < triton_plans.TILE:
        return False
    weighted = isinstance(terms.pos_weight, Tensor) or isinstance(terms.neg_weight, Tensor)
    return not weighted and terms.labels.shape == x.shape and x.is_contiguous() and terms.labels.is_contiguous()


def _judge_flat(
    x: Tensor, terms: DenseTerms, kind: str, powers: tuple[float, float, float], row_scale: float, grad: Tensor
) -> Tensor:
    """Values of tiles, and of what is left, with the gradient written: so no label count is an odd one."""
    size, tile = x.numel(), triton_plans.TILE
    even = size // tile * tile
    values = x.new_empty(blocks(size, tile), dtype=torch.float32)
    for begin, end, shape in ((0, even, (-1, tile)), (even, size, (1, -1))):
        if begin < end:
            part, labels, out = (tensor.view(-1)[begin:end].view(shape) for tensor in (x, terms.labels, grad))
            _judge(part, terms._replace(labels=labels), kind, powers, row_scale, out, values[begin // tile :])
    return values


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
    call = Call(x, terms, "labelwise", cut_labels)
    layout = call.layout
    chunks = layout.plan.chunks
    if values is None:
        values = new_rows(x) if chunks == 1 else x.new_empty((x.shape[0], chunks), dtype=torch.float32)
    scales, scale_number = per_row(row_scale)
    has_margin = powers[2] > 0

    def kernel(_: Any) -> Kernel:
        from manyhot.engines.triton.rows.labelwise import labelwise_kernel

        labels, *others = layout.kinds
        constants = ("bce" if kind == "bce" else "focal", has_margin, labels, layout.hard, *others, scales is not None)
        return labelwise_kernel, (*constants, layout.even, chunks, layout.plan.rows, layout.plan.block, layout.unit)

    numbers = (scale_number, *call.numbers, *powers)
    call.start((kind, has_margin, type_of(scales)), kernel, (scales, values, grad), numbers)
    return values if chunks == 1 else values.sum(dim=1)


def rdrop(
    a: Tensor,
    b: Tensor,
    terms: DenseTerms | SparseTerms | None,
    where: Tensor | None = None,
    *,
    alpha: float = 1.0,
    link: float = 1.0,
    row_scale: Tensor | float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Two predictions ``[R, L]`` of the same rows at once: the mean of both losses, and how far they are apart.

    With ``p = sigma(link a)`` and ``q = sigma(link b)`` the values are ``(zlpr(a) + zlpr(b)) / 2 + alpha sum_i (p_i - q_i)
    link (a_i - b_i)``. Without ``terms`` the losses are left out, and ``where`` says which entries count; otherwise the
    terms do.

    Returns:
        ``(values, grad_a, grad_b)``: float32 ``[R]``, not scaled; ``row_scale d values / d a`` and ``/ d b`` in their type.
    """
    from manyhot.engines.triton.rows.rdrop import rdrop_kernel

    call = Call(a, DenseTerms(a, where) if terms is None else terms, "rdrop", cut_pairs)
    b, layout, losses = as_matrix(b, a), call.layout, terms is not None
    chunks = layout.plan.chunks
    merged = losses and chunks > 1
    waits = merged and layout.plan.kernel == "waiting"
    values = new_rows(a) if losses or chunks == 1 else a.new_empty((a.shape[0], chunks), dtype=torch.float32)
    partial = a.new_empty((9, a.shape[0], chunks), dtype=torch.float32) if merged else None
    arrived = a.new_zeros(a.shape[0] * APART, dtype=torch.int32) if waits else None
    grads = new_grad(a), new_grad(a)
    scales, scale_number = per_row(row_scale)
    numbers = (b.stride(0), scale_number, *call.numbers, float(alpha), float(link))
    labels, *kinds = layout.kinds
    which, unit = int(link) if link in (1, 2) else 0, math.gcd(layout.unit, b.stride(0))
    for stage in ("sums", "gradient") if merged and not waits else ("fused",):
        constants = (losses, labels, layout.lean, *kinds, scales is not None, which, stage, layout.even)
        cut = (chunks, 1 << (chunks - 1).bit_length(), layout.plan.segment, layout.plan.rows, layout.plan.block, unit)
        rows = (b, scales, partial, arrived, values, *grads)
        key = (losses, which, stage, type_of(scales), b.stride(0))
        call.start(key, lambda _: (rdrop_kernel, (*constants, *cut)), rows, numbers)  # noqa: B023
    return values if values.ndim == 1 else values.sum(dim=1), *grads


def total(values: Tensor, scale: Tensor | float) -> Tensor:
    """``sum scale values``; see ``manyhot.engines.totals.total``."""
    return _sum(values, scale)[0]


def _sum(values: Tensor, scale: Tensor | float) -> tuple[Tensor, Started | None]:
    """``sum scale values``, and what was started for it, where it was not torch's."""
    size = values.numel()
    if not 0 < size <= MOST_ROWS:
        return totals.total(values, scale), None
    scales, number = per_row(scale)
    start, numbers = _totals(size, number, type_of(scales), values.dtype, values.device)
    out = values.new_empty(())
    start(1, values, (scales, out), numbers)
    return out, (start, numbers)


@functools.lru_cache(maxsize=1024)
def _totals(size: int, number: float, scale_type: torch.dtype | None, dtype: torch.dtype, device: torch.device) -> Started:
    """What sums up ``size`` values, and with which numbers."""
    from manyhot.engines.triton.rows.totals import total_kernel

    mean, scaled = number == 1.0 / size, scale_type is not None
    block = next((block for block in (1024, 8192, 16384) if size <= block), 32768)
    numbers = (size, 1.0 if mean or scaled else number, float(size) if mean else 1.0)
    return launcher(total_kernel, (scaled, block), min(32, block // 256), (dtype, scale_type, device), numbers), numbers


def scale_(grad: Tensor, factor: Tensor) -> Tensor:
    """``grad *= factor`` in place, for a factor on the device that is nearly always 1."""
    size = grad.numel()
    if size <= SMALL:
        return grad.mul_(factor)
    _scale(size, grad.dtype, factor.dtype, grad.device)(min(blocks(size, SCALED), 256), grad, (factor,), (size,))
    return grad


@functools.lru_cache(maxsize=1024)
def _scale(size: int, dtype: torch.dtype, factor_type: torch.dtype, device: torch.device) -> Launcher:
    """What multiplies ``size`` numbers."""
    from manyhot.engines.triton.rows.totals import scale_kernel

    return launcher(scale_kernel, (SCALED,), 8, (dtype, factor_type, device), (size,))
