# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Span sums where types share q and k, factorised on a CUDA device; see ``engines.plain_spans.factorised`` for the algebra.

With ``E_ij = e^{S_ij - m_i}``, ``V_ja = e^{v_a(j) - c_a}`` and ``base_ia = u_a(i) + m_i + c_a``, a first token's sum is
``e^{base_ia} (E V)_ia``. A program holds a block of first tokens and of types and iterates over the last tokens, with m and c
as running maxima. Backward: ``U_ia = g_a e^{base_ia} / sum_a``, ``dS = E o (U V^T)``, ``dv = V o (E^T U)``, ``du = U o (E V)``.

*Repair.* Within a tile the row of a type that contains listed cells is left out of the product and summed separately without
those cells: nothing is subtracted.

*Guard.* ``E V`` loses cells that underflow. Where a row's total is so small that this could matter, the type's rows of
the block are recomputed cell by cell (*direct*); a flag tells backward. Nothing waits for the device.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import exp
from manyhot.engines.triton.spans.listed import LOWEST, dot, finite, load_rows
from manyhot.engines.triton.spans.typed import along, tile_scores

# Entries examined together: as many as one warp has threads, so that a search needs no shared memory.
CHUNK = tl.constexpr(32)


@triton.jit
def next_listed(cells, num_listed, chunk, high, done, first_at, last_at, type_at,
                HELD: tl.constexpr, STEP: tl.constexpr, TYPES: tl.constexpr):  # fmt: skip
    """The first entry from ``done`` on, among CHUNK of them, that lies in the tile; ``high`` if none does."""
    places = chunk + tl.arange(0, CHUNK)
    inside = (places < high) & (places >= done)
    kind = tl.load(cells + places, mask=inside, other=-1)
    first = tl.load(cells + num_listed + places, mask=inside, other=-1)
    last = tl.load(cells + 2 * num_listed + places, mask=inside, other=-1)
    inside = inside & (kind >= type_at) & (kind < type_at + TYPES) & (first >= first_at) & (first < first_at + HELD)
    inside = inside & (last >= last_at) & (last < last_at + STEP)
    return tl.min(tl.where(inside, places, high), axis=0)


@triton.jit
def hide_listed(tile, cells, num_listed, low, high, first_at, last_at, kind, rows, columns,
                HELD: tl.constexpr, STEP: tl.constexpr):  # fmt: skip
    """-inf at the listed cells of one type."""
    for chunk in range(low, high, CHUNK):
        place = next_listed(cells, num_listed, chunk, high, low, first_at, last_at, kind, HELD, STEP, 1)
        while place < high:
            first, last = tl.load(cells + num_listed + place), tl.load(cells + 2 * num_listed + place)
            tile = tl.where((rows == first)[:, None] & (columns == last)[None, :], LOWEST, tile)
            place = next_listed(cells, num_listed, chunk, high, place + 1, first_at, last_at, kind, HELD, STEP, 1)
    return tile


@triton.jit
def ends(part, row, kinds, tokens, length, num_types, sign, by_row, by_type, by_token):
    """u or v ``[tokens, types]`` with the sign of the side, -inf where there is none."""
    inside = (tokens < length)[:, None] & (kinds < num_types)[None, :]
    place = kinds[None, :] * by_type + tokens[:, None] * by_token
    return tl.where(inside, tl.load(part + row * by_row + place, mask=inside, other=0.0).to(tl.float32) * sign, LOWEST)


@triton.jit
def end(part, row, kind, tokens, length, sign, by_row, by_type, by_token):
    """u or v ``[tokens]`` of one type, -inf at padding."""
    inside = tokens < length
    place = kind * by_type + tokens * by_token
    return tl.where(inside, tl.load(part + row * by_row + place, mask=inside, other=0.0).to(tl.float32) * sign, LOWEST)


@triton.jit
def repaired_sums(
    sums, ratios, v, c, cells, num_listed, low, high, row, first_at, last_at, type_at, rows, columns, kinds, length, sign,
    v_row, v_type, v_token, HELD: tl.constexpr, STEP: tl.constexpr, TYPES: tl.constexpr,
):  # fmt: skip
    """The tile's ``E V``, rows of a type that hold listed cells summed without those."""
    done = low
    for chunk in range(low, high, CHUNK):
        place = next_listed(cells, num_listed, chunk, high, done, first_at, last_at, type_at, HELD, STEP, TYPES)
        while place < high:
            kind, first = tl.load(cells + place), tl.load(cells + num_listed + place)
            here = (rows == first)[:, None]
            terms = tl.sum(tl.where(here, ratios, 0.0), axis=0)
            lift = tl.sum(tl.where(kinds == kind, c, 0.0), axis=0)
            terms = terms * exp(end(v, row, kind, columns, length, sign, v_row, v_type, v_token) - lift)
            done = place
            same = done < high
            while same:
                terms = tl.where(columns == tl.load(cells + 2 * num_listed + done), 0.0, terms)
                done += 1
                inside = done < high
                same = inside & (tl.load(cells + done, mask=inside, other=-1) == kind)
                same = same & (tl.load(cells + num_listed + done, mask=inside, other=-1) == first)
            sums = tl.where(here & (kinds == kind)[None, :], tl.sum(terms, axis=0), sums)
            place = next_listed(cells, num_listed, chunk, high, done, first_at, last_at, type_at, HELD, STEP, TYPES)
    return sums


@triton.jit(do_not_specialize=["num_types", "num_listed", "num_blocks"])
def shared_sums_kernel(
    q, k, u, v, lengths, cells, starts, peaks, lifts, flags, tops, sums,
    num_types, num_tokens, num_listed, head, num_blocks, type_blocks, scale, sign, limit,
    q_row, q_token, k_row, k_token, u_row, u_type, u_token, v_row, v_type, v_token,
    TRIANGLE: tl.constexpr, LISTED: tl.constexpr, PRECISION: tl.constexpr, D: tl.constexpr,
    HELD: tl.constexpr, STEP: tl.constexpr, TYPES: tl.constexpr,
):  # fmt: skip
    """Base and total of each first token and type ``[B, H, T]``. Saves m in ``peaks [B, T]``, c in ``lifts``, and in ``flags``
    which types of the block were computed cell by cell."""
    type_at = tl.program_id(0) % type_blocks * TYPES
    block = tl.program_id(0) // type_blocks % num_blocks
    row = (tl.program_id(0) // type_blocks // num_blocks).to(tl.int64)
    length = tl.minimum(tl.load(lengths + row), num_tokens).to(tl.int32)
    start = block * HELD
    rows, kinds = start + tl.arange(0, HELD), type_at + tl.arange(0, TYPES)
    q += row * q_row
    k += row * k_row
    held = load_rows(q, rows, q_token, rows < length, head, D)
    m, c = tl.full([HELD], LOWEST, tl.float32), tl.full([TYPES], LOWEST, tl.float32)
    total = tl.zeros([HELD, TYPES], tl.float32)
    first, stop = along(start, length, TRIANGLE, False, HELD, STEP)
    low, high = start * 0, start * 0
    if LISTED:
        low, high = tl.load(starts + row * num_types), tl.load(starts + (row + 1) * num_types)
    for at in range(first, stop, STEP):
        columns = at + tl.arange(0, STEP)
        other = load_rows(k, columns, k_token, columns < length, head, D)
        tile = tile_scores(held, other, rows, columns, length, scale, TRIANGLE, False, PRECISION)
        weights = ends(v, row, kinds, columns, length, num_types, sign, v_row, v_type, v_token)
        m_new, c_new = tl.maximum(m, tl.max(tile, axis=1)), tl.maximum(c, tl.max(weights, axis=0))
        m_shift, c_shift = finite(m_new), finite(c_new)
        ratios, weights = exp(tile - m_shift[:, None]), exp(weights - c_shift[None, :])
        here = dot(ratios, weights, "tf32x3")
        if LISTED:
            here = repaired_sums(here, ratios, v, c_shift, cells, num_listed, low, high, row, start, at, type_at, rows, columns,
                                 kinds, length, sign, v_row, v_type, v_token, HELD, STEP, TYPES)  # fmt: skip
        total = total * exp(m - m_shift)[:, None] * exp(c - c_shift)[None, :] + here
        m, c = m_new, c_new
    m, c = finite(m), finite(c)
    ours = (rows < length)[:, None] & (kinds < num_types)[None, :]
    base = (
        m[:, None]
        + c[None, :]
        + tl.where(ours, ends(u, row, kinds, rows, length, num_types, sign, u_row, u_type, u_token), 0.0)
    )
    base = tl.where(ours, base, 0.0)
    doubt = tl.max(tl.where(ours & (total <= limit), 1, 0), axis=0)
    kind = tl.min(tl.where(doubt > 0, kinds, type_at + TYPES), axis=0)
    while kind < type_at + TYPES:
        own = tl.full([HELD], LOWEST, tl.float32)
        rest = tl.zeros([HELD], tl.float32)
        mine = end(u, row, kind, rows, length, sign, u_row, u_type, u_token)
        for at in range(first, stop, STEP):
            columns = at + tl.arange(0, STEP)
            other = load_rows(k, columns, k_token, columns < length, head, D)
            tile = tile_scores(held, other, rows, columns, length, scale, TRIANGLE, False, PRECISION)
            theirs = end(v, row, kind, columns, length, sign, v_row, v_type, v_token)
            tile = tile + mine[:, None] + theirs[None, :]
            if LISTED:
                tile = hide_listed(tile, cells, num_listed, low, high, start, at, kind, rows, columns, HELD, STEP)
            highest = tl.maximum(own, tl.max(tile, axis=1))
            shift = finite(highest)
            rest = rest * exp(own - shift) + tl.sum(exp(tile - shift[:, None]), axis=1)
            own = highest
        here = (kinds == kind)[None, :]
        base = tl.where(here, finite(own)[:, None], base)
        total = tl.where(here, rest[:, None], total)
        kind = tl.min(tl.where((doubt > 0) & (kinds > kind), kinds, type_at + TYPES), axis=0)
    inside = (rows < num_tokens)[:, None] & (kinds < num_types)[None, :]
    place = row * num_types * num_tokens
    target = kinds[None, :] * num_tokens + rows[:, None]
    tl.store(tops + place + target, base, mask=inside)
    tl.store(sums + place + target, tl.where(ours, total, 0.0), mask=inside)
    tl.store(peaks + row * num_tokens + rows, m, mask=rows < tl.where(type_at == 0, num_tokens, 0))
    tl.store(lifts + (row * num_blocks + block) * num_types + kinds, c, mask=kinds < num_types)
    tl.store(flags + (row * num_blocks + block) * num_types + kinds, doubt, mask=kinds < num_types)
