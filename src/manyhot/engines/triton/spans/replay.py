"""Replay of an earlier span loss of the same layout: the kernels are known, one block of memory holds all they share, and only
addresses and the number of listed spans are new.

For all but the largest grids the host takes longer than the device, and training repeats one layout for as long as texts are
padded to the same length.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from manyhot.engines.plain_spans.terms import SpanParts
from manyhot.engines.triton.launch.direct import DirectKernel, KernelTable, TableStep, copy_on_device
from manyhot.engines.triton.launch.launcher import Launch, Launched, Numbers, stream_for
from manyhot.engines.triton.replay import scalar_for
from manyhot.engines.triton.spans.plans import ENTRIES, SpanPlan, empty_gradients
from manyhot.engines.triton.spans.workspace import Kept, SpanCells, aligned

# The most listed spans in a call.
MOST_LISTED = 1 << 29
# The number of addresses of a call: its eight tensors, and the nine sections of its block.
SECTIONS_END = 17


class Block:
    """The layout of one block of memory that holds the sums and the sections of ``Kept``. The sums ``[8, problems]`` come
    first, and the sections whose size depends on the number of listed spans come last."""

    __slots__ = ("fixed", "places", "size")

    def __init__(self, plan: SpanPlan) -> None:
        (starts, flags, _), (_, *floats) = plan.sections(0)
        sizes = [8 * plan.problems, starts, flags, *floats]
        self.places, at = [], 0
        for size in sizes:
            self.places.append(at)
            at += aligned(size)
        self.size = at
        self.fixed = [4 * place for place in self.places]

    def words(self, listed: int) -> int:
        """The size of the block in 4-byte words."""
        return self.size + aligned(listed) + aligned(3 * listed)

    def addresses(self, base: int, listed: int) -> list[int]:
        """Sums, starts, flags, peaks, lifts, tops, totals, scores and unpacked lists of the block that starts at ``base``."""
        scores = base + 4 * self.size
        return [*[base + place for place in self.fixed], scores, scores + 4 * aligned(listed)]

    def views(self, plan: SpanPlan, block: Tensor, listed: int) -> tuple[Tensor, Kept]:
        """The sums ``[8, problems]`` and the sections as tensors."""
        ends = [*self.places[1:], self.size]
        parts = [block[start:stop] for start, stop in zip(self.places, ends, strict=True)]
        state, starts, flags, peaks, lifts, tops, sums = parts
        scores, unpacked = block[self.size : self.size + aligned(listed)], block[self.size + aligned(listed) :]
        starts, flags, unpacked = (section.view(torch.int32) for section in (starts, flags, unpacked))
        return state[: 8 * plan.problems].view(8, plan.problems), Kept(
            starts, flags, unpacked, scores, peaks, lifts, tops, sums
        )


def _step(launch: Launch, names: dict[int, int]) -> TableStep:
    """A launch as a step of a table with the addresses of ``names``, the number of listed spans and its bit length."""
    given = [launch.x, *launch.others]
    kernel = launch.start.kernel_for(launch.x, launch.others)
    places = [None if each is None else names[id(each)] for each in given]
    if kernel is None:
        raise LookupError
    varying = dict.fromkeys(launch.listed, 0) | dict.fromkeys(launch.steps, 1)
    return TableStep(kernel, launch.programs, launch.numbers, places, varying)


def _named(parts: SpanParts, cells: SpanCells) -> list[Tensor | None]:
    """The tensors of a call, in the order of the addresses."""
    return [*parts[:4], cells.lengths, cells.indices, cells.offsets, cells.values]


def _names(tensors: Sequence[Tensor | None]) -> dict[int, int]:
    """The place of each tensor; an error if one of them has two places."""
    names = {id(tensor): place for place, tensor in enumerate(tensors) if tensor is not None}
    if len(names) != sum(tensor is not None for tensor in tensors):
        raise LookupError
    return names


def addresses_of(parts: SpanParts, cells: SpanCells) -> list[int] | None:
    """The addresses of a call's tensors, 0 for one that is missing; None if one does not start at a multiple of 16."""
    found = [0 if tensor is None else tensor.data_ptr() for tensor in _named(parts, cells)]
    bits = 0
    for address in found:
        bits |= address
    return None if bits % 16 else found


class LossReplay:
    """The reduced loss of calls of one layout."""

    __slots__ = ("block", "entries", "like", "table")

    def __init__(
        self,
        plan: SpanPlan,
        launches: Sequence[Launch],
        names: dict[int, int],
        total: DirectKernel,
        numbers: Numbers,
        like: Tensor,
    ) -> None:
        self.block, self.like = Block(plan), like
        # After the sections come the addresses of the values of the problems, and of the loss.
        last = TableStep(total, 1, numbers, (SECTIONS_END, None, SECTIONS_END + 1), {})
        self.table = KernelTable(SECTIONS_END + 2, 2, [*[_step(launch, names) for launch in launches], last])
        self.entries = plan.problems * plan.list_blocks + 1

    def run(self, plan: SpanPlan, parts: SpanParts, cells: SpanCells) -> tuple[Tensor, Tensor] | None:
        """The loss, and the block for backward; None if this call cannot be replayed."""
        stream, found = stream_for(parts.q.get_device()), addresses_of(parts, cells)
        listed = cells.indices.shape[0]
        if stream is None or found is None or listed > MOST_LISTED:
            return None
        block, value = self.like.new_empty(self.block.words(listed)), torch.empty_like(self.like)
        base = block.data_ptr()
        found += self.block.addresses(base, listed)
        found += (base + 28 * plan.problems, value.data_ptr())
        programs = -(-max(listed, self.entries) // ENTRIES)
        return (value, block) if self.table.start(stream, found, (listed, listed.bit_length()), programs) else None


class PullReplay:
    """The gradients of calls of one layout."""

    __slots__ = ("block", "programs", "table")

    def __init__(self, plan: SpanPlan, launch: Launch, names: dict[int, int]) -> None:
        self.block, self.programs = Block(plan), launch.programs
        self.table = KernelTable(SECTIONS_END + 4, 2, [_step(launch, names)])

    def run(self, plan: SpanPlan, parts: SpanParts, cells: SpanCells, grad: Tensor, block: Tensor) -> SpanParts | None:
        """Gradients of the parts; None if this call cannot be replayed."""
        stream, found, copy = stream_for(parts.q.get_device()), addresses_of(parts, cells), copy_on_device()
        if stream is None or found is None or copy is None:
            return None
        base, listed = block.data_ptr(), cells.indices.shape[0]
        # The kernel reads the gradient of the loss from row 6 of the sums.
        if copy(base + 24 * plan.problems, grad.data_ptr(), 4, stream) != 0:
            return None
        outs = empty_gradients(parts, cells)
        found += self.block.addresses(base, listed)
        found += [0 if out is None else out.data_ptr() for out in outs[:4]]
        return outs if self.table.start(stream, found, (listed, listed.bit_length()), self.programs) else None


def remember_loss(
    plan: SpanPlan,
    parts: SpanParts,
    cells: SpanCells,
    state: Tensor,
    kept: Kept,
    settings: tuple[float, float],
    summed: Launched | None,
) -> LossReplay | None:
    """The replay of a loss that was just launched; None if there is none."""
    like = scalar_for(state)
    if summed is None or like is None or plan.rounds != 1 or addresses_of(parts, cells) is None:
        return None
    sections = [state, kept.starts, kept.flags, kept.peaks, kept.lifts, kept.tops, kept.sums, kept.scores, kept.unpacked]
    total = summed[0].kernel_for(state[7], (None, state[:1]))
    try:
        names = _names([*_named(parts, cells), *sections])
        if total is None:
            return None
        return LossReplay(plan, plan.sums_of(parts, cells, kept, state, *settings), names, total, summed[1], like)
    except (LookupError, ValueError):
        return None


def remember_pulls(
    plan: SpanPlan, parts: SpanParts, cells: SpanCells, state: Tensor, kept: Kept, outs: SpanParts
) -> PullReplay | None:
    """The replay of gradients that were just launched; None if there is none."""
    if plan.rounds != 1 or addresses_of(parts, cells) is None:
        return None
    sections = [state, kept.starts, kept.flags, kept.peaks, kept.lifts, kept.tops, kept.sums, kept.scores, kept.unpacked]
    try:
        names = _names([*_named(parts, cells), *sections, *outs[:4]])
        return PullReplay(plan, plan.pulls_of(parts, cells, kept, outs, state, 0), names)
    except (LookupError, ValueError):
        return None
