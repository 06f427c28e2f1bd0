"""Costs of positives, in a loop over the set bits of each group (CUDA).

Positives are rare: ``flat`` computes every label as a negative without branching, and this loop adds the positives.
"""

from __future__ import annotations

import struct

import triton
import triton.language as tl

from manyhot.engines.triton.math import COMPILED, LOG1P_UNIT, digest
from manyhot.engines.triton.rows.costs import one_cost

_REGISTERS = """
.reg .pred none, up; .reg .b32 left, flag, place, more, high; .reg .b64 from, to, apart; .reg .b16 half;
.reg .f32 s, u, e, r, q, c, w, y, z;
"""
# The bytes of eight flags as bits: multiplied so, the highest bits of four bytes meet in the highest four bits.
_GATHER = """
mul.lo.u32 {into}, {low}, 0x204081; mul.lo.u32 high, {high}, 0x204081; shr.u32 {into}, {into}, 28;
shr.u32 high, high, 24; and.b32 high, high, 240; or.b32 {into}, {into}, high;
"""
# Clear the lowest flag of ``left`` and compute the addresses of its score and gradient.
_NEXT = """
neg.s32 flag, left; and.b32 flag, flag, left; xor.b32 left, left, flag; bfind.u32 place, flag;
mul.wide.u32 to, place, {size}; {second} add.s64 from, to, {source}; add.s64 to, to, {target};
"""
# The addresses of the second group are this much further; its flags are eight places up.
_SECOND = "setp.gt.u32 up, place, 7; @up add.s64 to, to, apart;"
# With u = -s: e^-|u|, sigma(u) as q, log(1 + e^u) as c, and q (1 - q) min(c, 1e30) as z.
_COST = """
neg.f32 u, s; abs.f32 e, s; mul.f32 e, e, 0fBFB8AA3B; ex2.approx.ftz.f32 e, e;
add.f32 r, e, 0f3F800000; rcp.approx.ftz.f32 r, r; mul.f32 w, e, r;
setp.gt.f32 up, u, 0f00000000; selp.f32 q, r, w, up;
{series} mul.f32 c, c, e; max.f32 z, u, 0f00000000; add.f32 c, c, z;
min.f32 z, c, 0f7149F2CA; mul.f32 w, w, r; mul.f32 z, z, w;
"""
# The same for scores of 16 bits, as ``costs.even_cost`` computes it. The logarithm is less than the exact one by ``above``, and
# so is its series, so the larger of both is right.
_LEAN_COST = """
neg.f32 u, s; mul.f32 e, s, 0f3FB8AA3B; min.NaN.f32 e, e, 0f42FC0000; ex2.approx.ftz.f32 e, e;
add.f32 q, e, 0f3F800000; rcp.approx.ftz.f32 q, q; fma.rn.f32 w, e, q, 0f00800000;
lg2.approx.ftz.f32 c, w; fma.rn.f32 c, c, 0fBF317218, {above}; fma.rn.f32 z, q, 0f3EAAAAAB, 0f3F000000;
fma.rn.f32 z, z, q, 0f3F800000; mul.f32 z, z, q; max.NaN.f32 c, c, z; mul.f32 z, w, c; max.NaN.f32 c, c, u;
"""
_LOAD = {
    "bf16": "ld.global.b16 half, [from]; mov.b32 place, {0, half}; mov.b32 s, place; ",
    "fp16": "ld.global.b16 half, [from]; cvt.f32.f16 s, half; ",
    "fp32": "ld.global.f32 s, [from]; ",
}
_STORE = {
    "bf16": "cvt.rn.bf16.f32 half, s; st.global.b16 [to], half; ",
    "fp16": "cvt.rn.f16.f32 half, s; st.global.b16 [to], half; ",
    "fp32": "st.global.f32 [to], s; ",
}
# More than the logarithm of ``_LEAN_COST`` can be too high.
ABOVE = 4e-7


def _number(value: float) -> str:
    """A float32 as PTX writes it."""
    return "0f" + struct.pack(">f", value).hex().upper()


def _loop(kind: str, bits: bool, power: int, groups: int) -> str:
    """The instructions for one group of scores of a ``kind`` or two: the sum of its positives' costs, their gradient stored.

    Operands, each once for every group: the sum; the flags of its first four scores and of the others, each the highest bit of
    a byte, or if ``bits`` all flags as bits, twice; the addresses of the group's scores and of its gradient; the weight of a
    cost; the factor of the gradient. The sum of a second group is 0.
    """
    size, places = 4 if kind == "fp32" else 2, [f"${number}" for number in range(7 * groups)]
    sums, lows, highs, sources, targets, weights, factors = (
        places[first : first + groups] for first in range(0, 7 * groups, groups)
    )
    lines = _REGISTERS + " ".join(f"mov.f32 {each}, 0f00000000; " for each in sums)
    lines += " ".join(f"or.b32 left, {'left' if at else low}, {low}; " for at, low in enumerate(lows))
    if not bits:
        lines += " ".join(f"or.b32 left, left, {high}; " for high in highs)
    lines += "setp.eq.u32 none, left, 0; @none bra done; "
    for at, (low, high) in enumerate(zip(lows, highs, strict=True)):
        into = "more" if at else "left"
        lines += f"mov.b32 {into}, {low}; " if bits else _GATHER.format(into=into, low=low, high=high)
    if groups == 2:
        lines += f"shl.b32 more, more, 8; or.b32 left, left, more; sub.s64 apart, {sources[1]}, {sources[0]}; "
        lines += "sub.s64 apart, apart, 16; "
    second = _SECOND if groups == 2 else ""
    lines += "again: " + _NEXT.format(size=size, second=second, source=sources[0], target=targets[0]) + _LOAD[kind]
    lines += _cost(kind, power) + f"fma.rn.f32 $0, c, {weights[0]}, $0; mul.f32 s, y, {factors[0]}; " + _STORE[kind]
    return "{ " + " ".join(f"{lines} setp.ne.u32 up, left, 0; @up bra again; done: ".split("\n")) + " }"


def _cost(kind: str, power: int) -> str:
    """The instructions for the cost c of a positive with score s, and for its derivative y by -s."""
    if kind == "fp32":
        first, *others = reversed(LOG1P_UNIT)
        series = f"mov.f32 c, {_number(first)}; " + " ".join(f"fma.rn.f32 c, c, e, {_number(each)};" for each in others)
        lines = _COST.format(series=series)
    else:
        lines = _LEAN_COST.format(above=_number(-ABOVE))
    # The derivative: q if the power is 0, else q^(power - 1) (power z + q q). The z of ``_LEAN_COST`` is without a factor q.
    if power == 0:
        return lines + "mov.f32 y, q; "
    if kind == "fp32":
        lines += f"mul.f32 w, q, q; fma.rn.f32 y, z, {_number(power)}, w; mul.f32 c, c, q; "
        return lines + "mul.f32 y, y, q; mul.f32 c, c, q; " * (power - 1)
    return lines + f"fma.rn.f32 y, z, {_number(power)}, q; " + "mul.f32 y, y, q; mul.f32 c, c, q; " * power


# By type of the scores, whether flags are bits, power and number of groups.
_LOOPS = {
    f"{kind} {bits} {power} {groups}": _loop(kind, bits, power, groups)
    for kind in _LOAD
    for bits in (False, True)
    for power in range(5)
    for groups in (1, 2)
}


LOOPS = digest(_LOOPS)


@triton.constexpr_function
def _loop_of(kind, bits, power, groups):
    known = (_LOOPS, LOOPS)  # The digest is part of Triton's cache key.
    return known[0][f"{kind} {bits} {power} {groups}"]


@triton.constexpr_function
def _types_of(groups):
    """The registers of the operands of ``_loop``."""
    return ",".join(each for each in ("=&f", "r", "r", "l", "l", "f", "f") for _ in range(groups))


@triton.jit
def add_positives(
    cost, low, high, signs, x, out_grad, tile, weight, factor,
    BITS: tl.constexpr, POWER: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Add the costs of positives to those of the groups, and overwrite their gradient: ``factor`` times the derivative by -s.

    ``low`` and ``high [BLOCK // GROUP, 1]`` have the highest bit of each positive's byte set, for its first four scores and for
    the others; where BITS, ``low`` has its bit. ``signs`` has the sign bit set for positives. The thread has already written
    the gradient of its groups, of which it has GROUPS (a multiple of 2, or 1).
    """
    first = tl.cast(tile, tl.int64) * BLOCK + tl.arange(0, BLOCK // GROUP)[:, None] * GROUP
    if COMPILED:
        SIZE: tl.constexpr = x.dtype.element_ty.primitive_bitwidth // 8
        source, target = x.to(tl.int64) + first * SIZE, out_grad.to(tl.int64) + first * SIZE
        TOGETHER: tl.constexpr = min(GROUPS, 2) if GROUP == 8 else 1
        LOOP: tl.constexpr = _loop_of(x.dtype.element_ty.name, BITS, POWER, TOGETHER)
        TYPES: tl.constexpr = _types_of(TOGETHER)
        more = tl.inline_asm_elementwise(
            LOOP, TYPES, [low, high, source, target, weight, factor], dtype=tl.float32, is_pure=False, pack=TOGETHER
        )
        cost += tl.sum(more, axis=1)
    else:
        there, place = (signs < 0) & (weight > 0), first + tl.arange(0, GROUP)[None, :]
        s = tl.load(x + place, mask=there, other=0).to(tl.float32)
        each, slope = one_cost(-s, 0.0, "focal" if POWER > 0 else "bce", POWER)
        cost += tl.sum(tl.where(there, each * weight, 0.0), axis=1)
        tl.store(out_grad + place, (slope * factor).to(out_grad.dtype.element_ty), mask=there)
    return cost
