"""Words of hard labels whose exponentials are kept in registers from the sums to the gradient (CUDA).

This is for short rows: most threads have a positive there, so that skipping positives saves nothing. The scores of positives
are negated while they are still packed; one exponential then serves either side.
"""

from __future__ import annotations

import itertools

import triton
import triton.language as tl

from manyhot.engines.triton.math import digest
from manyhot.engines.triton.packed.ptx import NOTHING_2, NOTHING_4, NOTHING_H, _Writer

# 1e-36 in PTX: the least term, where terms are bounded.
LEAST = "0f03AA2425"


class _Kept(_Writer):
    """Writes PTX for two words of ``per`` scores. The kept exponentials are the operands ``ka`` to ``kd``.

    Labels are a byte each; with ``bits``, a bit each, in one int32 per word. With ``least``, no term is less than LEAST, so
    that a sum is 0 only if it has no terms.
    """

    def __init__(self, per: int, *, float16: bool = False, bits: bool = False, least: bool = False) -> None:
        super().__init__(per, float16=float16)
        self.bits, self.least = bits, least
        self.label_operand = f"t:r:{2 if bits else per // 2}"

    def masks(self) -> str:
        """``m``: the highest bit of each label byte that is not 0."""
        lines = ""
        if self.bits:
            # A multiplication spreads four bits over four bytes.
            spread = "mul.lo.u32 m{0}, {1}, 0x10204080; and.b32 m{0}, m{0}, 0x80808080; "
            if self.per == 4:
                return spread.format(0, "$t0") + spread.format(1, "$t1")
            return "shl.b32 b, $t1, 2; or.b32 b, b, $t0; " + spread.format(0, "b")
        for k in range(self.per // 2):
            lines += f"and.b32 b, $t{k}, 0x7f7f7f7f; add.u32 b, b, 0x7f7f7f7f; "
            lines += f"or.b32 b, b, $t{k}; and.b32 m{k}, b, 0x80808080; "
        return lines

    def hidden_masks(self) -> str:
        """``masks`` in a form that the assembler does not recognise. Otherwise it would keep every test in registers."""
        return self.masks() + "mov.b32 d, $zero0; " + "".join(f"xor.b32 m{k}, m{k}, d; " for k in range(self.per // 2))

    def turned(self) -> str:
        """``s`` with the scores of positives negated."""
        lines = "".join(f"mov.b64 {{h{2 * k}, h{2 * k + 1}}}, $s{k}; " for k in range(2))
        for k in range(4):
            # Move the highest bits of two bytes to the sign bits of two half-type scores, or of one byte to that of a float32.
            place = ((0x1404, 0x3424)[k % 2], k // 2) if self.per == 4 else (0x0444 | k << 12, 0)
            lines += f"prmt.b32 d, m{place[1]}, 0, {place[0]}; xor.b32 h{k}, h{k}, d; "
            if self.per == 2:
                lines += f"mov.b32 s{k}, h{k}; "
            elif self.float16:
                lines += f"mov.b32 {{x0, x1}}, h{k}; cvt.f32.f16 s{2 * k}, x0; cvt.f32.f16 s{2 * k + 1}, x1; "
            else:
                lines += f"shl.b32 s{2 * k}, h{k}, 16; and.b32 s{2 * k + 1}, h{k}, 0xffff0000; "
        return lines

    def kept(self, number: int) -> str:
        """The operand that holds the exponential of a score."""
        return f"$k{'abcd'[number % self.per]}{number // self.per}"

    def is_positive(self, number: int, *, hidden: bool = False) -> str:
        if self.bits and self.per == 4:
            # Neighbouring bits of one register: the assembler turns all of them into predicates at once.
            return f"and.b32 b, {'h' if hidden else '$t'}{number // 4}, {1 << number % 4}; setp.ne.u32 p, b, 0; "
        return f"and.b32 b, m{number // 4}, {0x80 << 8 * (number % 4)}; setp.ne.u32 p, b, 0; "

    def operands(self, constraint: str) -> str:
        return " ".join(f"k{'abcd'[k]}:{constraint}:2" for k in range(self.per))

    def kept_sums(self) -> tuple[tl.constexpr, tl.constexpr]:
        """The sums of each word's negative and positive terms, and the terms."""
        lines = self.masks() + self.turned() + self.exponentials()
        lines += self.each(f"max.NaN.f32 e#, e#, {LEAST}; ") if self.least else ""
        lines += "".join(f"mov.f32 {name}{k}, 0f00000000; " for name in "cq" for k in range(2))
        for k in range(2 * self.per):
            word = k // self.per
            lines += self.is_positive(k) + f"@p add.f32 q{word}, q{word}, e{k}; @!p add.f32 c{word}, c{word}, e{k}; "
        lines += "".join(f"mov.f32 {self.kept(k)}, e{k}; " for k in range(2 * self.per))
        lines += "".join(f"mov.f32 $neg{k}, c{k}; mov.f32 $pos{k}, q{k}; " for k in range(2))
        return self.finish(f"neg:=f:2 pos:=f:2 {self.operands('=f')} s:l:2 {self.label_operand}", lines)

    def kept_gradient(self) -> tuple[tl.constexpr, tl.constexpr]:
        """The terms times the factors of their sides; the factor of positives is negative."""
        lines = self.hidden_masks()
        if self.bits and self.per == 4:
            # An addition, because the assembler would merge an XOR into the tests of single bits.
            lines = "mov.b32 d, $zero0; add.u32 h0, $t0, d; add.u32 h1, $t1, d; "
        for k in range(2 * self.per):
            word = k // self.per
            lines += self.is_positive(k, hidden=True)
            lines += f"selp.f32 f{k}, $pos{word}, $neg{word}, p; mul.f32 e{k}, {self.kept(k)}, f{k}; "
        return self.finish(
            f"grad:=l:2 {self.operands('f')} {self.label_operand} neg:f:2 pos:f:2 zero:f:2", lines, self.pack()
        )  # fmt: skip


def _all_code() -> dict[str, str]:
    """Instructions and operands by purpose, scores per word, and whether scores are float16, labels are bits, and terms are
    bounded."""
    found = {}
    for per, float16, bits, least in itertools.product((2, 4), (False, True), (False, True), (False, True)):
        writer = _Kept(per, float16=float16, bits=bits, least=least)
        about = f"{per} {float16} {bits} {least}"
        for name, made in (("sums", writer.kept_sums()), ("gradient", writer.kept_gradient())):
            found[f"{name} {about}"], found[f"{name} operands {about}"] = (each.value for each in made)
    return found


_CODE = _all_code()
CODE = digest(_CODE)


@triton.constexpr_function
def _code(name, PER, HALF, BITS, LEAST):
    known = (_CODE, CODE)  # The digest is part of Triton's cache key.
    return known[0][f"{name} {PER} {HALF} {BITS} {LEAST}"]


@triton.jit
def kept_sums(s, t, PER: tl.constexpr, HALF: tl.constexpr, BITS: tl.constexpr, LEAST: tl.constexpr):
    """The sums of each word's positive and negative terms, and four terms; with two scores per word, each comes twice."""
    ASM: tl.constexpr = _code("sums", PER, HALF, BITS, LEAST)
    TYPES: tl.constexpr = _code("sums operands", PER, HALF, BITS, LEAST)
    if PER == 4:
        neg, pos, a, b, c, d = tl.inline_asm_elementwise(
            ASM,
            TYPES,
            [s, t],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=False,
            pack=2,
        )
    else:
        neg, pos, a, b = tl.inline_asm_elementwise(
            ASM, TYPES, [s, t], dtype=(tl.float32, tl.float32, tl.float32, tl.float32), is_pure=False, pack=2
        )
        c, d = a, b
    return pos, neg, a, b, c, d


@triton.jit
def kept_gradient(a, b, c, d, t, pos_factor, neg_factor, zero, PER: tl.constexpr, HALF: tl.constexpr, BITS: tl.constexpr):
    """The gradient of each word from its terms, in the type of the scores. The assembler must not recognise ``zero`` as 0."""
    ASM: tl.constexpr = _code("gradient", PER, HALF, BITS, False)
    TYPES: tl.constexpr = _code("gradient operands", PER, HALF, BITS, False)
    if PER == 4:
        operands = [a, b, c, d, t, neg_factor, -pos_factor, zero]
        grad = tl.inline_asm_elementwise(ASM, TYPES, operands, dtype=tl.int64, is_pure=True, pack=2)
    else:
        operands = [a, b, t, neg_factor, -pos_factor, zero]
        grad = tl.inline_asm_elementwise(ASM, TYPES, operands, dtype=tl.int64, is_pure=True, pack=2)
    return grad


@triton.jit
def read_kept_words(
    x, labels, x_stride, label_stride, num_labels, rows, in_rows, first,
    LISTS: tl.constexpr, BLOCK: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """A tile of words from the label ``first`` on: scores, and labels, a byte each. LISTS have no labels here."""
    words = first // PER + tl.arange(0, BLOCK // PER)
    in_tile = in_rows[:, None] & (words < num_labels // PER)[None, :]
    at = (rows * (x_stride // UNIT * (UNIT // PER)))[:, None] + words[None, :]
    nothing: tl.constexpr = NOTHING_H if HALF else (NOTHING_4 if PER == 4 else NOTHING_2)
    s = tl.load(tl.cast(x, tl.pointer_type(tl.int64)) + at, mask=in_tile, other=nothing)
    t = s
    if not LISTS:
        label_at = (rows * (label_stride // UNIT * (UNIT // PER)))[:, None] + words[None, :]
        place = tl.cast(labels, tl.pointer_type(tl.int32 if PER == 4 else tl.int16)) + label_at
        t = tl.load(tl.max_contiguous(place, [1, 2]), mask=in_tile, other=0)
    return s, t


@triton.jit
def store_words(
    out_grad, grad, num_labels, rows, in_rows, first, BLOCK: tl.constexpr, PER: tl.constexpr, UNIT: tl.constexpr
):  # fmt: skip
    """Write the gradient of a tile of words."""
    words = first // PER + tl.arange(0, BLOCK // PER)
    in_tile = in_rows[:, None] & (words < num_labels // PER)[None, :]
    at = (rows * (num_labels // UNIT * (UNIT // PER)))[:, None] + words[None, :]
    tl.store(tl.cast(out_grad, tl.pointer_type(tl.int64)) + at, grad, mask=in_tile)
