"""Plans of the Triton engine for span scores: sizes, memory, constants and launchers for calls of one layout.

Everything that depends only on the layout of a call is computed once and cached: for all but the largest grids the host takes
longer than the device, so a call only allocates memory and launches its kernels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines.plain_spans.terms import SpanParts
from manyhot.engines.triton.launch.launcher import Launch, Launcher, Numbers
from manyhot.engines.triton.spans.workspace import Kept, Memory, SpanCells, aligned, strides, strides_by_type

ENTRIES = 64
# (Tokens held, tokens per step) by kernel: first for half types and narrow heads, then for all others.
TYPED_SUMS = ((128, 64), (64, 64))
TYPED_PULLS = ((128, 64), (64, 32))
# Tiles of 64 with 8 warps gave wrong gradients and read out of bounds on an H200 (Triton 3.6). In the interpreter they are
# exact. Compiled, they use Hopper's asynchronous matrix products; tiles of 32 use the ordinary ones.
SHARED = 32
SHARED_WARPS = 4
TYPES = 64
# The factorised total of a first token is too inaccurate below this multiple of what its cells can lose to underflow.
DOUBT = 1 / torch.finfo(torch.float32).eps


def empty_gradients(parts: SpanParts, cells: SpanCells) -> SpanParts:
    """Memory for the gradients; with smoothing both sides are summed in float32."""
    kind: dict[str, Any] = {"dtype": torch.float32} if cells.smoothing else {}
    q, k, u, v = (None if part is None else torch.empty_like(part, **kind) for part in parts[:4])
    return SpanParts(q, k, u, v, parts.scale)  # type: ignore[arg-type]


_PLANS: dict[tuple[Any, ...], SpanPlan] = {}
MOST_PLANS = 4096


def planned(parts: SpanParts, cells: SpanCells) -> tuple[SpanPlan, SpanParts]:
    """The plan for parts and cells of this layout, and the parts in the form the kernels read."""
    q, k, u, v, scale = parts
    if q.dtype != k.dtype or q.stride(-1) != 1 or k.stride(-1) != 1:
        kind = torch.promote_types(q.dtype, k.dtype)
        q, k = _rows(q.to(kind)), _rows(k.to(kind))
        parts = SpanParts(q, k, u, v, scale)
    key: tuple[Any, ...] = (q.get_device(), q.dtype, q.shape, q.stride(), k.stride(), scale)
    key += (cells.triangle, cells.smoothing, None if cells.values is None else cells.values.dtype)
    if u is not None and v is not None:
        key += (u.dtype, u.shape[1], u.stride(), v.dtype, v.stride())
    plan = _PLANS.get(key)
    if plan is None:
        if len(_PLANS) >= MOST_PLANS:
            _PLANS.clear()
        plan = _PLANS[key] = SpanPlan(parts, cells)
    return plan, parts


class SpanPlan:
    """Sizes, strides, constants and launchers for calls of one layout, whatever their lists."""

    def __init__(self, parts: SpanParts, cells: SpanCells) -> None:
        kind = parts.q.dtype
        self.shared, self.triangle, self.soft = parts.u is not None, cells.triangle, cells.values is not None
        self.tokens, self.types, self.head = parts.num_tokens, parts.num_types, parts.q.shape[-1]
        self.rows = parts.q.shape[0]
        self.shape = (self.rows, self.types)
        self.problems = self.rows * self.types
        self.half = kind != torch.float32
        self.width = max(16, _power(self.head))
        self.precision, self.slope = "tf32x3", {torch.bfloat16: "bf16", torch.float16: "tf32"}.get(kind, "tf32x3")
        self.scale, self.smoothing = parts.scale, float(cells.smoothing)
        self.rounds = 2 if self.smoothing else 1
        if self.shared:
            self.held = self.step = SHARED
            self.type_width = min(TYPES, max(16, _power(self.types)))
            self.slope = "tf32" if self.half else "tf32x3"
        else:
            self.held, self.step = self._cut(TYPED_SUMS)
            self.type_width = 1
        self.type_blocks = -(-self.types // self.type_width) if self.shared else 1
        self.num_blocks = -(-self.tokens // self.held)
        self.list_blocks = 1 if self.shared else self.num_blocks
        self.strides, self.by_type = strides(parts), strides_by_type(parts)
        self.out_strides: Numbers | None = None
        self.launchers: dict[tuple[Any, ...], Launcher] = {}
        # The replays of losses and gradients of this layout (``replay``); None where there is none.
        self.losses: dict[Any, Any] = {}
        self.gradients: dict[bool, Any] = {}

    def _cut(self, blocks: tuple[tuple[int, int], tuple[int, int]]) -> tuple[int, int]:
        """Tokens held and tokens per step; few choices, because each one is compiled."""
        held, step = blocks[0 if self.half and self.width <= 64 else 1]
        return max(step, held // 2) if self.tokens <= held // 2 else held, step

    def sections(self, listed: int) -> tuple[list[int], list[int]]:
        """The sizes of the parts of ``Kept``: three of int32, five of float32."""
        blocks = self.rounds * self.rows * self.num_blocks
        starts = self.problems * self.list_blocks + 1
        if not self.shared:
            return [starts, 0, 3 * listed], [listed, 0, 0, *[blocks * self.types] * 2]
        totals = self.rounds * self.problems * self.tokens
        peaks, lifts = self.rounds * self.rows * self.tokens, blocks * self.types
        return [starts, lifts, 3 * listed], [listed, peaks, lifts, totals, totals]

    def memory_sizes(self, listed: int) -> tuple[int, int]:
        """How many int32 and float32 the sections take."""
        ints, floats = self.sections(listed)
        return sum(map(aligned, ints)), sum(map(aligned, floats))

    def memory(self, cells: SpanCells, clear: bool) -> Memory:
        """Uninitialised (or zeroed) memory."""
        ints, floats = self.memory_sizes(cells.indices.shape[0])
        new, device = torch.zeros if clear else torch.empty, cells.indices.device
        return new(ints, dtype=torch.int32, device=device), new(floats, dtype=torch.float32, device=device)

    def cut(self, memory: Memory, cells: SpanCells) -> Kept:
        """Split the memory into its sections."""
        cuts = self.sections(cells.indices.shape[0])
        ints, floats = (whole.split_with_sizes([*map(aligned, sizes)]) for whole, sizes in zip(memory, cuts, strict=True))
        return Kept(*ints, *floats)

    def _side(self, section: Tensor, place: int, size: int) -> Tensor:
        """The part of a section for one sign."""
        return section if self.rounds == 1 else section[place * size : (place + 1) * size]

    def fill(
        self,
        parts: SpanParts,
        cells: SpanCells,
        out: Tensor,
        threshold: float | None = None,
        share: float = 1.0,
        *,
        clear: bool = False,
    ) -> tuple[Memory, Kept]:
        """Sums of all sides into ``out``, and with a threshold the loss; returns the memory, whole and in sections."""
        memory = self.memory(cells, clear)
        kept = self.cut(memory, cells)
        for launch in self.sums_of(parts, cells, kept, out, threshold, share):
            launch.run()
        return memory, kept

    def sums_of(
        self, parts: SpanParts, cells: SpanCells, kept: Kept, out: Tensor, threshold: float | None, share: float
    ) -> list[Launch]:
        """What ``fill`` launches, in order."""
        sums = self.shared_sums if self.shared else self.typed_sums
        launches = [self.unpack_lists(parts, cells, kept), *(sums(parts, cells, kept, place) for place in range(self.rounds))]
        return [*launches, self.merge(cells, kept, out, threshold, share)]

    def pulls(self, parts: SpanParts, cells: SpanCells, state: Tensor, kept: Kept) -> SpanParts:
        """Gradients of the parts from the sums and their gradients."""
        outs = empty_gradients(parts, cells)
        for place in range(self.rounds):
            self.pulls_of(parts, cells, kept, outs, state, place).run()
        return outs

    def pulls_of(self, parts: SpanParts, cells: SpanCells, kept: Kept, outs: SpanParts, state: Tensor, place: int) -> Launch:
        """What ``pulls`` launches for one sign."""
        pulls = self.shared_pulls if self.shared else self.typed_pulls
        return pulls(parts, cells, kept, outs, state, place)

    def _launcher(self, kernel: Any, warps: int, *constants: Any) -> Launcher:
        key = (id(kernel), warps, constants)
        found = self.launchers.get(key)
        if found is None:
            found = self.launchers[key] = Launcher(kernel, constants, warps)
        return found

    def unpack_lists(self, parts: SpanParts, cells: SpanCells, kept: Kept) -> Launch:
        """Types, first and last tokens ``[3, P]`` and scores ``[P]`` of listed cells, and where blocks of them start."""
        from manyhot.engines.triton.spans.listed import listed_kernel

        listed, entries = cells.indices.shape[0], self.problems * self.list_blocks + 1
        start = self._launcher(listed_kernel, 4, self.shared, self.triangle, self.width, ENTRIES)
        numbers: Numbers = (*self.shape, self.tokens, listed, self.head, self.list_blocks, self.held)
        numbers += (self.rows.bit_length(), listed.bit_length(), self.scale, *self.by_type)
        others = (
            parts.k,
            parts.u,
            parts.v,
            cells.lengths,
            cells.indices,
            cells.offsets,
            kept.unpacked,
            kept.scores,
            kept.starts,
        )
        return Launch(start, -(-max(listed, entries) // ENTRIES), parts.q, others, numbers, (3,), (8,))

    def typed_sums(self, parts: SpanParts, cells: SpanCells, kept: Kept, place: int) -> Launch:
        """The sums over unlisted cells of each block of first tokens, typed form."""
        from manyhot.engines.triton.spans.typed import typed_sums_kernel

        listed, programs = cells.indices.shape[0], self.problems * self.num_blocks
        constants = (self.triangle, listed > 0, self.precision, self.width, self.held, self.step)
        start = self._launcher(typed_sums_kernel, _warps(self.held), *constants)
        scale = -self.scale if place else self.scale
        numbers: Numbers = (self.types, self.tokens, listed, self.head, self.num_blocks, scale, *self.strides)
        tops, sums = (self._side(section, place, programs) for section in (kept.tops, kept.sums))
        others = (parts.k, cells.lengths, kept.unpacked, kept.starts, tops, sums)
        return Launch(start, programs, parts.q, others, numbers, (2,))

    def shared_sums(self, parts: SpanParts, cells: SpanCells, kept: Kept, place: int) -> Launch:
        """The sums over unlisted cells of each first token, shared form."""
        from manyhot.engines.triton.spans.shared import shared_sums_kernel

        listed, sign = cells.indices.shape[0], -1.0 if place else 1.0
        constants = (self.triangle, listed > 0, self.precision, self.width, self.held, self.step, self.type_width)
        start = self._launcher(shared_sums_kernel, SHARED_WARPS, *constants)
        limit = DOUBT * 2 * self.tokens * torch.finfo(torch.float32).tiny
        numbers: Numbers = (self.types, self.tokens, listed, self.head, self.num_blocks, self.type_blocks)
        numbers += (sign * self.scale, sign, limit, *self.strides)
        others = (*parts[1:4], cells.lengths, kept.unpacked, kept.starts, *self._factors(kept, place))
        return Launch(start, self.rows * self.num_blocks * self.type_blocks, parts.q, others, numbers, (2,))

    def _factors(self, kept: Kept, place: int) -> tuple[Tensor, ...]:
        """Peaks, lifts, flags, tops and sums of one sign."""
        sections = (kept.peaks, kept.lifts, kept.flags, kept.tops, kept.sums)
        if self.rounds == 1:
            return sections
        blocks, totals = self.rows * self.num_blocks * self.types, self.problems * self.tokens
        sizes = (self.rows * self.tokens, blocks, blocks, totals, totals)
        return tuple(self._side(section, place, size) for section, size in zip(sections, sizes, strict=True))

    def merge(self, cells: SpanCells, kept: Kept, out: Tensor, threshold: float | None, share: float) -> Launch:
        """Both sides of every (row, type)."""
        from manyhot.engines.triton.spans.listed import sides_kernel

        size = self.tokens if self.shared else self.num_blocks
        constants = (self.soft, self.smoothing > 0, threshold is not None, min(512, max(16, _power(size))))
        numbers: Numbers = (self.problems, cells.indices.shape[0], size, self.list_blocks, self.smoothing)
        numbers += (threshold or 0.0, share)
        others = (kept.sums, kept.unpacked, kept.scores, kept.starts, cells.values, out)
        return Launch(self._launcher(sides_kernel, 1, *constants), self.problems, kept.tops, others, numbers, (1,))

    def typed_pulls(self, parts: SpanParts, cells: SpanCells, kept: Kept, outs: SpanParts, state: Tensor, place: int) -> Launch:
        """Gradients of q and k, typed form; the second launch adds those of the positive background."""
        from manyhot.engines.triton.spans.typed import typed_pulls_kernel

        listed, (held, step) = cells.indices.shape[0], self._cut(TYPED_PULLS)
        blocks = -(-self.tokens // held)
        kinds = (self.triangle, listed > 0, place == 0, self.soft, self.precision, self.slope)
        start = self._launcher(typed_pulls_kernel, _warps(held), *kinds, self.width, held, step)
        numbers: Numbers = (self.problems, self.types, self.tokens, listed, self.head, blocks, self.list_blocks)
        numbers += (-self.scale if place else self.scale, self.smoothing, *self.strides, *self._strides_of(outs))
        others = (parts.k, outs.q, outs.k, state, cells.lengths, kept.unpacked, kept.scores, cells.values, kept.starts)
        return Launch(start, 2 * self.problems * blocks, parts.q, others, numbers, (3,))

    def shared_pulls(
        self, parts: SpanParts, cells: SpanCells, kept: Kept, outs: SpanParts, state: Tensor, place: int
    ) -> Launch:
        """Gradients of all parts, shared form; the second launch adds those of the positive background."""
        from manyhot.engines.triton.spans.pulls import shared_pulls_kernel

        listed, blocks, sign = cells.indices.shape[0], self.rows * self.num_blocks, -1.0 if place else 1.0
        kinds = (self.triangle, listed > 0, place == 0, self.soft, self.precision, self.slope)
        constants = (*kinds, self.width, self.held, self.type_width, self.type_blocks > 1)
        start = self._launcher(shared_pulls_kernel, SHARED_WARPS, *constants)
        numbers: Numbers = (
            self.problems,
            self.types,
            self.tokens,
            listed,
            self.head,
            self.num_blocks,
            self.type_blocks,
            blocks,
        )
        numbers += (sign * self.scale, sign, self.smoothing, *self.strides, *self._strides_of(outs))
        lists = (cells.lengths, kept.unpacked, kept.scores, cells.values, kept.starts)
        others = (*parts[1:4], *outs[:4], state, *lists, *self._factors(kept, place))
        return Launch(start, blocks * (1 + self.type_blocks), parts.q, others, numbers, (3,))

    def _strides_of(self, outs: SpanParts) -> Numbers:
        """The strides of the gradients, which follow from those of the parts."""
        if self.out_strides is None:
            self.out_strides = strides(outs)
        return self.out_strides


def _power(size: int) -> int:
    """The next power of two."""
    return 1 << max(size - 1, 0).bit_length()


def _warps(held: int) -> int:
    return 8 if held >= 128 else 4


def _rows(part: Tensor) -> Tensor:
    """The part with contiguous features."""
    return part if part.stride(-1) == 1 or part.shape[-1] == 1 else part.contiguous()
