"""The Triton engine: host side. Plans tiles, launches kernels, keeps the contract of ``manyhot.kernels.terms``.

Scores are ``x [R, L]`` in float32, bfloat16 or float16 on a CUDA device (or, with TRITON_INTERPRET=1 set before the first
import, in float32 on the CPU). Nothing waits for the device.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.kernels.terms import INF, DenseTerms, LogSum, SparseTerms, Weight

SCORES = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
CHUNK = 8192
SEGMENT = 32768
SEGMENTS = 128
BLOCK = 4096
# Memory on chip in the interpreter, and what a program needs beside its rows.
MEMORY, RESERVED = 1 << 18, 1 << 13
# Gradients so small that reading and writing them costs less than a launch that may find nothing to do.
SMALL = 1 << 20


def interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


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
    parts = (x, *(field for field in terms if isinstance(field, Tensor)))
    place = "cpu" if interpreted() else "cuda"
    return x.dtype in SCORES and all(part.device.type == place for part in parts)


class Plan(NamedTuple):
    """How rows are cut: by which kernel, rows a tile, labels a tile, chunks a row, labels a chunk, warps a program."""

    kernel: str
    rows: int
    block: int
    chunks: int
    segment: int
    warps: int


class Device(NamedTuple):
    """What a plan must know of the device: how many programs run at once at least, and bytes of memory on chip for one."""

    programs: int = SEGMENTS
    memory: int = 0


@functools.cache
def _device(index: int) -> Device:
    found = torch.cuda.get_device_properties(index)
    return Device(found.multi_processor_count, getattr(found, "shared_memory_per_block_optin", 0))


def plan(
    num_rows: int,
    num_labels: int,
    *,
    lean: bool,
    stage: str,
    item_bytes: int = 0,
    score_bytes: int = 4,
    lists: bool = False,
    device: Device | None = None,
) -> Plan:
    """Whole rows to 8,192 labels, several a tile where they are short. Beyond, for a loss with its gradient: whole rows that
    are read ahead while the chip can hold three of them, chunks that wait for each other, or segments that are read twice.

    Which of the last two is faster was measured: half types spend their time on arithmetic, and chunks that wait do less of it
    at once. ``item_bytes`` is what one label takes to read, ``score_bytes`` its score alone. ``device`` None is the
    interpreter, where no program can wait for another.
    """
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
    memory = MEMORY if device is None else device.memory - RESERVED
    if fast and block <= 4 * CHUNK and 4 * num_labels > 3 * block and num_labels % 16 == 0 and 2 * block * item_bytes <= memory:
        return Plan("stream", 1, block, 1, block, 16)
    pieces = -(-num_labels // BLOCK)
    if fast and not lists and score_bytes == 4 and device is not None and pieces <= min(SEGMENTS, device.programs):
        return Plan("rows", 1, BLOCK, pieces, BLOCK, 4)
    most = SEGMENTS if device is None else min(SEGMENTS, device.programs)
    segment = max(SEGMENT, 1 << (-(-num_labels // most) - 1).bit_length())
    return Plan("segments", 1, BLOCK if lean else BLOCK // 2, -(-num_labels // segment), segment, 8)


def sides(x: Tensor, terms: DenseTerms | SparseTerms) -> tuple[LogSum, LogSum]:
    """``terms.sides(x)``: ``(pos, neg)``, float32 ``[R]``."""
    call = _Call(x, terms, "sides")
    partial = x.new_empty((x.shape[0], call.plan.chunks, 4), dtype=torch.float32)
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
    call = _Call(x, terms, "gradient")
    parts = []
    for side in (pos, neg):
        infinite = side.rest == INF
        parts += [torch.where(infinite, INF, side.shift), torch.where(infinite, 1.0, side.rest.exp())]
    grad = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    pulls = {"grad_pos": grad_pos.contiguous(), "grad_neg": grad_neg.contiguous()}
    call.launch("none", out_grad=grad, state=torch.stack(parts), **pulls)
    return grad


def fused(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    form: str = "split",
    offset: Tensor | float = 0.0,
    row_scale: Tensor | float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """``(values, grad, offset_grad)`` in one pass; see ``manyhot.kernels.native.fused``."""
    call = _Call(x, terms, "fused")
    num_rows = x.shape[0]
    values = torch.empty(num_rows, dtype=torch.float32, device=x.device)
    slope = torch.empty_like(values)
    grad = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    outputs: dict[str, Any] = {"out_value": values, "out_slope": slope, "out_grad": grad}
    if call.plan.chunks > 1:
        outputs["partial"] = torch.empty((num_rows, call.plan.chunks, 4), dtype=torch.float32, device=x.device)
        outputs["arrived"] = torch.zeros(num_rows + 1, dtype=torch.int32, device=x.device)
    call.launch(form, offset=offset, row_scale=row_scale, **outputs)
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
    from manyhot.kernels.triton_labelwise import labelwise_kernel

    call = _Call(x, terms, "labelwise")
    values = torch.empty((x.shape[0], call.plan.chunks), dtype=torch.float32, device=x.device)
    grad = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    scale, has_scale = _per_row(row_scale)
    pointers = (*call.inputs, x if scale is None else scale, values, grad)
    numbers = (row_scale if scale is None else 1.0, *call.numbers, gamma_pos, gamma_neg, margin)
    constants = ("bce" if kind == "bce" else "focal", margin > 0, call.labels, call.has_where, *call.kinds, has_scale)
    cut = (call.plan.chunks, call.plan.rows, call.plan.block)
    _launch(labelwise_kernel, call.programs, (*pointers, *call.sizes, *numbers), (*constants, *cut), call.plan.warps)
    return values.squeeze(1) if values.shape[1] == 1 else values.sum(dim=1), grad


def scale_(grad: Tensor, factor: Tensor) -> Tensor:
    """``grad *= factor`` in place, for a factor on the device that is nearly always 1."""
    from manyhot.kernels.triton_rows import scale_kernel

    if grad.numel() <= SMALL:
        return grad.mul_(factor)
    _launch(scale_kernel, min(_blocks(grad.numel(), 4096), 1024), (grad, factor, grad.numel()), (4096,), 4)
    return grad


_COMPILED: dict[tuple[Any, ...], Any] = {}


def _launch(kernel: Any, programs: int, arguments: tuple[Any, ...], constants: tuple[Any, ...], warps: int) -> None:
    """Run a kernel. What it was compiled to is kept by what Triton specialises on, which is cheaper to ask than Triton."""
    if not programs:
        return
    if interpreted():
        kernel[(programs,)](*arguments, *constants)
        return
    key = (kernel, constants, warps, arguments[0].device, *map(_kind, arguments))
    compiled = _COMPILED.get(key)
    if compiled is None:
        # Threads of a large program may use all registers there are; left alone, the assembler keeps some back and spills.
        most = {} if warps < 16 else {"maxnreg": min(255, 65536 // (32 * warps))}
        _COMPILED[key] = kernel[(programs,)](*arguments, *constants, num_warps=warps, **most)
    else:
        compiled[(programs, 1, 1)](*arguments, *constants)


def _kind(value: Any) -> Any:
    """What Triton looks at in an argument: type and alignment of a tensor, size and divisibility of an integer."""
    if isinstance(value, Tensor):
        return value.dtype, value.data_ptr() % 16
    return (value == 1, value % 16 == 0, value.bit_length() > 31) if isinstance(value, int) else None


def _blocks(size: int, block: int) -> int:
    return -(-size // block)


def _per_row(value: Tensor | float) -> tuple[Tensor | None, bool]:
    return (value.contiguous(), True) if isinstance(value, Tensor) else (None, False)


class _Call:
    """Scores and terms as the kernels take them."""

    def __init__(self, x: Tensor, terms: DenseTerms | SparseTerms, stage: str) -> None:
        self.x = x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()
        self.stage = stage
        num_rows, num_labels = x.shape
        plain = terms.pos_weight is None and terms.neg_weight is None and terms.smoothing == 0
        if isinstance(terms, SparseTerms):
            hard, labels = terms.values is None, None
            lists: tuple[Tensor | None, ...] = (terms.offsets, terms.indices, terms.values)
            self.labels = "lists" if hard else "soft lists"
        else:
            hard, labels = terms.labels.dtype in INTEGERS, self._matrix(terms.labels)
            lists, self.labels = (None, None, None), "dense"
        self.lean = stage != "labelwise" and plain and hard
        self.has_where = terms.where is not None
        where = None if terms.where is None else self._matrix(terms.where)
        item_bytes = sum(matrix.element_size() for matrix in (self.x, labels, where) if matrix is not None)
        device = _device(x.device.index) if x.is_cuda else None
        self.plan = plan(
            num_rows,
            num_labels,
            lean=self.lean,
            stage=stage,
            item_bytes=item_bytes,
            score_bytes=x.element_size(),
            lists=self.labels != "dense",
            device=device,
        )
        self.programs = _blocks(num_rows, self.plan.rows) * self.plan.chunks
        if self.plan.kernel == "stream" and device is not None:
            self.programs = min(self.programs, device.programs)
        self.even = num_rows % self.plan.rows == 0 and num_labels % self.plan.segment == 0
        (pos, pos_number, pos_kind), (neg, neg_number, neg_kind) = map(self._weight, (terms.pos_weight, terms.neg_weight))
        pointers = (self.x, labels, *lists, where, pos, neg)
        self.inputs = tuple(self.x if pointer is None else pointer for pointer in pointers)
        strides = (self.x.stride(0), *(0 if matrix is None else matrix.stride(0) for matrix in (labels, where)))
        self.unit = math.gcd(16, num_labels, *strides)
        self.sizes = (num_rows, num_labels, *strides)
        self.numbers = (pos_number, neg_number, float(terms.smoothing))
        self.kinds = (pos_kind, neg_kind)

    def _matrix(self, matrix: Tensor) -> Tensor:
        matrix = matrix if matrix.shape == self.x.shape else matrix.reshape(self.x.shape)
        matrix = matrix if matrix.stride(-1) == 1 or matrix.shape[-1] <= 1 else matrix.contiguous()
        return matrix.view(torch.uint8) if matrix.dtype == torch.bool else matrix

    def _weight(self, weight: Weight) -> tuple[Tensor | None, float, str]:
        if isinstance(weight, Tensor):
            return weight.reshape(-1).expand(self.x.shape[1]).contiguous(), 1.0, "label"
        return None, 1.0 if weight is None else float(weight), "number"

    def launch(self, form: str, *, offset: Tensor | float = 0.0, row_scale: Tensor | float = 1.0, **tensors: Tensor) -> None:
        """Run the kernel of the stage over all tiles; tensors that a stage does not use are not read."""
        from manyhot.kernels.triton_rows import row_kernel, stream_kernel
        from manyhot.kernels.triton_segments import segment_kernel

        offsets, has_offset = _per_row(offset)
        scales, has_scale = _per_row(row_scale)
        given = {"offset": offsets, "row_scale": scales, **tensors}
        pointers = [self.x if given.get(name) is None else given[name] for name in _POINTERS]
        kernel = {"rows": row_kernel, "stream": stream_kernel, "segments": segment_kernel}[self.plan.kernel]
        numbers = (0.0 if has_offset else offset, 1.0 if has_scale else row_scale, *self.numbers)
        moved = "row" if has_offset else ("zero" if offset == 0 else "number")
        kinds = (self.labels, self.lean, self.has_where, *self.kinds, moved, has_scale, form, self.stage, self.even)
        cut = self.plan
        sizes = (cut.chunks, 1 << (cut.chunks - 1).bit_length(), cut.segment, cut.rows, cut.block, self.unit)
        arguments = (*self.inputs, *pointers, *self.sizes, *numbers)
        _launch(kernel, self.programs, arguments, (*kinds, *sizes), cut.warps)


_POINTERS = ["offset", "row_scale", "grad_pos", "grad_neg", "out_value", "out_slope", "out_grad", "state", "partial", "arrived"]
