"""Labelwise losses on flattened scores (CUDA): tiles ignore row boundaries, so every label count is read with 16-byte loads.

The kernel is persistent: each program loops over tiles, prefetches the next one and keeps a running sum; the last program
reduces the sums. Labels are read as bytes, or as a bitmask that is built from index lists first (``bitmask``).
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import COMPILED
from manyhot.engines.triton.rows.costs import LOWEST, bce_costs, even_cost, label_cost, lean_margin_cost, margin_cost
from manyhot.engines.triton.rows.early import start_early
from manyhot.engines.triton.rows.positives import add_positives
from manyhot.engines.triton.rows.totals import add_up, fill_slot

SIGN = tl.constexpr(-(1 << 31))


@triton.jit(do_not_specialize=("size",))
def flat_kernel(
    x, labels, out_value, out_grad, out_total, ended,
    size, scale_number, pos_number, neg_number, gamma_pos, gamma_neg, margin,
    KIND: tl.constexpr, HAS_MARGIN: tl.constexpr, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr,
    BITS: tl.constexpr, WEIGHTED: tl.constexpr, SKIPS: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr,
    LEAN: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """The sum of the costs of all labels, and the gradient, in tiles of BLOCK scores.

    WEIGHTED: a side has a weight other than 1. SKIPS: one of the weights is 0. EVEN: the size is a multiple of BLOCK. LEAN:
    ``lean_margin_cost`` serves. A thread has GROUPS groups of 16 bytes of a tile.
    """
    start_early()
    GROUP: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    program, programs = tl.program_id(0), tl.num_programs(0)
    full = (size // BLOCK).to(tl.int32)
    added = tl.zeros([BLOCK // GROUP], tl.float32)
    s, near = _read(x, labels, program, full, BITS, GROUP, BLOCK)
    for tile in tl.range(program, full, programs):
        next_s, next_near = _read(x, labels, tile + programs, full, BITS, GROUP, BLOCK)
        if LEAN:
            s = _lower_words(s, near, x.dtype.element_ty, BITS)
        added += _tile_loss(
            _unpack(s, x.dtype.element_ty, GROUP), near, x, out_grad, tile, size, scale_number, pos_number, neg_number,
            gamma_pos, gamma_neg, margin, KIND, HAS_MARGIN, POWER_POS, POWER_NEG, BITS, WEIGHTED, SKIPS, True, GROUP, BLOCK,
            LEAN, GROUPS,
        )  # fmt: skip
        s, near = next_s, next_near
    if not EVEN:  # noqa: SIM102 - a compile-time condition, then a runtime one
        if program == full % programs:
            end_s, end_near = _read_end(x, labels, full, size, BITS, GROUP, BLOCK)
            added += _tile_loss(
                end_s.to(tl.float32), end_near, x, out_grad, full, size, scale_number, pos_number, neg_number, gamma_pos,
                gamma_neg, margin, KIND, HAS_MARGIN, POWER_POS, POWER_NEG, BITS, WEIGHTED, SKIPS, False, GROUP, BLOCK,
                LEAN, GROUPS,
            )  # fmt: skip
    fill_slot(out_value, program, tl.sum(added, axis=0))
    # Costs of ``even_cost`` are scaled already.
    last_scale = 1.0 if is_even(HAS_MARGIN, POWER_POS, GROUP) else scale_number
    add_up(out_total, out_value, 0, last_scale, 0, "number", 1, "sum")


@triton.constexpr_function
def is_even(has_margin, power, group):
    """Whether ``even_cost`` serves: scores of 16 bits, and both sides have the same small whole power above 0."""
    return group == 8 and not has_margin and power > 0


@triton.jit
def _places(tile, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets of a tile's scores, ``[BLOCK // GROUP, GROUP]``."""
    groups, lanes = tl.arange(0, BLOCK // GROUP)[:, None], tl.arange(0, GROUP)[None, :]
    return tl.cast(tile, tl.int64) * BLOCK + (groups * GROUP + lanes)


@triton.jit
def _read(x, labels, tile, full, BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """The scores of a full tile in words of 32 bits, and the labels of each group in one word, a byte or a bit each. Tiles from
    the ``full``-th on are not read."""
    there = tl.zeros([BLOCK // GROUP, 1], tl.int32) + tile < full
    group = tl.cast(tile, tl.int64) * (BLOCK // GROUP) + tl.arange(0, BLOCK // GROUP)[:, None]
    s = tl.load(tl.cast(x, tl.pointer_type(tl.int32)) + (group * 4 + tl.arange(0, 4)[None, :]), mask=there, other=0)
    if BITS:
        near = _read_bits(labels, group, there, GROUP)
    else:
        # Declared not contiguous, so that Triton gives each thread the labels of its own scores.
        place = tl.cast(labels, tl.pointer_type(tl.int64 if GROUP == 8 else tl.int32)) + group
        near = tl.load(tl.max_contiguous(place, [1, 1]), mask=there, other=0)
    return s, near


@triton.jit
def _unpack(words, TYPE: tl.constexpr, GROUP: tl.constexpr):
    """The scores of words in float32."""
    if TYPE.is_fp32():
        s = words.to(tl.float32, bitcast=True)
    elif TYPE.is_bf16():
        s = tl.join(words << 16, words & -65536).to(tl.float32, bitcast=True)
        s = tl.reshape(s, [words.shape[0], GROUP])
    else:
        s = tl.join(words.to(tl.int16), (words >> 16).to(tl.int16)).to(tl.float16, bitcast=True).to(tl.float32)
        s = tl.reshape(s, [words.shape[0], GROUP])
    return s


@triton.constexpr_function
def _lowering(kind):
    """The instructions that clamp both scores of a word from below, and put that bound in place of positives.

    Operands: the word; the highest bit of the bytes of positives, for four scores each; which two bytes the word belongs to.
    """
    bound, kind = ("0xC21EC21E", "bf16x2") if kind == "bf16" else ("0xD0F0D0F0", "f16x2")
    lines = f"mov.b32 bound, {bound}; max.NaN.{kind} $0, $1, bound; prmt.b32 up, $2, $3, $4; "
    # The bound where the bit is set, else the score.
    return "{ .reg .b32 bound, up; " + lines + "lop3.b32 $0, up, bound, $0, 0xCA; }"


@triton.jit
def _lower_words(words, near, TYPE: tl.constexpr, BITS: tl.constexpr):
    """Words of two scores, clamped at LOWEST, with LOWEST in place of positives: then no negative has a cost.

    Both scores take the instructions of one. In the interpreter ``_tile_loss`` does it.
    """
    if COMPILED:
        if BITS:
            # A copy of the four bits for each byte, so shifted that its own bit is the highest. No two bits meet.
            low, high = (near & 15) * 0x10204080, (near >> 4) * 0x10204080
        else:
            low, high = _halves(_flags(near, 8))
        # The highest bits of two bytes, each for all bits of a score.
        which = 0x9988 + tl.arange(0, 4)[None, :] * 0x2222
        LOWERING: tl.constexpr = _lowering(TYPE.name)
        words = tl.inline_asm_elementwise(
            LOWERING, "=&r,r,r,r,r", [words, low, high, which], dtype=tl.int32, is_pure=True, pack=1
        )
    return words


@triton.jit
def _halves(flags):
    """The flags of the first four scores, and of the others."""
    high = tl.zeros(flags.shape, tl.int32)
    if flags.dtype == tl.int64:
        high = (flags >> 32).to(tl.int32)
    return flags.to(tl.int32), high


@triton.jit
def _read_bits(bits, group, there, GROUP: tl.constexpr):
    """The bits of each group; the bitmask is padded to full tiles."""
    near = tl.load(tl.cast(bits, tl.pointer_type(tl.uint8)) + group * GROUP // 8, mask=there, other=0).to(tl.int32)
    if GROUP == 4:
        near = (near >> (group % 2 * 4).to(tl.int32)) & 15
    return near


@triton.jit
def _read_end(x, labels, tile, size, BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """``_read`` for the last, partial tile; padding is a negative with cost 0."""
    place = _places(tile, GROUP, BLOCK)
    s = tl.load(x + place, mask=place < size, other=-float("inf"))
    if BITS:
        group = tl.cast(tile, tl.int64) * (BLOCK // GROUP) + tl.arange(0, BLOCK // GROUP)[:, None]
        near = _read_bits(labels, group, group >= 0, GROUP)
    else:
        each = tl.load(labels + place, mask=place < size, other=0).to(tl.int64 if GROUP == 8 else tl.int32)
        near = tl.sum(each << (8 * tl.arange(0, GROUP))[None, :].to(each.dtype), axis=1, keep_dims=True)
    return s, near


@triton.jit
def _flags(near, GROUP: tl.constexpr):
    """A word with the highest bit set of each byte that is not 0."""
    LOW: tl.constexpr = 0x7F7F7F7F7F7F7F7F if GROUP == 8 else 0x7F7F7F7F
    return (((near & LOW) + LOW) | near) & ~LOW


@triton.jit
def _signs(near, BITS: tl.constexpr, GROUP: tl.constexpr):
    """The sign bit for positives, 0 for negatives."""
    lanes = tl.arange(0, GROUP)[None, :]
    if BITS:
        signs = near << (31 - lanes)
    elif GROUP == 8:
        signs = (_flags(near, GROUP) >> (lanes * 8).to(tl.int64)).to(tl.int32) << 24
    else:
        signs = _flags(near, GROUP) << (24 - lanes * 8)
    return signs & SIGN


@triton.jit
def _tile_loss(
    s, near, x, out_grad, tile, size, scale, pos_number, neg_number, gamma_pos, gamma_neg, margin,
    KIND: tl.constexpr, HAS_MARGIN: tl.constexpr, POWER_POS: tl.constexpr, POWER_NEG: tl.constexpr,
    BITS: tl.constexpr, WEIGHTED: tl.constexpr, SKIPS: tl.constexpr, FULL: tl.constexpr, GROUP: tl.constexpr,
    BLOCK: tl.constexpr, LEAN: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """The cost of each group; writes the gradient."""
    place, signs = _places(tile, GROUP, BLOCK), _signs(near, BITS, GROUP)
    # The sides have different costs. Positives are rare: all labels are computed as negatives, then positives are added.
    APART: tl.constexpr = HAS_MARGIN and POWER_POS >= 0
    if APART:
        by = scale * neg_number if WEIGHTED else scale
        if LEAN:
            if not (FULL and COMPILED):
                s = tl.maximum(tl.where(signs < 0, -float("inf"), s), LOWEST, propagate_nan=tl.PropagateNan.ALL)
            cost, grad = lean_margin_cost(s, by, margin, POWER_NEG)
            cost = tl.sum(cost, axis=1)
        else:
            s = tl.where(signs < 0, -float("inf"), s)
            if SKIPS:
                s = tl.where(neg_number > 0, s, -float("inf"))
            cost, slope = margin_cost(s, margin, POWER_NEG)
            cost, grad = tl.sum(cost, axis=1) * (1.0 / max(POWER_NEG, 1)), slope * by
        if WEIGHTED:
            cost = cost * neg_number
    else:
        weight = tl.where(signs < 0, pos_number, neg_number)
        if SKIPS:
            # Entries of weight 0 are skipped, whatever their score.
            s = tl.where(weight > 0, s, 0.0)
        u = _flip(s, signs)
        if is_even(HAS_MARGIN, POWER_POS, GROUP):
            by = tl.where(signs < 0, pos_number * scale, neg_number * scale) if WEIGHTED else scale
            each, slope = even_cost(u, by, POWER_POS)
            cost = tl.sum(each, axis=1)
        elif KIND == "bce" and not WEIGHTED:
            cost, slope = bce_costs(u)
        else:
            each, slope = label_cost(u, signs < 0, gamma_pos, gamma_neg, margin, KIND, HAS_MARGIN, POWER_POS, POWER_NEG)
            cost = tl.sum(each * weight if WEIGHTED else each, axis=1)
        if is_even(HAS_MARGIN, POWER_POS, GROUP):
            grad = _flip(slope, signs)
        elif WEIGHTED:
            grad = slope * tl.where(signs < 0, -pos_number * scale, neg_number * scale)
        else:
            grad = _flip(slope * scale, signs)
    target = out_grad + place
    grad = grad.to(out_grad.dtype.element_ty)
    if FULL:
        tl.store(target, grad)
    else:
        tl.store(target, grad, mask=place < size)
    if APART:
        flags = near if BITS else _flags(near, GROUP)
        if SKIPS:
            flags = tl.where(pos_number > 0, flags, 0)
        low, high = _halves(flags)
        cost = add_positives(
            cost, low, high, signs, x, out_grad, tile, pos_number, -scale * pos_number, BITS, POWER_POS, GROUP, BLOCK, GROUPS
        )
    return cost


@triton.jit
def _flip(value, signs):
    """The value, negated where the sign bit is set."""
    return (value.to(tl.int32, bitcast=True) ^ signs).to(tl.float32, bitcast=True)
