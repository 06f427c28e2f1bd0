"""The Triton engine for span scores: host side. Two launches and one for the lists give the sums, one their gradient.

Parts are float32, bfloat16 or float16 on a CUDA device (or, with TRITON_INTERPRET=1 set before the first import, float32 on
the CPU). Nothing waits for the device, no ``[B, H, T, T]`` or ``[B, T, T]`` tensor is made, and every output has one writer.
Float32 products are taken in three tf32 products each, which keeps float32's digits.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.kernels import triton_engine
from manyhot.kernels.span_terms import SpanParts
from manyhot.kernels.terms import LogSum

HEAD_SIZES = 128
ENTRIES = 64
# Tokens held and tokens a step, by kernel: half types, float32.
TYPED_SUMS = ((128, 64), (64, 64))
TYPED_PULLS = ((128, 64), (64, 32))
# Tiles of 64 with 8 warps gave wrong gradients and read out of bounds on an H200 (Triton 3.6), for a reason not found.
SHARED = 32
SHARED_WARPS = 4
TYPES = 64
# A first token's factorised total is in doubt below this many times the most that its cells can have lost.
DOUBT = 1 / torch.finfo(torch.float32).eps

Memory = tuple[Tensor, ...]
Shapes = list[tuple[tuple[int, ...], torch.dtype]]


class SpanCells(NamedTuple):
    """Which cells count and which are listed: row i lists the cells ``indices[offsets[i]:offsets[i + 1]]`` of its flattened
    ``[H, T, T]`` grid, rising; smoothing is uniform."""

    lengths: Tensor
    triangle: bool
    indices: Tensor
    offsets: Tensor
    values: Tensor | None = None
    smoothing: float = 0.0


def available() -> tuple[bool, str]:
    """Whether the engine is there, and why not."""
    return triton_engine.available()


def supports(parts: SpanParts, *others: Tensor) -> bool:
    """Whether this engine can serve these parts, with labels and lengths beside them."""
    place = "cpu" if triton_engine.interpreted() else "cuda"
    tensors = [part for part in parts[:4] if part is not None]
    return (
        all(part.dtype in triton_engine.SCORES and part.numel() > 0 for part in tensors)
        and all(tensor.device.type == place for tensor in (*tensors, *others))
        and parts.q.shape[-1] <= HEAD_SIZES
        and parts.num_tokens < 1 << 15
    )


def sides(parts: SpanParts, cells: SpanCells) -> tuple[LogSum, LogSum, Memory]:
    """``(pos, neg)``, float32 ``[B, H]``, and what backward should remember."""
    call = _Call(parts, cells)
    memory = tuple(call.fresh(shape, dtype) for shape, dtype in call.memory_shapes())
    unpacked, scores, starts, *kept = memory
    call.unpack_lists(unpacked, scores, starts)
    rounds = 2 if cells.smoothing else 1
    tops, sums = kept[-2:] if kept else call.fresh((2, rounds, call.problems, call.num_blocks)).unbind()
    for place in range(rounds):
        call.place, sign = place, -1.0 if place else 1.0
        if parts.u is None:
            call.typed_sums(unpacked, starts, tops[place], sums[place], sign)
        else:
            call.shared_sums(unpacked, starts, tuple(part[place] for part in kept), sign)
    out = call.fresh((4, *call.shape))
    call.merge(tops, sums, unpacked, scores, starts, out)
    pos_shift, pos_rest, neg_shift, neg_rest = out.unbind()
    return LogSum(pos_shift, pos_rest), LogSum(neg_shift, neg_rest), memory


def memory_shapes(parts: SpanParts, cells: SpanCells) -> Shapes:
    """Of what ``sides`` keeps for ``gradient``."""
    return _Call(parts, cells).memory_shapes()


def gradient(
    parts: SpanParts, cells: SpanCells, sums: tuple[LogSum, LogSum], grads: tuple[Tensor, Tensor], memory: Memory
) -> SpanParts:
    """Gradients of the parts, in their types, given the sums ``[B, H]`` that cells are shares of and their gradients."""
    call = _Call(parts, cells)
    state = torch.stack([*sums[0], *sums[1], *grads])
    outs = empty_gradients(call.parts, cells)
    for place in range(2 if cells.smoothing else 1):
        call.place = place
        if parts.u is None:
            call.typed_pulls(outs, state, memory, place)
        else:
            call.shared_pulls(outs, state, memory, place)
    return outs


def empty_gradients(parts: SpanParts, cells: SpanCells) -> SpanParts:
    """Gradients to be filled; both sides are added up in float32."""
    kind = torch.float32 if cells.smoothing else None
    q, k = (torch.empty_like(part, dtype=kind) for part in parts[:2])
    u, v = (None if part is None else torch.empty_like(part, dtype=kind) for part in parts[2:4])
    return SpanParts(q, k, u, v, parts.scale)


_COMPILED: dict[tuple[Any, ...], Any] = {}


class _Call:
    """Parts and cells as the kernels take them."""

    def __init__(self, parts: SpanParts, cells: SpanCells) -> None:
        kind = torch.promote_types(parts.q.dtype, parts.k.dtype)
        q, k = (_rows(part.to(kind)) for part in (parts.q, parts.k))
        self.parts = SpanParts(q, k, parts.u, parts.v, parts.scale)
        self.cells = cells
        self.tokens, self.types, self.head = parts.num_tokens, parts.num_types, parts.q.shape[-1]
        self.shape = (q.shape[0], self.types)
        self.problems = q.shape[0] * self.types
        self.listed = cells.indices.shape[0]
        self.half = kind != torch.float32
        self.width = max(16, _power(self.head))
        self.precision = "tf32x3"
        self.slope = {torch.float32: "tf32x3", torch.bfloat16: "bf16", torch.float16: "tf32"}[kind]
        if parts.u is None:
            self.held, self.step = self._cut(TYPED_SUMS)
            self.type_width, self.type_blocks = 1, 1
        else:
            self.held = self.step = SHARED
            self.type_width = min(TYPES, max(16, _power(self.types)))
            self.type_blocks = -(-self.types // self.type_width)
            self.slope = "tf32" if self.half else "tf32x3"
        self.place = 0
        self.num_blocks = -(-self.tokens // self.held)
        self.list_blocks = self.num_blocks if parts.u is None else 1

    def _cut(self, blocks: tuple[tuple[int, int], tuple[int, int]]) -> tuple[int, int]:
        """Tokens held and tokens a step; few choices, for each is compiled."""
        held, step = blocks[0 if self.half and self.width <= 64 else 1]
        return max(step, held // 2) if self.tokens <= held // 2 else held, step

    def memory_shapes(self) -> Shapes:
        """The lists unpacked, their scores and starts; and for the shared form, each for one or both signs, maxima, lifts,
        flags, bases and totals."""
        ints, floats = torch.int32, torch.float32
        lists: Shapes = [((3, self.listed), ints), ((self.listed,), floats), ((self.problems * self.list_blocks + 1,), ints)]
        if self.parts.u is None:
            return lists
        rounds, blocks = 2 if self.cells.smoothing else 1, self.shape[0] * self.num_blocks
        totals = ((rounds, self.problems, self.tokens), floats)
        peaks, lifts = (rounds, self.shape[0], self.tokens), (rounds, blocks, self.types)
        return [*lists, (peaks, floats), (lifts, floats), (lifts, ints), totals, totals]

    @functools.cached_property
    def _key(self) -> tuple[Any, ...]:
        """All that Triton specialises on follows from this. The number of listed cells it does not."""
        parts = [part for part in self.parts[:4] if part is not None]
        lists = [self.cells.lengths, self.cells.indices, self.cells.offsets, self.values]
        layouts = [(part.shape, part.stride()) for part in parts]
        kinds = [(tensor.dtype, tensor.data_ptr() % 16) for tensor in (*parts, *lists)]
        return parts[0].device, self.cells.smoothing > 0, *layouts, *kinds

    def _launch(self, kernel: Any, programs: int, arguments: tuple[Any, ...], constants: tuple[Any, ...], warps: int) -> None:
        """Run a kernel. What it was compiled to is kept by the layout of the call, which is cheaper to ask than Triton."""
        if triton_engine.interpreted():
            kernel[(programs,)](*arguments, *constants)
            return
        key = (kernel, constants, warps, self.place, self._key)
        compiled = _COMPILED.get(key)
        if compiled is None:
            _COMPILED[key] = kernel[(programs,)](*arguments, *constants, num_warps=warps)
        else:
            compiled[(programs, 1, 1)](*arguments, *constants)

    def fresh(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """Memory to be filled."""
        return torch.empty(shape, dtype=dtype, device=self.parts.q.device)

    @property
    def values(self) -> Tensor:
        """Soft labels, or something to point at."""
        return self.cells.indices if self.cells.values is None else self.cells.values

    def strides(self, parts: SpanParts) -> tuple[int, ...]:
        """Of q and k by row, type and token, or by row and token, and then of u and v."""
        ends = () if parts.u is None else (*parts.ends()[0].stride(), *parts.ends()[1].stride())
        return (*parts.q.stride()[:-1], *parts.k.stride()[:-1], *ends)

    def unpack_lists(self, unpacked: Tensor, scores: Tensor, starts: Tensor) -> None:
        """Types, first and last tokens ``[3, P]`` and scores ``[P]`` of listed cells, and where blocks of them start."""
        from manyhot.kernels.triton_span_listed import listed_kernel

        parts, blocks = self.parts, self.list_blocks
        shared = parts.u is not None
        u, v = parts.ends() if shared else (parts.q, parts.k)
        lists = (self.cells.lengths, self.cells.indices, self.cells.offsets, unpacked, scores, starts)
        steps = (self.shape[0].bit_length(), self.listed.bit_length())
        sizes = (*self.shape, self.tokens, self.listed, self.head, blocks, self.held, *steps, parts.scale)
        strides = (*self._by_type(parts.q), *self._by_type(parts.k), *(u.stride() if shared else (0, 0, 0)))
        strides += v.stride() if shared else (0, 0, 0)
        programs = -(-max(self.listed, starts.numel()) // ENTRIES)
        constants = (shared, self.cells.triangle, self.width, ENTRIES)
        self._launch(listed_kernel, programs, (parts.q, parts.k, u, v, *lists, *sizes, *strides), constants, 4)

    def _by_type(self, part: Tensor) -> tuple[int, int, int]:
        return part.stride()[:3] if part.ndim == 4 else (part.stride(0), 0, part.stride(1))  # type: ignore[return-value]

    def typed_sums(self, unpacked: Tensor, starts: Tensor, tops: Tensor, sums: Tensor, sign: float) -> None:
        """The sums over unlisted cells of each block of first tokens, typed form."""
        from manyhot.kernels.triton_span_typed import typed_sums_kernel

        pointers = (self.parts.q, self.parts.k, self.cells.lengths, unpacked, starts, tops, sums)
        sizes = (self.types, self.tokens, self.listed, self.head, self.num_blocks, sign * self.parts.scale)
        constants = (self.cells.triangle, self.listed > 0, self.precision, self.width, self.held, self.step)
        arguments = (*pointers, *sizes, *self.strides(self.parts))
        self._launch(typed_sums_kernel, self.problems * self.num_blocks, arguments, constants, _warps(self.held))

    def shared_sums(self, unpacked: Tensor, starts: Tensor, kept: Memory, sign: float) -> None:
        """The sums over unlisted cells of each first token, shared form."""
        from manyhot.kernels.triton_span_shared import shared_sums_kernel

        limit = DOUBT * 2 * self.tokens * torch.finfo(torch.float32).tiny
        pointers = (*self.parts[:4], self.cells.lengths, unpacked, starts, *kept)
        sizes = (self.types, self.tokens, self.listed, self.head, self.num_blocks, self.type_blocks)
        constants = (self.cells.triangle, self.listed > 0, self.precision, self.width, self.held, self.step, self.type_width)
        arguments = (*pointers, *sizes, sign * self.parts.scale, sign, limit, *self.strides(self.parts))
        programs = self.shape[0] * self.num_blocks * self.type_blocks
        self._launch(shared_sums_kernel, programs, arguments, constants, SHARED_WARPS)

    def merge(self, tops: Tensor, sums: Tensor, unpacked: Tensor, scores: Tensor, starts: Tensor, out: Tensor) -> None:
        """Both sides of every (row, type)."""
        from manyhot.kernels.triton_span_listed import sides_kernel

        smoothing, size = float(self.cells.smoothing), tops.shape[-1]
        pointers = (tops, sums, unpacked, scores, starts, self.values, out)
        sizes = (self.problems, self.listed, size, self.list_blocks, smoothing)
        constants = (self.cells.values is not None, smoothing > 0, min(512, max(16, _power(size))))
        self._launch(sides_kernel, self.problems, (*pointers, *sizes), constants, 1)

    def typed_pulls(self, outs: SpanParts, state: Tensor, memory: Memory, place: int) -> None:
        """Gradients of q and k, typed form; the second time those of the positive background are added."""
        from manyhot.kernels.triton_span_typed import typed_pulls_kernel

        held, step = self._cut(TYPED_PULLS)
        blocks = -(-self.tokens // held)
        unpacked, scores, starts = memory
        pointers = (*self.parts[:2], *outs[:2], state, self.cells.lengths, unpacked, scores, self.values, starts)
        sizes = (self.problems, self.types, self.tokens, self.listed, self.head, blocks, self.list_blocks)
        numbers = (-self.parts.scale if place else self.parts.scale, float(self.cells.smoothing))
        kinds = (self.cells.triangle, self.listed > 0, place == 0, self.cells.values is not None, self.precision, self.slope)
        arguments = (*pointers, *sizes, *numbers, *self.strides(self.parts), *self.strides(outs))
        constants = (*kinds, self.width, held, step)
        self._launch(typed_pulls_kernel, 2 * self.problems * blocks, arguments, constants, _warps(held))

    def shared_pulls(self, outs: SpanParts, state: Tensor, memory: Memory, place: int) -> None:
        """Gradients of all parts, shared form; the second time those of the positive background are added."""
        from manyhot.kernels.triton_span_pulls import shared_pulls_kernel

        unpacked, scores, starts, *kept = memory
        lists = (self.cells.lengths, unpacked, scores, self.values, starts)
        pointers = (*self.parts[:4], *outs[:4], state, *lists, *(part[place] for part in kept))
        blocks = self.shape[0] * self.num_blocks
        sizes = (self.problems, self.types, self.tokens, self.listed, self.head, self.num_blocks, self.type_blocks, blocks)
        sign = -1.0 if place else 1.0
        numbers = (sign * self.parts.scale, sign, float(self.cells.smoothing))
        kinds = (self.cells.triangle, self.listed > 0, place == 0, self.cells.values is not None, self.precision, self.slope)
        arguments = (*pointers, *sizes, *numbers, *self.strides(self.parts), *self.strides(outs))
        constants = (*kinds, self.width, self.held, self.type_width, self.type_blocks > 1)
        self._launch(shared_pulls_kernel, blocks * (1 + self.type_blocks), arguments, constants, SHARED_WARPS)


def _power(size: int) -> int:
    """The next power of two."""
    return 1 << max(size - 1, 0).bit_length()


def _warps(held: int) -> int:
    return 8 if held >= 128 else 4


def _rows(part: Tensor) -> Tensor:
    """With features next to each other."""
    return part if part.stride(-1) == 1 or part.shape[-1] == 1 else part.contiguous()
