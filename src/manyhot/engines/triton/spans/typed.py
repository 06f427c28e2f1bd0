# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Span sums where each type has its own q and k, by tiles on a CUDA device; backward recomputes the tiles.

A program holds a block of first tokens of one (row, type) and iterates over the last tokens. For the sums it keeps a maximum
and a total for each first token; for ``dq`` it adds up ``W k``, ``W = g e^s / sum``. For ``dk`` a program holds last tokens and
iterates over the first ones: the same loop with q and k exchanged (FLIP). Each output has one writer, so results are the same
every time. A listed cell is masked in the sums and adds its own term to the gradients.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import exp
from manyhot.engines.triton.spans.listed import LOWEST, dot, finite, load_rows, own_pull, side_state


@triton.jit
def tile_scores(held, other, mine, theirs, length, scale, TRIANGLE: tl.constexpr, FLIP: tl.constexpr, PRECISION: tl.constexpr):
    """The scores of a tile, -inf where a cell does not count."""
    scores = dot(held, tl.trans(other), PRECISION) * scale
    counts = (theirs < length)[None, :] & (mine < length)[:, None]
    if TRIANGLE:
        forwards = theirs[None, :] <= mine[:, None] if FLIP else mine[:, None] <= theirs[None, :]
        counts = counts & forwards
    return tl.where(counts, scores, LOWEST)


@triton.jit
def along(start, length, TRIANGLE: tl.constexpr, FLIP: tl.constexpr, HELD: tl.constexpr, STEP: tl.constexpr):
    """The range of the loop for the block that starts at ``start``."""
    first, stop = start * 0, length
    if TRIANGLE:
        if FLIP:
            stop = tl.minimum(start + HELD, length)
        else:
            first = start // STEP * STEP
    return first, tl.where(start < length, stop, first)


@triton.jit
def add_tile_sums(
    top, total, held, k, k_token, cells, num_listed, low, high, mine, theirs, length, head, scale,
    TRIANGLE: tl.constexpr, LISTED: tl.constexpr, PRECISION: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Update the maximum and the total of each first token by one tile."""
    other = load_rows(k, theirs, k_token, theirs < length, head, D)
    scores = tile_scores(held, other, mine, theirs, length, scale, TRIANGLE, False, PRECISION)
    if LISTED:
        for place in range(low, high):
            first, last = tl.load(cells + num_listed + place), tl.load(cells + 2 * num_listed + place)
            if (last >= tl.min(theirs)) & (last <= tl.max(theirs)):
                scores = tl.where((mine == first)[:, None] & (theirs == last)[None, :], LOWEST, scores)
    highest = tl.maximum(top, tl.max(scores, axis=1))
    shift = finite(highest)
    return highest, total * exp(top - shift) + tl.sum(exp(scores - shift[:, None]), axis=1)


@triton.jit(do_not_specialize=["num_types", "num_listed", "num_blocks"])
def typed_sums_kernel(
    q, k, lengths, cells, starts, tops, sums,
    num_types, num_tokens, num_listed, head, num_blocks, scale, q_row, q_type, q_token, k_row, k_type, k_token,
    TRIANGLE: tl.constexpr, LISTED: tl.constexpr, PRECISION: tl.constexpr, D: tl.constexpr,
    HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """``sum e^s`` over the counted, unlisted cells of a block of first tokens, as (top, total)."""
    block = tl.program_id(0) % num_blocks
    problem = (tl.program_id(0) // num_blocks).to(tl.int64)
    row, kind = problem // num_types, problem % num_types
    length = tl.minimum(tl.load(lengths + row), num_tokens).to(tl.int32)
    start = block * HELD
    mine = start + tl.arange(0, HELD)
    q += row * q_row + kind * q_type
    k += row * k_row + kind * k_type
    held = load_rows(q, mine, q_token, mine < length, head, D)
    top, total = tl.full([HELD], LOWEST, tl.float32), tl.zeros([HELD], tl.float32)
    first, stop = along(start, length, TRIANGLE, False, HELD, STEP)
    low, high = start * 0, start * 0
    if LISTED:
        low, high = tl.load(starts + tl.program_id(0)), tl.load(starts + tl.program_id(0) + 1)
    # A nested loop prevents prefetching, so blocks without listed cells have a separate loop.
    if low < high:
        for at in range(first, stop, STEP):
            theirs = at + tl.arange(0, STEP)
            top, total = add_tile_sums(
                top, total, held, k, k_token, cells, num_listed, low, high, mine, theirs, length, head, scale,
                TRIANGLE, True, PRECISION, D,
            )  # fmt: skip
    else:
        for at in range(first, stop, STEP):
            theirs = at + tl.arange(0, STEP)
            top, total = add_tile_sums(
                top, total, held, k, k_token, cells, num_listed, low, high, mine, theirs, length, head, scale,
                TRIANGLE, False, PRECISION, D,
            )  # fmt: skip
    highest = finite(tl.max(top, axis=0))
    tl.store(tops + tl.program_id(0), highest)
    tl.store(sums + tl.program_id(0), tl.sum(total * exp(top - highest), axis=0))


@triton.jit
def add_tile_pulls(
    pulls, held, others, other_token, state, cells, scores, values, num_problems, num_listed, problem, low, high,
    mine, theirs, length, head, scale, smoothing, shift, rest, factor,
    TRIANGLE: tl.constexpr, FLIP: tl.constexpr, LISTED: tl.constexpr, OWN: tl.constexpr, SOFT: tl.constexpr,
    PRECISION: tl.constexpr, GRAD: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """``W k`` (FLIP: ``W^T q``) of a tile, added to ``pulls``."""
    other = load_rows(others, theirs, other_token, theirs < length, head, D)
    tile = tile_scores(held, other, mine, theirs, length, scale, TRIANGLE, FLIP, PRECISION)
    tile = exp((tile - shift) - rest) * factor
    if LISTED:
        for place in range(low, high):
            first, last = tl.load(cells + num_listed + place), tl.load(cells + 2 * num_listed + place)
            my, their = (last, first) if FLIP else (first, last)
            near = (my >= tl.min(mine)) & (my <= tl.max(mine)) & (their >= tl.min(theirs)) & (their <= tl.max(theirs))
            if near:
                pull = 0.0
                if OWN:
                    pull = own_pull(state, scores, values, place, problem, num_problems, smoothing, SOFT)
                tile = tl.where((mine == my)[:, None] & (theirs == their)[None, :], pull, tile)
    if GRAD == "bf16":
        pulls += tl.dot(tile.to(tl.bfloat16), other)
    else:
        pulls += dot(tile, other.to(tl.float32), GRAD)
    return pulls


@triton.jit
def sweep_pulls(
    held_part, others, out, state, lengths, cells, scores, values, starts,
    num_problems, num_types, num_tokens, num_listed, head, num_blocks, list_blocks, program, scale, smoothing,
    held_row, held_type, held_token, other_row, other_type, other_token, out_row, out_type, out_token,
    TRIANGLE: tl.constexpr, FLIP: tl.constexpr, LISTED: tl.constexpr, OWN: tl.constexpr, SOFT: tl.constexpr,
    PRECISION: tl.constexpr, GRAD: tl.constexpr, D: tl.constexpr, HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The gradient of one block of q (FLIP: of k)."""
    problem = (program // num_blocks).to(tl.int64)
    row, kind = problem // num_types, problem % num_types
    length = tl.minimum(tl.load(lengths + row), num_tokens).to(tl.int32)
    start = program % num_blocks * HELD
    mine = start + tl.arange(0, HELD)
    held_part += row * held_row + kind * held_type
    others += row * other_row + kind * other_type
    held = load_rows(held_part, mine, held_token, mine < length, head, D)
    if OWN:
        shift, rest, factor = side_state(state, problem, num_problems, True, 1)
        factor = factor * (1.0 - smoothing / 2)
    else:
        shift, rest, factor = side_state(state, problem, num_problems, True, 0)
        factor = factor * (smoothing / 2)
    pulls = tl.zeros([HELD, D], tl.float32)
    first, stop = along(start, length, TRIANGLE, FLIP, HELD, STEP)
    low, high = start * 0, start * 0
    if LISTED:
        low, high = tl.load(starts + problem * list_blocks), tl.load(starts + (problem + 1) * list_blocks)
    if low < high:
        for at in range(first, stop, STEP):
            theirs = at + tl.arange(0, STEP)
            pulls = add_tile_pulls(
                pulls, held, others, other_token, state, cells, scores, values, num_problems, num_listed, problem, low, high,
                mine, theirs, length, head, scale, smoothing, shift, rest, factor,
                TRIANGLE, FLIP, True, OWN, SOFT, PRECISION, GRAD, D,
            )  # fmt: skip
    else:
        for at in range(first, stop, STEP):
            theirs = at + tl.arange(0, STEP)
            pulls = add_tile_pulls(
                pulls, held, others, other_token, state, cells, scores, values, num_problems, num_listed, problem, low, high,
                mine, theirs, length, head, scale, smoothing, shift, rest, factor,
                TRIANGLE, FLIP, False, OWN, SOFT, PRECISION, GRAD, D,
            )  # fmt: skip
    features = tl.arange(0, D)
    target = out + row * out_row + kind * out_type + (mine[:, None] * out_token + features[None, :])
    inside = (mine < num_tokens)[:, None] & (features < head)[None, :]
    pulls = pulls * scale
    if not OWN:
        pulls += tl.load(target, mask=inside, other=0.0)
    tl.store(target, pulls.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_problems", "num_types", "num_listed", "num_blocks", "list_blocks"])
def typed_pulls_kernel(
    q, k, out_q, out_k, state, lengths, cells, scores, values, starts,
    num_problems, num_types, num_tokens, num_listed, head, num_blocks, list_blocks, scale, smoothing,
    q_row, q_type, q_token, k_row, k_type, k_token, oq_row, oq_type, oq_token, ok_row, ok_type, ok_token,
    TRIANGLE: tl.constexpr, LISTED: tl.constexpr, OWN: tl.constexpr, SOFT: tl.constexpr,
    PRECISION: tl.constexpr, GRAD: tl.constexpr, D: tl.constexpr, HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Gradients of q by the first half of the programs, of k by the second. With OWN, those of the negatives and of
    listed cells; without, those of the background of the positives, added to the outputs."""
    program = tl.program_id(0)
    half = num_problems * num_blocks
    if program < half:
        sweep_pulls(
            q, k, out_q, state, lengths, cells, scores, values, starts,
            num_problems, num_types, num_tokens, num_listed, head, num_blocks, list_blocks, program, scale, smoothing,
            q_row, q_type, q_token, k_row, k_type, k_token, oq_row, oq_type, oq_token,
            TRIANGLE, False, LISTED, OWN, SOFT, PRECISION, GRAD, D, HELD, STEP,
        )  # fmt: skip
    else:
        sweep_pulls(
            k, q, out_k, state, lengths, cells, scores, values, starts,
            num_problems, num_types, num_tokens, num_listed, head, num_blocks, list_blocks, program - half, scale, smoothing,
            k_row, k_type, k_token, q_row, q_type, q_token, ok_row, ok_type, ok_token,
            TRIANGLE, True, LISTED, OWN, SOFT, PRECISION, GRAD, D, HELD, STEP,
        )  # fmt: skip
