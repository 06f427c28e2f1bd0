"""The Triton engine: host side. Plans tiles, launches kernels, keeps the contract of ``manyhot.kernels.terms``.

Scores are ``x [R, L]`` in float32, bfloat16 or float16 on a CUDA device (or, with TRITON_INTERPRET=1 set before the first
import, in float32 on the CPU). Nothing waits for the device.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.kernels import totals
from manyhot.kernels.terms import INF, DenseTerms, LogSum, SparseTerms
from manyhot.kernels.triton_calls import Call, Kernel, as_matrix, blocks, new_grad, new_rows, per_row, type_of
from manyhot.kernels.triton_launch import Launcher, Numbers, interpreted, launcher

SCORES = (torch.float32, torch.bfloat16, torch.float16)
CHUNK = 8192
SEGMENT = 32768
SEGMENTS = 128
PAIR = 4096
# Warps and registers of whole rows by kind of labels, bytes of a score and labels of a tile, where a warp for 1,024 labels is
# not the fastest. Index lists take two reads, one after the other: with fewer registers more rows wait for theirs at once.
WHOLE: dict[tuple[str, int, int], tuple[int, int | None]] = {
    ("lists", 2, 512): (1, 64),
    ("lists", 2, 1024): (1, 64),
    ("lists", 4, 1024): (2, 64),
    ("lists", 4, 8192): (16, 48),
    ("lists", 2, 16384): (16, 64),
    ("soft", 2, 16384): (16, 64),
    ("hard", 2, 16384): (8, None),
}
BLOCK = 4096
# Gradients so small that reading and writing them costs less than a launch that may find nothing to do.
SMALL = 1 << 20
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


class Plan(NamedTuple):
    """How rows are cut: by which kernel, rows a tile, labels a tile, chunks a row, labels a chunk, warps a program, and how
    many registers a thread may use where the assembler would take too many. A chunk may be a tile and a smaller one."""

    kernel: str
    rows: int
    block: int
    chunks: int
    segment: int
    warps: int
    registers: int | None = None


@functools.cache
def _multiprocessors(index: int) -> int:
    count: int = torch.cuda.get_device_properties(index).multi_processor_count
    return count


def plan(
    num_rows: int,
    num_labels: int,
    *,
    lean: bool,
    stage: str,
    score_bytes: int = 4,
    lists: bool = False,
    packed: str | None = None,
    together: int | None = None,
) -> Plan:
    """Whole rows to 8,192 labels, several a tile where they are short. Beyond, for a loss with its gradient: chunks that wait
    for each other, or segments that are read twice. Rows that can be read as words are planned by themselves; ``packed``
    says of which kind their labels are.

    Which of chunks and segments is faster was measured: half types spend their time on arithmetic, and chunks that wait do
    less of it at once. ``together`` is how many programs run at once at least; None is the interpreter, where no program can
    wait for another.
    """
    found = _packed_plan(num_rows, num_labels, score_bytes, packed, together) if packed else None
    if found is not None:
        return found
    block = max(16, 1 << max(num_labels - 1, 0).bit_length())
    fast = lean and stage == "fused"
    if block <= CHUNK:
        rows = max(1, min((2048 if fast and not lists else 1024) // block, 1 << max(num_rows - 1, 0).bit_length()))
        return Plan("rows", rows, block, 1, block, min(16, max(1, rows * block // (1024 if fast else 512))))
    chunks = -(-num_labels // CHUNK)
    if stage != "fused":
        return Plan("rows", 1, CHUNK, chunks, CHUNK, 16)
    if fast and lists and block <= 2 * CHUNK:
        return Plan("rows", 1, block, 1, block, max(1, block // 2048))
    pieces = -(-num_labels // BLOCK)
    if fast and not lists and score_bytes == 4 and together is not None and pieces <= min(SEGMENTS, together):
        return Plan("rows", 1, BLOCK, pieces, BLOCK, 4)
    most = SEGMENTS if together is None else min(SEGMENTS, together)
    segment = max(SEGMENT, 1 << (-(-num_labels // most) - 1).bit_length())
    large = fast and not lists and score_bytes == 4 and segment == SEGMENT
    block, warps = (2 * BLOCK, 16) if large else (BLOCK if lean else BLOCK // 2, 8)
    return Plan("segments", 1, block, -(-num_labels // segment), segment, warps)


def _packed_plan(num_rows: int, num_labels: int, score_bytes: int, kind: str, together: int | None) -> Plan | None:
    """Whole rows as long as a program can hold them, then chunks that wait for each other; all sizes as measured.

    A row that is a little longer than a power of two is that and a smaller tile. Of short rows every program has several, but
    one index list only.
    """
    block, whole = max(16, 1 << (num_labels - 1).bit_length()), 1 << (num_labels.bit_length() - 1)
    tail = max(16, 1 << max(num_labels - whole - 1, 0).bit_length())
    if block <= 256:
        rows = min(1024 // block, 1 << max(num_rows - 1, 0).bit_length())
        return None if kind == "lists" else Plan("packed", rows, block, 1, block, max(1, rows * block // 512))
    few = together is not None and num_rows < together
    most = 4096 if few else (16384 if score_bytes == 2 and kind != "lists" else 8192)
    if whole < num_labels and tail < whole <= most:
        warps = max(1, whole * score_bytes // 2048)
        return Plan("packed", 1, whole, 1, whole + tail, warps, 64 if kind != "soft" or warps == 16 else None)
    if block <= 8192 or (block == 16384 and score_bytes == 2 and not few):
        return Plan("packed", 1, block, 1, block, *WHOLE.get((kind, score_bytes, block), (max(1, block // 1024), None)))
    if block == (32768 if score_bytes == 2 else 16384) and kind != "lists" and not few:
        return Plan("packed", 1, block, 1, block, block // 1024)
    chunk, registers = (8192, None if kind == "soft" else 96) if score_bytes == 2 else (4096, None)
    pieces = -(-num_labels // chunk)
    if together is None or pieces > min(SEGMENTS, together):
        return None
    return Plan("packed", 1, chunk, pieces, chunk, 4, registers)


def _cut(device: torch.device, num_rows: int, num_labels: int, **about: Any) -> tuple[Plan, int]:
    """The plan for a device, and how many programs carry it out."""
    together = _multiprocessors(device.index) if device.type == "cuda" else None
    cut = plan(num_rows, num_labels, together=together, **about)
    return cut, blocks(num_rows, cut.rows) * cut.chunks


def _cut_pair(device: torch.device, num_rows: int, num_labels: int, *, lean: bool, **_: Any) -> tuple[Plan, int]:
    """The same for two predictions at once: whole rows to ``PAIR`` labels, chunks beyond.

    A thread has 8 labels of either prediction, half as many as for one. Of whole rows two programs should fit on a
    multiprocessor, so that one reads while the other computes; that is worth a few registers that are kept in memory.
    """
    block = max(16, 1 << max(num_labels - 1, 0).bit_length())
    if block <= PAIR:
        rows = max(1, min(1024 // block, 1 << max(num_rows - 1, 0).bit_length()))
        warps = max(1, rows * block // 256)
        cut = Plan("rows", rows, block, 1, block, warps, 64 if lean and warps == 16 else None)
    else:
        chunk = max(PAIR // 2, min(2 * PAIR, block // 256))
        cut = Plan("rows", 1, chunk, blocks(num_labels, chunk), chunk, min(16, max(1, chunk // 256)))
    return cut, blocks(num_rows, cut.rows) * cut.chunks


def sides(x: Tensor, terms: DenseTerms | SparseTerms) -> tuple[LogSum, LogSum]:
    """``terms.sides(x)``: ``(pos, neg)``, float32 ``[R]``."""
    call = Call(x, terms, "sides", _cut)
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
    call = Call(x, terms, "gradient", _cut)
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
) -> tuple[Tensor, Tensor, Tensor]:
    """``(values, grad, offset_grad)`` in one pass; see ``manyhot.kernels.native.fused``."""
    wordwise = form == "split" and not isinstance(offset, Tensor) and offset == 0
    call = Call(x, terms, "fused", _cut, wordwise)
    num_rows, chunks = x.shape[0], call.layout.plan.chunks
    values, slope, grad = new_rows(x), new_rows(x), new_grad(x)
    partial = arrived = None
    if chunks > 1:
        partial = x.new_empty((num_rows, chunks, 4), dtype=torch.float32)
        arrived = x.new_zeros(num_rows + 1, dtype=torch.int32)
    call.launch(
        form,
        offset=offset,
        row_scale=row_scale,
        out_value=values,
        out_slope=slope,
        out_grad=grad,
        partial=partial,
        arrived=arrived,
    )
    return values, grad, slope


def can_fuse(x: Tensor) -> bool:
    """Whether ``fused`` can serve ``x``: programs that wait for each other need a device that runs them together."""
    return not (interpreted() and x.shape[1] > SEGMENT)


def labelwise(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    kind: str,
    *,
    gamma_pos: float = 0.0,
    gamma_neg: float = 0.0,
    margin: float = 0.0,
    row_scale: Tensor | float = 1.0,
) -> tuple[Tensor, Tensor]:
    """``(values, grad)`` in one pass; see ``manyhot.kernels.native.labelwise``."""
    call = Call(x, terms, "labelwise", _cut)
    layout = call.layout
    chunks = layout.plan.chunks
    values = new_rows(x) if chunks == 1 else x.new_empty((x.shape[0], chunks), dtype=torch.float32)
    grad = new_grad(x)
    scales, scale_number = per_row(row_scale)
    numbers = (scale_number, *call.numbers, float(gamma_pos), float(gamma_neg), float(margin))

    def kernel() -> Kernel:
        from manyhot.kernels.triton_labelwise import labelwise_kernel

        constants = ("bce" if kind == "bce" else "focal", margin > 0, *layout.kinds, scales is not None)
        return labelwise_kernel, (*constants, chunks, layout.plan.rows, layout.plan.block)

    call.start((kind, margin > 0, type_of(scales)), kernel, (scales, values, grad), numbers)
    return values if chunks == 1 else values.sum(dim=1), grad


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
    from manyhot.kernels.triton_rdrop import rdrop_kernel

    call = Call(a, DenseTerms(a, where) if terms is None else terms, "rdrop", _cut_pair)
    b, layout, losses = as_matrix(b, a), call.layout, terms is not None
    chunks = layout.plan.chunks
    halves = losses and chunks > 1
    values = new_rows(a) if losses or chunks == 1 else a.new_empty((a.shape[0], chunks), dtype=torch.float32)
    partial = a.new_empty((9, a.shape[0], chunks), dtype=torch.float32) if halves else None
    grads = new_grad(a), new_grad(a)
    scales, scale_number = per_row(row_scale)
    numbers = (b.stride(0), scale_number, *call.numbers, float(alpha), float(link))
    labels, *kinds = layout.kinds
    for stage in ("sums", "gradient") if halves else ("fused",):
        constants = (losses, labels, layout.lean, *kinds, scales is not None, stage, layout.even)
        cut = (chunks, 1 << (chunks - 1).bit_length(), layout.plan.rows, layout.plan.block)
        rows = (b, scales, partial, values, *grads)
        key = (losses, stage, type_of(scales), b.stride(0))
        call.start(key, lambda: (rdrop_kernel, (*constants, *cut)), rows, numbers)  # noqa: B023
    return values if values.ndim == 1 else values.sum(dim=1), *grads


def total(values: Tensor, scale: Tensor | float) -> Tensor:
    """``sum scale values``; see ``manyhot.kernels.totals.total``."""
    size = values.numel()
    if not 0 < size <= MOST_ROWS:
        return totals.total(values, scale)
    scales, number = per_row(scale)
    start, numbers = _totals(size, number, type_of(scales), values.dtype, values.device)
    out = values.new_empty(())
    start(1, values, (scales, out), numbers)
    return out


@functools.lru_cache(maxsize=1024)
def _totals(
    size: int, number: float, scale_type: torch.dtype | None, dtype: torch.dtype, device: torch.device
) -> tuple[Launcher, Numbers]:
    """What sums up ``size`` values, and with which numbers."""
    from manyhot.kernels.triton_totals import total_kernel

    mean, scaled = number == 1.0 / size, scale_type is not None
    block = 1024 if size <= 1024 else (8192 if size <= 8192 else 32768)
    numbers = (size, 1.0 if mean or scaled else number, float(size) if mean else 1.0)
    return launcher(total_kernel, (scaled, block), max(4, block // 1024), (dtype, scale_type, device), numbers), numbers


def scale_(grad: Tensor, factor: Tensor) -> Tensor:
    """``grad *= factor`` in place, for a factor on the device that is nearly always 1."""
    size = grad.numel()
    if size <= SMALL:
        return grad.mul_(factor)
    from manyhot.kernels.triton_totals import scale_kernel

    start = launcher(scale_kernel, (SCALED,), 8, (grad.dtype, factor.dtype, grad.device), (size,))
    start(min(blocks(size, SCALED), 256), grad, (factor,), (size,))
    return grad
