"""Words of hard labels whose exponentials are kept in registers from the sums to the gradient (CUDA).

This is for short rows: most threads have a positive there, so that skipping them saves nothing. Positives have their sign
turned while they are packed; one exponential then serves either side.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.packed.ptx import _Writer


class _Kept(_Writer):
    """Writes instructions for two words of ``per`` scores; a kept exponential is the operand ``k`` and a letter."""

    def masks(self) -> str:
        """``m``: the highest bit of each byte of labels that is not 0."""
        lines = ""
        for k in range(self.per // 2):
            lines += f"and.b32 b, $t{k}, 0x7f7f7f7f; add.u32 b, b, 0x7f7f7f7f; "
            lines += f"or.b32 b, b, $t{k}; and.b32 m{k}, b, 0x80808080; "
        return lines

    def turned(self) -> str:
        """``s`` with the sign of positives turned."""
        lines = "".join(f"mov.b64 {{h{2 * k}, h{2 * k + 1}}}, $s{k}; " for k in range(2))
        for k in range(4):
            # The highest bits of two bytes go to those of two half words, or that of one byte to that of a word.
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
        """The operand in which the exponential of a score is kept."""
        return f"$k{'abcd'[number % self.per]}{number // self.per}"

    def is_positive(self, number: int) -> str:
        return f"and.b32 b, m{number // 4}, {0x80 << 8 * (number % 4)}; setp.ne.u32 p, b, 0; "

    def operands(self, constraint: str) -> str:
        return " ".join(f"k{'abcd'[k]}:{constraint}:2" for k in range(self.per))

    def kept_sums(self) -> tuple[tl.constexpr, tl.constexpr]:
        """The sums of each word's negative and positive terms, and the terms."""
        lines = self.masks() + self.turned() + self.exponentials()
        lines += "".join(f"mov.f32 {name}{k}, 0f00000000; " for name in "cq" for k in range(2))
        for k in range(2 * self.per):
            word = k // self.per
            lines += self.is_positive(k) + f"@p add.f32 q{word}, q{word}, e{k}; @!p add.f32 c{word}, c{word}, e{k}; "
        lines += "".join(f"mov.f32 {self.kept(k)}, e{k}; " for k in range(2 * self.per))
        lines += "".join(f"mov.f32 $neg{k}, c{k}; mov.f32 $pos{k}, q{k}; " for k in range(2))
        return self.finish(f"neg:=f:2 pos:=f:2 {self.operands('=f')} s:l:2 t:r:{self.per // 2}", lines)

    def kept_gradient(self) -> tuple[tl.constexpr, tl.constexpr]:
        """The terms times the factors of their sides; that of positives is negative."""
        lines = self.masks()
        for k in range(2 * self.per):
            word = k // self.per
            lines += self.is_positive(k) + f"selp.f32 f{k}, $pos{word}, $neg{word}, p; mul.f32 e{k}, {self.kept(k)}, f{k}; "
        return self.finish(
            f"grad:=l:2 {self.operands('f')} t:r:{self.per // 2} neg:f:2 pos:f:2", lines, self.pack()
        )  # fmt: skip


_TWO, _FOUR, _HALF = _Kept(2), _Kept(4), _Kept(4, float16=True)
(SUMS_2, SUMS_2_TYPES), (SUMS_4, SUMS_4_TYPES), (SUMS_H, _) = (each.kept_sums() for each in (_TWO, _FOUR, _HALF))
(GRAD_2, GRAD_2_TYPES), (GRAD_4, GRAD_4_TYPES), (GRAD_H, _) = (each.kept_gradient() for each in (_TWO, _FOUR, _HALF))


@triton.jit
def kept_sums(s, t, PER: tl.constexpr, HALF: tl.constexpr):
    """The sums of each word's positive and negative terms, and the terms; of two in a word each comes twice."""
    if PER == 4:
        ASM: tl.constexpr = SUMS_H if HALF else SUMS_4
        neg, pos, a, b, c, d = tl.inline_asm_elementwise(
            ASM,
            SUMS_4_TYPES,
            [s, t],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=True,
            pack=2,
        )
    else:
        neg, pos, a, b = tl.inline_asm_elementwise(
            SUMS_2, SUMS_2_TYPES, [s, t], dtype=(tl.float32, tl.float32, tl.float32, tl.float32), is_pure=True, pack=2
        )
        c, d = a, b
    return pos, neg, a, b, c, d


@triton.jit
def kept_gradient(a, b, c, d, t, pos_factor, neg_factor, PER: tl.constexpr, HALF: tl.constexpr):
    """The gradient of each word from its terms, in the type of the scores."""
    if PER == 4:
        ASM: tl.constexpr = GRAD_H if HALF else GRAD_4
        operands = [a, b, c, d, t, neg_factor, -pos_factor]
        grad = tl.inline_asm_elementwise(ASM, GRAD_4_TYPES, operands, dtype=tl.int64, is_pure=True, pack=2)
    else:
        grad = tl.inline_asm_elementwise(
            GRAD_2, GRAD_2_TYPES, [a, b, t, neg_factor, -pos_factor], dtype=tl.int64, is_pure=True, pack=2
        )
    return grad
