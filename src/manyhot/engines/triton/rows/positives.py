"""Costs of positives, in a loop over the set bits of each group (CUDA).

Positives are rare: ``flat`` computes every label as a negative without branching, and this loop adds the positives.
"""

from __future__ import annotations

import struct

import triton
import triton.language as tl

from manyhot.engines.triton.math import COMPILED, LOG1P_UNIT
from manyhot.engines.triton.rows.costs import one_cost

_REGISTERS = """
.reg .pred none, up; .reg .b32 place; .reg .b64 from, to; .reg .b16 half; .reg .f32 s, u, e, r, q, c, w, y, z;
"""
# Clear the lowest flag of ``left`` and compute the addresses of its score and gradient.
_NEXT = """
neg.s@ flag, left; and.b@ flag, flag, left; xor.b@ left, left, flag; bfind.u@ place, flag; shr.u32 place, place, {shift};
mul.wide.u32 from, place, {size}; add.s64 to, from, $3; add.s64 from, from, $2;
"""
# With u = -s: e^-|u|, sigma(u) as q, log(1 + e^u) as c, and q (1 - q) min(c, 1e30) as z.
_COST = """
neg.f32 u, s; abs.f32 e, s; mul.f32 e, e, 0fBFB8AA3B; ex2.approx.ftz.f32 e, e;
add.f32 r, e, 0f3F800000; rcp.approx.ftz.f32 r, r; mul.f32 w, e, r;
setp.gt.f32 up, u, 0f00000000; selp.f32 q, r, w, up;
{series} mul.f32 c, c, e; max.f32 z, u, 0f00000000; add.f32 c, c, z;
min.f32 z, c, 0f7149F2CA; mul.f32 w, w, r; mul.f32 z, z, w;
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


def _number(value: float) -> str:
    """A float32 as PTX writes it."""
    return "0f" + struct.pack(">f", value).hex().upper()


def _loop(kind: str, bits: bool, power: int) -> str:
    """The instructions for a group of scores of a ``kind``: the sum of its positives' costs, their gradient stored.

    Operands: the sum; a flag for each positive, the highest bit of its byte, or its bit if ``bits``; the addresses of the
    group's scores and of its gradient; the weight of a cost; the factor of the gradient.
    """
    size, wide = 4 if kind == "fp32" else 2, not bits and kind != "fp32"
    first, *others = reversed(LOG1P_UNIT)
    series = f"mov.f32 c, {_number(first)}; " + " ".join(f"fma.rn.f32 c, c, e, {_number(each)};" for each in others)
    lines = _REGISTERS + ".reg .b@ left, flag; mov.f32 $0, 0f00000000; mov.b@ left, $1; "
    lines += "again: setp.eq.u@ none, left, 0; @none bra done; " + _NEXT.format(shift=0 if bits else 3, size=size)
    lines = lines.replace("@ ", ("64 " if wide else "32 ")) + _LOAD[kind] + _COST.format(series=series)
    # The derivative: q if the power is 0, else q^(power - 1) (power z + q q).
    if power == 0:
        lines += "mov.f32 y, q; "
    else:
        lines += f"mul.f32 w, q, q; fma.rn.f32 y, z, {_number(power)}, w; mul.f32 c, c, q; "
        lines += "mul.f32 y, y, q; mul.f32 c, c, q; " * (power - 1)
    lines += "fma.rn.f32 $0, c, $4, $0; mul.f32 s, y, $5; " + _STORE[kind] + "bra again; done: "
    return "{ " + " ".join(lines.split("\n")) + " }"


# By type of the scores, whether flags are bits, and power.
_LOOPS = {
    f"{kind} {bits} {power}": _loop(kind, bits, power)
    for kind in _LOAD
    for bits in (False, True)
    for power in range(5)
}  # fmt: skip


@triton.constexpr_function
def _loop_of(kind, bits, power):
    return _LOOPS[f"{kind} {bits} {power}"]


@triton.jit
def add_positives(
    cost, flags, signs, x, out_grad, tile, weight, factor,
    BITS: tl.constexpr, POWER: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the costs of positives to those of the groups, and overwrite their gradient: ``factor`` times the derivative by -s.

    ``flags [BLOCK // GROUP, 1]`` has the highest bit of each positive's byte set, or its bit where BITS; ``signs`` has the sign
    bit set for positives. The thread has already written the gradient of its groups.
    """
    first = tl.cast(tile, tl.int64) * BLOCK + tl.arange(0, BLOCK // GROUP)[:, None] * GROUP
    if COMPILED:
        flags = tl.where(weight > 0, flags, 0)
        SIZE: tl.constexpr = x.dtype.element_ty.primitive_bitwidth // 8
        source, target = x.to(tl.int64) + first * SIZE, out_grad.to(tl.int64) + first * SIZE
        LOOP: tl.constexpr = _loop_of(x.dtype.element_ty.name, BITS, POWER)
        TYPES: tl.constexpr = "=&f,r,l,l,f,f" if BITS or SIZE == 4 else "=&f,l,l,l,f,f"
        more = tl.inline_asm_elementwise(
            LOOP, TYPES, [flags, source, target, weight, factor], dtype=tl.float32, is_pure=False, pack=1
        )
        cost += tl.sum(more, axis=1)
    else:
        there, place = (signs < 0) & (weight > 0), first + tl.arange(0, GROUP)[None, :]
        s = tl.load(x + place, mask=there, other=0).to(tl.float32)
        each, slope = one_cost(-s, 0.0, "focal" if POWER > 0 else "bce", POWER)
        cost += tl.sum(tl.where(there, each * weight, 0.0), axis=1)
        tl.store(out_grad + place, (slope * factor).to(out_grad.dtype.element_ty), mask=there)
    return cost
