# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Gradients of span scores whose types share q and k, on a CUDA device; the algebra is with the sums, in
``manyhot.engines.triton.spans.shared``.

There are two kinds of programs. The first kind holds a block of first tokens and iterates over the last tokens, for dq and du.
The second kind holds last tokens and iterates over the first ones, for dk and dv. Both recompute the tiles. Each output has one
writer, so results are the same every time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import exp
from manyhot.engines.triton.spans.listed import dot, load_rows, own_pull, side_state
from manyhot.engines.triton.spans.shared import CHUNK, end, ends, next_listed
from manyhot.engines.triton.spans.typed import along, tile_scores

ANYWHERE = tl.constexpr(1 << 30)


@triton.jit
def product_pulls(
    tile_pulls, type_pulls, ratios, doubt, v, state, cells, scores, values, lifts, tops,
    num_problems, num_types, num_tokens, num_listed, low, high, row, block_place, first_at, last_at, type_at,
    rows, columns, kinds, length, sign, smoothing, v_row, v_type, v_token,
    ENDS: tl.constexpr, LISTED: tl.constexpr, OWN: tl.constexpr, SOFT: tl.constexpr, GRAD: tl.constexpr,
    HELD: tl.constexpr, STEP: tl.constexpr, TYPES: tl.constexpr,
):  # fmt: skip
    """Add ``dS`` and, if ENDS, ``dv`` of a tile and a block of types, through matrix products. A type's row with listed cells
    is left out of the product and added separately."""
    ours = (rows < length)[:, None] & (kinds < num_types)[None, :]
    problems = row * num_types + kinds
    shift, rest, factor = side_state(state, problems, num_problems, kinds < num_types, 1 if OWN else 0)
    factor = factor * (1.0 - smoothing / 2 if OWN else smoothing / 2)
    base = tl.load(tops + row * num_types * num_tokens + (kinds[None, :] * num_tokens + rows[:, None]), mask=ours, other=0.0)
    pull = tl.where(ours & (doubt == 0)[None, :], exp((base - shift[None, :]) - rest[None, :]) * factor[None, :], 0.0)
    c = tl.load(lifts + block_place * num_types + kinds, mask=kinds < num_types, other=0.0)
    weights = exp(ends(v, row, kinds, columns, length, num_types, sign, v_row, v_type, v_token) - c[None, :])
    kept = pull
    if LISTED:
        done = low
        for chunk in range(low, high, CHUNK):
            place = next_listed(cells, num_listed, chunk, high, done, first_at, last_at, type_at, HELD, STEP, TYPES)
            while place < high:
                kind, first = tl.load(cells + place), tl.load(cells + num_listed + place)
                here = (rows == first)[:, None]
                lift = tl.sum(tl.where(kinds == kind, c, 0.0), axis=0)
                line = exp(end(v, row, kind, columns, length, sign, v_row, v_type, v_token) - lift)
                line = line * tl.sum(tl.where(here, ratios, 0.0), axis=0)
                line = line * tl.sum(tl.sum(tl.where(here & (kinds == kind)[None, :], pull, 0.0), axis=1), axis=0)
                done = place
                same = done < high
                while same:
                    own = 0.0
                    if OWN:
                        own = own_pull(state, scores, values, done, row * num_types + kind, num_problems, smoothing, SOFT)
                    line = tl.where(columns == tl.load(cells + 2 * num_listed + done), own, line)
                    done += 1
                    inside = done < high
                    same = inside & (tl.load(cells + done, mask=inside, other=-1) == kind)
                    same = same & (tl.load(cells + num_listed + done, mask=inside, other=-1) == first)
                line = tl.where(tl.max(tl.where(kinds == kind, doubt, 0), axis=0) == 0, line, 0.0)
                kept = tl.where(here & (kinds == kind)[None, :], 0.0, kept)
                tile_pulls = tl.where(here, tile_pulls + line[None, :], tile_pulls)
                if ENDS:
                    type_pulls = tl.where((kinds == kind)[None, :], type_pulls + line[:, None], type_pulls)
                place = next_listed(cells, num_listed, chunk, high, done, first_at, last_at, type_at, HELD, STEP, TYPES)
    tile_pulls += ratios * dot(kept, tl.trans(weights), GRAD)
    if ENDS:
        type_pulls += weights * dot(tl.trans(ratios), kept, GRAD)
    return tile_pulls, type_pulls


@triton.jit
def direct_pulls(
    tile_pulls, type_pulls, tile, doubt, u, v, state, cells, scores, values,
    num_problems, num_types, num_listed, low, high, row, first_at, last_at, type_at,
    rows, columns, kinds, length, sign, smoothing, u_row, u_type, u_token, v_row, v_type, v_token,
    LISTED: tl.constexpr, OWN: tl.constexpr, SOFT: tl.constexpr, HELD: tl.constexpr, STEP: tl.constexpr, TYPES: tl.constexpr,
):  # fmt: skip
    """Add ``dS`` and ``dv`` of a tile and of the types in ``doubt``, cell by cell."""
    kind = tl.min(tl.where(doubt > 0, kinds, type_at + TYPES), axis=0)
    while kind < type_at + TYPES:
        problem = row * num_types + kind
        shift, rest, factor = side_state(state, problem, num_problems, True, 1 if OWN else 0)
        factor = factor * (1.0 - smoothing / 2 if OWN else smoothing / 2)
        mine = end(u, row, kind, rows, length, sign, u_row, u_type, u_token)
        theirs = end(v, row, kind, columns, length, sign, v_row, v_type, v_token)
        pull = exp(((tile + mine[:, None] + theirs[None, :]) - shift) - rest) * factor
        if LISTED:
            for chunk in range(low, high, CHUNK):
                place = next_listed(cells, num_listed, chunk, high, low, first_at, last_at, kind, HELD, STEP, 1)
                while place < high:
                    first, last = tl.load(cells + num_listed + place), tl.load(cells + 2 * num_listed + place)
                    own = 0.0
                    if OWN:
                        own = own_pull(state, scores, values, place, problem, num_problems, smoothing, SOFT)
                    pull = tl.where((rows == first)[:, None] & (columns == last)[None, :], own, pull)
                    place = next_listed(cells, num_listed, chunk, high, place + 1, first_at, last_at, kind, HELD, STEP, 1)
        tile_pulls += pull
        type_pulls = tl.where((kinds == kind)[None, :], type_pulls + tl.sum(pull, axis=0)[:, None], type_pulls)
        kind = tl.min(tl.where((doubt > 0) & (kinds > kind), kinds, type_at + TYPES), axis=0)
    return tile_pulls, type_pulls


@triton.jit
def tile_and_type_pulls(
    tile_pulls, type_pulls, tile, peak, u, v, state, cells, scores, values, lifts, flags, tops,
    num_problems, num_types, num_tokens, num_listed, low, high, row, block_place, first_at, last_at, type_at,
    rows, columns, length, sign, smoothing, u_row, u_type, u_token, v_row, v_type, v_token,
    ENDS: tl.constexpr, LISTED: tl.constexpr, OWN: tl.constexpr, SOFT: tl.constexpr, GRAD: tl.constexpr,
    HELD: tl.constexpr, STEP: tl.constexpr, TYPES: tl.constexpr,
):  # fmt: skip
    """Add ``dS`` and, if ENDS, ``dv`` of a tile and a block of types, each type in the way its sums were computed."""
    kinds = type_at + tl.arange(0, TYPES)
    doubt = tl.load(flags + block_place * num_types + kinds, mask=kinds < num_types, other=0)
    tile_pulls, type_pulls = product_pulls(
        tile_pulls, type_pulls, exp(tile - peak[:, None]), doubt, v, state, cells, scores, values, lifts, tops,
        num_problems, num_types, num_tokens, num_listed, low, high, row, block_place, first_at, last_at, type_at,
        rows, columns, kinds, length, sign, smoothing, v_row, v_type, v_token,
        ENDS, LISTED, OWN, SOFT, GRAD, HELD, STEP, TYPES,
    )  # fmt: skip
    tile_pulls, type_pulls = direct_pulls(
        tile_pulls, type_pulls, tile, doubt, u, v, state, cells, scores, values,
        num_problems, num_types, num_listed, low, high, row, first_at, last_at, type_at,
        rows, columns, kinds, length, sign, smoothing, u_row, u_type, u_token, v_row, v_type, v_token,
        LISTED, OWN, SOFT, HELD, STEP, TYPES,
    )  # fmt: skip
    return tile_pulls, type_pulls


@triton.jit
def store(out, place, values, inside, OWN: tl.constexpr):
    """Write the values; without OWN, add them to those in ``out``."""
    if not OWN:
        values += tl.load(out + place, mask=inside, other=0.0)
    tl.store(out + place, values.to(out.dtype.element_ty), mask=inside)


@triton.jit
def first_token_pulls(
    out, state, cells, scores, values, tops, sums, num_problems, num_types, num_tokens, num_listed, low, high, row, first_at,
    type_at, rows, length, sign, smoothing, out_row, out_type, out_token,
    LISTED: tl.constexpr, OWN: tl.constexpr, SOFT: tl.constexpr, HELD: tl.constexpr, TYPES: tl.constexpr,
):  # fmt: skip
    """``du`` of a block of first tokens and types: the share of each in the sum, and its listed cells."""
    kinds = type_at + tl.arange(0, TYPES)
    ours = (rows < length)[:, None] & (kinds < num_types)[None, :]
    problems = row * num_types + kinds
    shift, rest, factor = side_state(state, problems, num_problems, kinds < num_types, 1 if OWN else 0)
    factor = factor * (1.0 - smoothing / 2 if OWN else smoothing / 2)
    cell = kinds[None, :] * num_tokens + rows[:, None]
    base = tl.load(tops + row * num_types * num_tokens + cell, mask=ours, other=0.0)
    total = tl.load(sums + row * num_types * num_tokens + cell, mask=ours, other=0.0)
    pull = tl.where(ours & (total != 0), exp((base - shift[None, :]) - rest[None, :]) * total * factor[None, :], 0.0) * sign
    if LISTED and OWN:
        for chunk in range(low, high, CHUNK):
            place = next_listed(cells, num_listed, chunk, high, low, first_at, 0, type_at, HELD, ANYWHERE, TYPES)
            while place < high:
                kind, first = tl.load(cells + place), tl.load(cells + num_listed + place)
                own = own_pull(state, scores, values, place, row * num_types + kind, num_problems, smoothing, SOFT)
                pull = tl.where((rows == first)[:, None] & (kinds == kind)[None, :], pull + own, pull)
                place = next_listed(cells, num_listed, chunk, high, place + 1, first_at, 0, type_at, HELD, ANYWHERE, TYPES)
    inside = (rows < num_tokens)[:, None] & (kinds < num_types)[None, :]
    store(out + row * out_row, kinds[None, :] * out_type + rows[:, None] * out_token, pull, inside, OWN)


@triton.jit(do_not_specialize=["num_problems", "num_types", "num_listed", "num_blocks", "row_programs"])
def shared_pulls_kernel(
    q, k, u, v, out_q, out_k, out_u, out_v, state, lengths, cells, scores, values, starts, peaks, lifts, flags, tops, sums,
    num_problems, num_types, num_tokens, num_listed, head, num_blocks, type_blocks, row_programs, scale, sign, smoothing,
    q_row, q_token, k_row, k_token, u_row, u_type, u_token, v_row, v_type, v_token,
    oq_row, oq_token, ok_row, ok_token, ou_row, ou_type, ou_token, ov_row, ov_type, ov_token,
    TRIANGLE: tl.constexpr, LISTED: tl.constexpr, OWN: tl.constexpr, SOFT: tl.constexpr,
    PRECISION: tl.constexpr, GRAD: tl.constexpr, D: tl.constexpr, HELD: tl.constexpr, TYPES: tl.constexpr, MORE: tl.constexpr,
):  # fmt: skip
    """Gradients of q, k, u and v. With OWN, those of the negatives and of listed cells; without, those of the background of the
    positives, added to the outputs. MORE: there is more than one block of types."""
    flip = tl.program_id(0) >= row_programs
    program = tl.where(flip, tl.program_id(0) - row_programs, tl.program_id(0) * type_blocks)
    own_at = program % type_blocks * TYPES
    block = program // type_blocks % num_blocks
    row = (program // type_blocks // num_blocks).to(tl.int64)
    length = tl.minimum(tl.load(lengths + row), num_tokens).to(tl.int32)
    start = block * HELD
    mine = start + tl.arange(0, HELD)
    q += row * q_row
    k += row * k_row
    low, high = start * 0, start * 0
    if LISTED:
        low, high = tl.load(starts + row * num_types), tl.load(starts + (row + 1) * num_types)
    features = tl.arange(0, D)
    inside = (mine < num_tokens)[:, None] & (features < head)[None, :]
    pulls = tl.zeros([HELD, D], tl.float32)
    if flip:
        held = load_rows(k, mine, k_token, mine < length, head, D)
        first, stop = along(start, length, TRIANGLE, True, HELD, HELD)
        type_pulls = tl.zeros([HELD, TYPES], tl.float32)
        for at in range(first, stop, HELD):
            rows = at + tl.arange(0, HELD)
            other = load_rows(q, rows, q_token, rows < length, head, D)
            tile = tile_scores(other, held, rows, mine, length, scale, TRIANGLE, False, PRECISION)
            peak = tl.load(peaks + row * num_tokens + rows, mask=rows < length, other=0.0)
            block_place = row * num_blocks + at // HELD
            tile_pulls, type_pulls = tile_and_type_pulls(
                tl.zeros([HELD, HELD], tl.float32), type_pulls, tile, peak,
                u, v, state, cells, scores, values, lifts, flags, tops,
                num_problems, num_types, num_tokens, num_listed, low, high, row, block_place, at, start, own_at,
                rows, mine, length, sign, smoothing, u_row, u_type, u_token, v_row, v_type, v_token,
                True, LISTED, OWN, SOFT, GRAD, HELD, HELD, TYPES,
            )  # fmt: skip
            if own_at == 0:
                if MORE:
                    for type_at in range(TYPES, num_types, TYPES):
                        tile_pulls, _ = tile_and_type_pulls(
                            tile_pulls, tl.zeros([HELD, TYPES], tl.float32), tile, peak,
                            u, v, state, cells, scores, values, lifts, flags, tops,
                            num_problems, num_types, num_tokens, num_listed, low, high, row, block_place, at, start,
                            type_at, rows, mine, length, sign, smoothing, u_row, u_type, u_token, v_row, v_type, v_token,
                            False, LISTED, OWN, SOFT, GRAD, HELD, HELD, TYPES,
                        )  # fmt: skip
                pulls += dot(tl.trans(tile_pulls), other.to(tl.float32), GRAD)
        if own_at == 0:
            store(out_k + row * ok_row, mine[:, None] * ok_token + features[None, :], pulls * scale, inside, OWN)
        kinds = own_at + tl.arange(0, TYPES)
        theirs = (mine < num_tokens)[:, None] & (kinds < num_types)[None, :]
        store(out_v + row * ov_row, kinds[None, :] * ov_type + mine[:, None] * ov_token, type_pulls * sign, theirs, OWN)
    else:
        held = load_rows(q, mine, q_token, mine < length, head, D)
        first, stop = along(start, length, TRIANGLE, False, HELD, HELD)
        peak = tl.load(peaks + row * num_tokens + mine, mask=mine < length, other=0.0)
        for at in range(first, stop, HELD):
            columns = at + tl.arange(0, HELD)
            other = load_rows(k, columns, k_token, columns < length, head, D)
            tile = tile_scores(held, other, mine, columns, length, scale, TRIANGLE, False, PRECISION)
            tile_pulls = tl.zeros([HELD, HELD], tl.float32)
            for type_at in range(0, num_types, TYPES):
                tile_pulls, _ = tile_and_type_pulls(
                    tile_pulls, tl.zeros([HELD, TYPES], tl.float32), tile, peak,
                    u, v, state, cells, scores, values, lifts, flags, tops,
                    num_problems, num_types, num_tokens, num_listed, low, high, row, row * num_blocks + block, start, at,
                    type_at, mine, columns, length, sign, smoothing, u_row, u_type, u_token, v_row, v_type, v_token,
                    False, LISTED, OWN, SOFT, GRAD, HELD, HELD, TYPES,
                )  # fmt: skip
            pulls += dot(tile_pulls, other.to(tl.float32), GRAD)
        store(out_q + row * oq_row, mine[:, None] * oq_token + features[None, :], pulls * scale, inside, OWN)
        for type_at in range(0, num_types, TYPES):
            first_token_pulls(
                out_u, state, cells, scores, values, tops, sums, num_problems, num_types, num_tokens, num_listed, low, high,
                row, start, type_at, mine, length, sign, smoothing, ou_row, ou_type, ou_token,
                LISTED, OWN, SOFT, HELD, TYPES,
            )  # fmt: skip
