"""Small functions shared by the Triton kernels: exact near zero, safe at infinity."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import triton
import triton.language as tl


def digest(texts: dict[str, str]) -> Any:
    """A constant that stands for generated instructions. Triton's cache key has the values of the constants that a function
    names, but not those of dictionaries; without it a kernel of another version could be read from disk."""
    return tl.constexpr(hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest())


COMPILED = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") != "1")


# Conversion from natural exponents to base 2, and back.
LOG2_E = tl.constexpr(1.4426950408889634)
LOG_2 = tl.constexpr(0.6931471805599453)
# Results below it are flushed to 0.
SMALLEST_NORMAL = tl.constexpr(1.1754944e-38)


@triton.jit
def exp2(x):
    """``2^x``; results below 1e-38 are flushed to 0, which saves half the instructions."""
    if COMPILED:
        y = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = tl.exp2(x)
        y = tl.where(y < SMALLEST_NORMAL, 0.0, y)
    return y


@triton.jit
def exp(x):
    """``e^x``, as ``exp2``."""
    return exp2(x * LOG2_E)


@triton.jit
def inverse(x):
    """``1 / x``, accurate to the last digit but one; 0 for x beyond 1e38."""
    if COMPILED:
        y = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = 1.0 / x
        y = tl.where(tl.abs(y) < SMALLEST_NORMAL, 0.0, y)
    return y


# Coefficients of log(1 + x) / x for x from 0 to 1, constant term first: a minimax polynomial, accurate to 2e-7 in float32.
LOG1P_UNIT = (
    0.9999999403953552, -0.4999949336051941, 0.3331909775733948, -0.2484298199415207, 0.19106006622314453,
    -0.13663245737552643, 0.07822595536708832, -0.029505237936973572, 0.0052326940931379795,
)  # fmt: skip
_U0, _U1, _U2, _U3, _U4, _U5, _U6, _U7, _U8 = map(tl.constexpr, LOG1P_UNIT)


@triton.jit
def log1p_unit(x):
    """``log(1 + x)`` for x from 0 to 1, to the last digits everywhere."""
    return x * (_U0 + x * (_U1 + x * (_U2 + x * (_U3 + x * (_U4 + x * (_U5 + x * (_U6 + x * (_U7 + x * _U8))))))))


@triton.jit
def log1p(x):
    """``log(1 + x)`` for x >= 0, to the last digits also where x is small: an atanh series below a half."""
    z = x / (2.0 + x)
    w = z * z
    series = 2.0 * z * (1.0 + w * (0.33333334 + w * (0.2 + w * (0.14285715 + w * (0.11111111 + w * 0.09090909)))))
    return tl.where(x < 0.5, series, tl.log(1.0 + x))


@triton.jit
def log2(x):
    """``log2 x`` to seven digits; near x = 1 the error is absolute, not relative."""
    if COMPILED:
        y = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = tl.log2(x)
    return y


@triton.jit
def log1p_fast(x):
    """``log1p`` with the hardware's approximate division and logarithm: six digits everywhere, for x up to 1e37."""
    z = x * inverse(2.0 + x)
    w = z * z
    series = 2.0 * z * (1.0 + w * (0.33333334 + w * (0.2 + w * (0.14285715 + w * (0.11111111 + w * 0.09090909)))))
    return tl.where(x < 0.5, series, LOG_2 * log2(1.0 + x))


@triton.jit
def materialize(x):
    """Force ``x`` to be computed here. Otherwise the compiler delays it and keeps all its inputs in registers."""
    if COMPILED:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=False, pack=1)
    return x


# The highest bit of the mask of lower lanes is never set, which the assembler does not know.
_SPREAD = tl.constexpr("{ .reg .b32 lane; mov.u32 lane, %lanemask_lt; shr.u32 lane, lane, 31; or.b32 $0, $1, lane; }")


@triton.jit
def spread(x):
    """A number in a register of each thread, ``[1, 1]``. Otherwise a warp has it once, and an instruction can read only one
    such number: a second one is copied every time."""
    x = tl.zeros([1, 1], tl.float32) + x
    if COMPILED:
        x = tl.inline_asm_elementwise(_SPREAD, "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    return x


@triton.jit
def softplus(x):
    """``log(1 + e^x)``; 0 at -inf, inf at inf."""
    return tl.maximum(x, 0.0) + log1p_unit(exp(-tl.abs(x)))


@triton.jit
def distance(x, top):
    """``x - top``; 0 where both are equal, even if infinite."""
    return tl.where(x == top, 0.0, x - top)


@triton.jit
def bounded_log(top, total):
    """``log(1 + e^top total)`` for top >= 0."""
    return tl.where(top == 0.0, log1p(total), top + tl.log(exp(-top) + total))
