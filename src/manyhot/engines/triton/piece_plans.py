"""Plans for dice loss and R-Drop, which read rows in pieces (``rows.pieces``) or in steps."""

from __future__ import annotations

from typing import Any

from manyhot.engines.triton import plans
from manyhot.engines.triton.plans import Plan, blocks

# Dice loss. Labels per warp, and the same for rows of 512 labels and more of half types, if one float is kept per label. So it
# is for hard labels that are not squared; all others take two floats.
OVERLAP_LABELS, OVERLAP_MANY = 512, 1024
# Longer rows: labels per chunk, warps and registers, by the number of floats. The first entry that fits is used.
OVERLAP_CHUNKS: dict[int, list[tuple[int, int, int]]] = {1: [(4096, 4, 72), (8192, 8, 72)], 2: [(4096, 8, 64), (8192, 16, 64)]}
# Labels per warp, and registers: R-Drop with hard labels. Bits of half types take fewer registers in tiles of 4,096 labels.
PAIR_LABELS = 512
PAIR_REGISTERS, PAIR_LISTED = 128, 96
# The same for short rows that share a tile, and labels per tile; bits of half types that begin at 16 bytes take fewer.
SHORT_LABELS, SHORT_REGISTERS, SHORT_TILE = 256, 80, 1024
SHORT_LISTED = 64


def cut_pairs(
    together: int | None, num_rows: int, num_labels: int, *, score_bytes: int, lean: bool, lists: bool = False, **_: Any
) -> tuple[Plan, int]:
    """``plans.cut_rows`` for two predictions at once."""
    if takes_steps(num_labels, score_bytes=score_bytes, lean=lean):
        cut = step_plan(num_rows, num_labels, score_bytes=score_bytes, together=together)
    else:
        cut = pair_plan(num_rows, num_labels, score_bytes=score_bytes, together=together, lists=lists)
    return cut, blocks(num_rows, cut.rows) * cut.chunks


def takes_steps(num_labels: int, *, score_bytes: int, lean: bool) -> bool:
    """Whether two predictions are read in steps: with soft labels or weights, and in long rows that begin at 16 bytes, where
    pieces were slower."""
    return not lean or (num_labels * score_bytes % 16 == 0 and _split_row(num_labels, 256)[0] > plans.PAIR)


def pair_plan(num_rows: int, num_labels: int, *, score_bytes: int, together: int | None, lists: bool = False) -> Plan:
    """The plan for rows of two predictions with hard labels. Rows of up to 4,096 labels stay whole, and several short ones
    share a tile. Longer rows are divided into chunks, which wait for each other where they can (kernel "waiting"). A thread has
    16 labels and keeps four floats for each."""
    whole, tail = _split_row(num_labels, 256)
    if whole <= 256 and not tail:
        rows = max(1, min(SHORT_TILE // whole, 1 << max(num_rows - 1, 0).bit_length()))
        registers = SHORT_LISTED if lists and score_bytes == 2 and num_labels % 8 == 0 else SHORT_REGISTERS
        return Plan("rows", rows, whole, 1, whole, max(1, rows * whole // SHORT_LABELS), registers)
    if whole <= plans.PAIR:
        registers = PAIR_LISTED if lists and score_bytes == 2 and whole == plans.PAIR else PAIR_REGISTERS
        return Plan("rows", 1, whole, 1, whole + tail, max(1, whole // PAIR_LABELS), registers)
    most = 0 if together is None else min(plans.SEGMENTS, together)
    chunk = plans.PAIR if blocks(num_labels, plans.PAIR) <= most else 2 * plans.PAIR
    chunks, warps = blocks(num_labels, chunk), max(1, chunk // PAIR_LABELS)
    return Plan("waiting" if chunks <= most else "rows", 1, chunk, chunks, chunk, warps, PAIR_REGISTERS)


def _split_row(num_labels: int, least: int) -> tuple[int, int]:
    """A row as one power-of-two tile; from ``least`` labels on as a tile and a smaller one, if that saves an eighth."""
    block, whole = max(16, 1 << max(num_labels - 1, 0).bit_length()), 1 << max(num_labels.bit_length() - 1, 0)
    tail = max(16, 1 << max(num_labels - whole - 1, 0).bit_length())
    return (block, 0) if whole < least or whole == num_labels or 8 * (whole + tail) > 7 * block else (whole, tail)


def step_plan(num_rows: int, num_labels: int, *, score_bytes: int, together: int | None) -> Plan:
    """The plan for rows of two predictions that are processed in steps. Rows of up to 8,192 labels (6,144 in float32) stay
    whole. Longer rows are divided into chunks, which wait for each other where they can (kernel "waiting"). A tile is one step
    of a program, and a segment is all its steps.

    The second pass should find the scores still in the cache of the multiprocessor. So a thread has 32 labels of half types or
    16 of float32, or fewer where steps of another size fit better. All sizes are measured.
    """
    block, half = max(16, 1 << max(num_labels - 1, 0).bit_length()), score_bytes == 2
    if num_labels <= (2 * plans.PAIR if half else 3 * plans.PAIR // 2):
        whole = block if 512 <= block < plans.PAIR else min(block, plans.PAIR) // 2
        step = max(min(block // 2, 64), block // 4 if half else whole, 16)
        while step > 64 and step * blocks(num_labels, step) > (1.125 if half else 1.2) * num_labels:
            step //= 2
        rows = max(1, min(256 // step, 1 << max(num_rows - 1, 0).bit_length())) if half or block < 512 else 1
        return Plan("rows", rows, step, 1, block, max(1, step // 256 if half else min(8, block // 512, step // 128)))
    most = plans.SEGMENTS if together is None else min(plans.SEGMENTS, together)
    longest = 1 << (blocks(num_labels, most) - 1).bit_length()
    segment = (
        plans.PAIR
        if half and num_labels <= 16 * plans.PAIR
        else (2 * plans.PAIR if half or longest > plans.PAIR // 2 else plans.PAIR // 2)
    )
    step = plans.PAIR // 4 if half or segment < plans.PAIR else plans.PAIR // 2
    cut = max(segment, longest)
    return Plan("waiting" if together else "rows", 1, step, blocks(num_labels, cut), cut, step // 256, 64)


def cut_overlaps(
    together: int | None, num_rows: int, num_labels: int, *, score_bytes: int, stage: str, lean: bool, **_: Any
) -> tuple[Plan, int]:
    """``plans.cut_rows`` for the overlap of probabilities and labels."""
    kept = 1 if lean and stage == "overlap" else 2
    cut = overlap_plan(num_rows, num_labels, score_bytes=score_bytes, together=together, kept=kept)
    return cut, blocks(num_rows, cut.rows) * cut.chunks


def overlap_plan(num_rows: int, num_labels: int, *, score_bytes: int, together: int | None, kept: int = 2) -> Plan:
    """The plan for dice loss, of which a thread keeps one float per label or two. Rows of up to 8,192 labels stay whole, and
    several short ones share a tile. Longer rows are divided into chunks, which wait for each other where they can (kernel
    "waiting"). A row that is slightly longer than a power of two is a tile of that size and a smaller one."""
    whole, tail = _split_row(num_labels, 512)
    if whole < 512:
        rows = max(1, min(2048 // whole, 1 << max(num_rows - 1, 0).bit_length()))
        return Plan("rows", rows, whole, 1, whole, max(1, rows * whole // OVERLAP_LABELS), None)
    if whole <= plans.CHUNK:
        warps = max(1, whole // (OVERLAP_MANY if kept == 1 and score_bytes == 2 else OVERLAP_LABELS))
        return Plan("rows", 1, whole, 1, whole + tail, warps, 64 if whole >= plans.BLOCK else None)
    most = 0 if together is None else min(plans.SEGMENTS, together)
    options = [(each, warps, registers) for each, warps, registers in OVERLAP_CHUNKS[kept] if each <= plans.CHUNK]
    fits = (option for option in options if blocks(num_labels, option[0]) <= most)
    chunk, warps, registers = next(fits, options[-1] if options else (plans.CHUNK, 1, 64))
    chunks = blocks(num_labels, chunk)
    return Plan("waiting" if chunks <= most else "rows", 1, chunk, chunks, chunk, warps, registers)
