"""The scores between two levels, without a sort or a mask of all scores: host side."""

from __future__ import annotations

import struct
from typing import NamedTuple

import torch
from torch import Tensor

from manyhot.engines.triton.calls import type_of
from manyhot.engines.triton.launch.gate import GATE as GATE
from manyhot.engines.triton.launch.gate import LaunchError, interpreted, refusal
from manyhot.engines.triton.launch.launcher import launcher
from manyhot.engines.triton.launch.residency import multiprocessors
from manyhot.engines.triton.plans import blocks

# Scores of a tile, warps per program, programs per multiprocessor, each of which loops over tiles, and registers.
TILE, WARPS, PER_PROCESSOR, REGISTERS = 256, 1, 32, 64
# Entries to make room for at first; a second read follows where more are found.
ROOM = 1 << 23


class Listing(NamedTuple):
    """Scores and their places in the flattened table, in any order; and the highest score below the level."""

    values: Tensor
    places: Tensor
    below: float


def lists_here(scores: Tensor) -> bool:
    """Whether the kernel lists these scores."""
    if scores.dtype != torch.float32 or scores.is_cuda == interpreted() or not scores.is_contiguous() or not scores.numel():
        return False
    return type(scores) is Tensor and not refusal(scores.get_device() if scores.is_cuda else None)


def list_between(scores: Tensor, levels: tuple[float, float] | Tensor, *, most: int | None = None) -> Listing | None:
    """The scores from a level to another, both included. Waits for the device, which says how many there are.

    Args:
        scores: ``[R, L]`` without NaN.
        levels: the lowest and the highest score to list, numbers of their type; or ``[2]`` on the device, which are not waited
            for.
        most: the most entries to list; None for any number.

    Returns:
        The entries; None if there are more, or if no kernel supports the call.
    """
    if not lists_here(scores):
        return None
    try:
        room = min(ROOM, scores.numel())
        found = launch(scores, levels, room)
        count, key = found[2].tolist()
        if most is not None and count > most:
            return None
        if count > room:
            found = launch(scores, levels, count)
    except LaunchError as failure:
        GATE.close(failure)
        return None
    return Listing(found[0][:count], found[1][:count], _score_of(key))


def launch(scores: Tensor, levels: tuple[float, float] | Tensor, room: int) -> tuple[Tensor, Tensor, Tensor]:
    """Launch the kernel of ``list_between``, with room for so many entries: their scores, their places, and the state."""
    from manyhot.engines.triton.rows.listing import listing_kernel

    values, places = scores.new_empty(room), scores.new_empty(room, dtype=torch.int64)
    state = torch.zeros(2, dtype=torch.int64, device=scores.device)
    given, known = (levels, (0.0, 0.0)) if isinstance(levels, Tensor) else (None, levels)
    tiles = blocks(scores.numel(), TILE)
    numbers = (*map(float, known), scores.numel(), room, tiles)
    types = (scores.device, scores.dtype, type_of(given), values.dtype, places.dtype, state.dtype)
    start = launcher(listing_kernel, (given is not None, TILE), WARPS, types, numbers, REGISTERS)
    most = PER_PROCESSOR * (multiprocessors(scores.get_device(), of_context=False) if scores.is_cuda else 1)
    start(min(tiles, most), scores, (given, values, places, state), numbers)
    return values, places, state


def _score_of(key: int) -> float:
    """The float32 that the kernel wrote as a key."""
    bits = key - (1 << 31)
    bits ^= (bits >> 31) & 0x7FFFFFFF
    score: float = struct.unpack("f", struct.pack("i", bits))[0]
    return score
