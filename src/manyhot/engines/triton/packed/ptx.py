"""PTX for the word kernels, for two words of 64 bits at once (CUDA); ``words`` uses it.

A word holds four bfloat16, four float16 or two float32. Hard labels are one byte per score, nonzero for a positive: 32 or 16
bits for each word of scores. Soft labels are packed into words like scores. The gradient deliberately uses other instructions
than the sums: it unpacks in another way and adds a zero that the assembler cannot recognise. Otherwise the assembler would see
that both need the same exponentials, and keep them in registers in between.
"""

from __future__ import annotations

import triton.language as tl

_REGISTERS = (
    ".reg .f32 s<8>, e<8>, f<8>, t<8>, c<8>, q<2>, n<2>; .reg .b32 h<4>, m<2>, b, d; .reg .b16 x<2>; .reg .pred any, p; "
)
# Words of scores of -inf, for padding past the end of a row: the terms are 0.
NOTHING_4, NOTHING_2, NOTHING_H = (tl.constexpr(-bits) for bits in (0x007F007F007F0080, 0x007FFFFF00800000, 0x03FF03FF03FF0400))


class _Writer:
    """Writes PTX for two words of ``per`` scores.

    A line is repeated for each score, with placeholders: # is the number of the score, % that of its word, ^ that of the
    register with its label, ~ the mask of the label in that register, and & the bit of the label if labels are bits. $name and
    a number is a register of an operand. Of four words, the last two are the second ``half``.
    """

    def __init__(self, per: int, *, float16: bool = False) -> None:
        self.per, self.float16 = per, float16

    def each(self, line: str, half: int = 0) -> str:
        """The line, repeated for each score."""
        lines = []
        for k in range(2 * self.per):
            register = 2 * half + k // 4
            marks = {"#": f"{k}", "%": f"{k // self.per}", "^": f"{register}", "~": f"{0xFF << 8 * (k % 4)}"}
            # The bits of each word have a byte of their own, so that they can move between threads like words.
            marks["&"] = f"{1 << 8 * register + k % 4}"
            lines.append("".join(marks.get(letter, letter) for letter in line))
        return "".join(lines)

    def finish(self, operands: str, *lines: str) -> tuple[tl.constexpr, tl.constexpr]:
        """Instructions and constraints; operands are ``name:constraint:registers``, results first."""
        text = "{ " + _REGISTERS + "".join(lines) + "}"
        constraints: list[str] = []
        for operand in operands.split():
            name, constraint, registers = operand.split(":")
            for k in range(int(registers)):
                text = text.replace(f"${name}{k}", f"${len(constraints)}")
                constraints.append(constraint)
        return tl.constexpr(text), tl.constexpr(",".join(constraints))

    def unpack(self, operand: str, *, again: bool = False) -> str:
        """Unpack the words of an operand into float registers of the same name."""
        if self.per == 2:
            return "".join(f"mov.b64 {{{operand}{2 * k}, {operand}{2 * k + 1}}}, ${operand}{k}; " for k in range(2))
        if self.float16:
            return self.unpack_float16(operand, again=again)
        low, high = "shl.b32 {}, {}, 16; ", "and.b32 {}, {}, 0xffff0000; "
        if again:
            low, high = "prmt.b32 {}, {}, 0, 0x1044; ", "prmt.b32 {}, {}, 0, 0x3244; "
        lines = "".join(f"mov.b64 {{h{2 * k}, h{2 * k + 1}}}, ${operand}{k}; " for k in range(2))
        for k in range(4):
            lines += low.format(f"{operand}{2 * k}", f"h{k}") + high.format(f"{operand}{2 * k + 1}", f"h{k}")
        return lines

    def unpack_float16(self, operand: str, *, again: bool) -> str:
        lines = "".join(f"mov.b64 {{h{2 * k}, h{2 * k + 1}}}, ${operand}{k}; " for k in range(2))
        # OR with a zero that the assembler cannot recognise, so that it takes these for other words.
        lines += "mov.b32 d, $zero0; " if again else ""
        for k in range(4):
            lines += f"or.b32 h{k}, h{k}, d; " if again else ""
            lines += f"mov.b32 {{x0, x1}}, h{k}; cvt.f32.f16 {operand}{2 * k}, x0; cvt.f32.f16 {operand}{2 * k + 1}, x1; "
        return lines

    def pack(self) -> str:
        """Pack ``e`` into the words $grad."""
        if self.per == 2:
            return "mov.b64 $grad0, {e0, e1}; mov.b64 $grad1, {e2, e3}; "
        kind = "f16x2" if self.float16 else "bf16x2"
        halves = "".join(f"cvt.rn.{kind}.f32 h{k}, e{2 * k + 1}, e{2 * k}; " for k in range(4))
        return halves + "mov.b64 $grad0, {h0, h1}; mov.b64 $grad1, {h2, h3}; "

    def exponentials(self, zero: str = "") -> str:
        """``e = e^s``. Afterwards ``s`` is in units of log 2."""
        scaled = f"fma.rn.f32 s#, s#, 0f3FB8AA3B, {zero}; " if zero else "mul.f32 s#, s#, 0f3FB8AA3B; "
        return self.each(scaled + "ex2.approx.ftz.f32 e#, s#; ")

    def sums(self, of: str, into: str) -> str:
        """The sum of each word's floats."""
        if self.per == 2:
            return "".join(f"add.f32 {into}{k}, {of}{2 * k}, {of}{2 * k + 1}; " for k in range(2))
        add = "add.f32 n0, {0}{1}, {0}{2}; add.f32 n1, {0}{3}, {0}{4}; add.f32 {5}, n0, n1; "
        return "".join(add.format(of, *range(4 * k, 4 * k + 4), f"{into}{k}") for k in range(2))

    def products(self, of: str, by: str, into: str) -> str:
        """The sum of each word's products."""
        lines = ""
        for word in range(2):
            first, *others = range(word * self.per, (word + 1) * self.per)
            lines += f"mul.f32 q{word}, {of}{first}, {by}{first}; "
            lines += "".join(f"fma.rn.f32 q{word}, {of}{k}, {by}{k}, q{word}; " for k in others)
            lines += f"mov.f32 {into}{word}, q{word}; "
        return lines

    def positives(self, nothing: str, label: str, line: str, half: int | None = None) -> str:
        """A line for each score, with p true if its ``label`` is set, and ``f = e^-s``. None is run if ``nothing`` holds."""
        done = "done" if half is None else f"done{half}"
        test = f"and.b32 b, {label}; setp.ne.u32 p, b, 0; neg.f32 f#, s#; ex2.approx.ftz.f32 f#, f#; "
        return nothing + f"@any bra {done}; " + self.each(test + line, half or 0) + f"{done}: "

    def nothing(self, either: str) -> str:
        """Test whether no label of two words is set."""
        return f"{either} b, $t0, $t1; setp.eq.u32 any, b, 0; " if self.per == 4 else "setp.eq.u32 any, $t0, 0; "

    def hard_sums(self, *, paired: bool) -> tuple[tl.constexpr, tl.constexpr]:
        results, out = self.results(["c", "q"], ["neg", "pos"], paired=paired)
        return self.finish(
            f"{results} s:l:2 t:r:{self.per // 2}",
            self.unpack("s"),
            self.exponentials(),
            "mov.f32 q0, 0f00000000; mov.f32 q1, 0f00000000; ",
            self.positives(self.nothing("or.b32"), "$t^, ~", "@p mov.f32 e#, 0f00000000; @p add.f32 q%, q%, f#; "),
            self.sums("e", "c"),
            out,
        )

    def results(self, sums: list[str], names: list[str], *, paired: bool) -> tuple[str, str]:
        """Operands and instructions that return a sum per word. If ``paired``: one for both, half of its bits in each word."""
        if paired:
            return " ".join(f"{name}:=r:1" for name in names), "".join(
                f"add.f32 {of}0, {of}0, {of}1; mov.b32 ${name}0, {of}0; " for of, name in zip(sums, names, strict=True)
            )
        return " ".join(f"{name}:=f:2" for name in names), "".join(
            f"mov.f32 ${name}{k}, {of}{k}; " for of, name in zip(sums, names, strict=True) for k in range(2)
        )

    def hard_gradient(self) -> tuple[tl.constexpr, tl.constexpr]:
        return self.finish(
            f"grad:=l:2 s:l:2 t:r:{self.per // 2} neg:f:2 pos:f:2 zero:f:2",
            self.unpack("s", again=True),
            self.exponentials("$zero0"),
            self.each("mul.f32 e#, e#, $neg%; "),
            self.positives(self.nothing("max.u32"), "$t^, ~", "mul.f32 f#, f#, $pos%; @p neg.f32 e#, f#; "),
            self.pack(),
        )

    def bits_sums(self) -> tuple[tl.constexpr, tl.constexpr]:
        """``hard_sums`` for four words: the first has the sums of all, the others 0. Also returns their labels as bits."""
        lines = "mov.f32 q0, 0f00000000; mov.b32 d, 0; "
        line = "@p mov.f32 e#, 0f00000000; @p add.f32 q0, q0, f#; @p or.b32 d, d, &; "
        for half in range(2):
            lines += self.of_half(self.unpack("s"), half) + self.exponentials()
            lines += self.positives(self.of_half(self.nothing("or.b32"), half), "$t^, ~", line, half)
            lines += self.sums("e", "c") + ("add.f32 c0, c0, c1; add.f32 c2, c2, c0; " if half else "add.f32 c2, c0, c1; ")
        lines += "mov.f32 $neg0, c2; mov.f32 $pos0, q0; mov.b32 $bits0, d; "
        lines += "".join(f"mov.f32 $neg{k}, 0f00000000; mov.f32 $pos{k}, 0f00000000; " for k in (1, 2, 3))
        return self.finish("neg:=&f:4 pos:=&f:4 bits:=&r:1 s:l:4 t:r:4", lines)

    def bits_gradient(self) -> tuple[tl.constexpr, tl.constexpr]:
        """``hard_gradient`` for four words with labels as bits, two words at a time, so that few registers are live."""
        lines = ""
        for half in range(2):
            two = self.unpack("s", again=True) + self.exponentials("$zero0") + self.each("mul.f32 e#, e#, $neg0; ")
            nothing = f"and.b32 b, $bits0, {0xFFFF << 16 * half}; setp.eq.u32 any, b, 0; "
            lines += self.of_half(two, half)
            lines += self.positives(nothing, "$bits0, &", "mul.f32 f#, f#, $pos0; @p neg.f32 e#, f#; ", half)
            lines += self.of_half(self.pack(), half)
        return self.finish("grad:=&l:4 s:l:4 bits:r:1 neg:f:4 pos:f:4 zero:f:4", lines)

    def of_half(self, lines: str, half: int) -> str:
        """Instructions for two words, rewritten for one half of four words."""
        for name in ("s", "t", "grad") if half else ():
            lines = lines.replace(f"${name}1", f"${name}3").replace(f"${name}0", f"${name}2")
        return lines

    def soft_sums(self) -> tuple[tl.constexpr, tl.constexpr]:
        return self.finish(
            "neg:=f:2 pos:=f:2 s:l:2 t:l:2 least:f:2 slope:f:2",
            self.unpack("s"),
            self.unpack("t"),
            self.exponentials(),
            self.each("fma.rn.f32 t#, t#, $slope0, $least0; sub.f32 c#, 0f3F800000, t#; "),
            self.each("neg.f32 f#, s#; ex2.approx.ftz.f32 f#, f#; "),
            self.products("e", "c", "$neg"),
            self.products("f", "t", "$pos"),
        )

    def soft_gradient(self) -> tuple[tl.constexpr, tl.constexpr]:
        return self.finish(
            "grad:=l:2 s:l:2 t:l:2 least:f:2 slope:f:2 neg:f:2 pos:f:2 zero:f:2",
            self.unpack("s", again=True),
            self.unpack("t", again=True),
            self.exponentials("$zero0"),
            self.each("fma.rn.f32 t#, t#, $slope0, $least0; sub.f32 c#, 0f3F800000, t#; "),
            self.each("neg.f32 f#, s#; ex2.approx.ftz.f32 f#, f#; mul.f32 e#, e#, $neg%; mul.f32 f#, f#, $pos%; "),
            self.each("mul.f32 f#, f#, t#; neg.f32 f#, f#; fma.rn.f32 e#, e#, c#, f#; "),
            self.pack(),
        )

    def negative_sums(self, *, paired: bool) -> tuple[tl.constexpr, tl.constexpr]:
        results, out = self.results(["c"], ["neg"], paired=paired)
        return self.finish(f"{results} s:l:2", self.unpack("s"), self.exponentials(), self.sums("e", "c"), out)

    def negative_gradient(self, *, log: bool) -> tuple[tl.constexpr, tl.constexpr]:
        """``e^s`` times the factor; with ``log``, its logarithm is added to the exponent, which takes no extra instruction."""
        times, added = ("", "$neg0") if log else (self.each("mul.f32 e#, e#, $neg%; "), "$zero0")
        return self.finish(
            "grad:=l:2 s:l:2 neg:f:2 zero:f:2", self.unpack("s", again=True), self.exponentials(added), times, self.pack()
        )

    def left_out(self) -> tuple[tl.constexpr, tl.constexpr]:
        """Set eight listed labels to -inf. A label in the two words has a bit of its own in ``d``; one that is far has none,
        because a shift by more than 31 gives 0."""
        names = [f"list{'abcdefgh'[k]}" for k in range(8)]
        lines = f"shl.b32 h1, $word0, {self.per // 2}; mov.b32 d, 0; "
        lines += "".join(f"sub.u32 b, ${name}0, h1; shl.b32 b, 1, b; or.b32 d, d, b; " for name in names)
        lines += f"and.b32 d, d, {(1 << 2 * self.per) - 1}; setp.eq.u32 any, d, 0; "
        lines += "mov.b64 $out0, $s0; mov.b64 $out1, $s1; @any bra done; "
        bit = "and.b32 b, d, {}; setp.ne.u32 p, b, 0; "
        if self.per == 4:
            lines += "mov.b64 {h0, h1}, $s0; mov.b64 {h2, h3}, $s1; "
            for k in range(8):
                # Replace the lower or the upper half of a register by -inf.
                half, place = "0xfc00" if self.float16 else "0xff80", "0x5410" if k % 2 else "0x3254"
                lines += bit.format(1 << k) + f"@p prmt.b32 h{k // 2}, h{k // 2}, {half}, {place}; "
            lines += "mov.b64 $out0, {h0, h1}; mov.b64 $out1, {h2, h3}; "
        else:
            lines += self.unpack("s")
            lines += "".join(bit.format(1 << k) + f"@p mov.f32 s{k}, 0fFF800000; " for k in range(4))
            lines += "mov.b64 $out0, {s0, s1}; mov.b64 $out1, {s2, s3}; "
        lists = " ".join(f"{name}:r:2" for name in names)
        return self.finish(f"out:=&l:2 s:l:2 word:r:2 {lists}", lines, "done: ")


_TWO, _FOUR, _HALF = _Writer(2), _Writer(4), _Writer(4, float16=True)
HARD_SUMS_2, HARD_SUMS_2_TYPES = _TWO.hard_sums(paired=False)
HARD_PAIRS_2, HARD_PAIRS_2_TYPES = _TWO.hard_sums(paired=True)
HARD_SUMS_4, HARD_SUMS_4_TYPES = _FOUR.hard_sums(paired=False)
(HARD_GRAD_2, HARD_GRAD_2_TYPES), (HARD_GRAD_4, HARD_GRAD_4_TYPES) = _TWO.hard_gradient(), _FOUR.hard_gradient()
(BITS_SUMS_4, BITS_SUMS_4_TYPES), (BITS_GRAD_4, BITS_GRAD_4_TYPES) = _FOUR.bits_sums(), _FOUR.bits_gradient()
(SOFT_SUMS_2, SOFT_SUMS_2_TYPES), (SOFT_SUMS_4, SOFT_SUMS_4_TYPES) = _TWO.soft_sums(), _FOUR.soft_sums()
(SOFT_GRAD_2, SOFT_GRAD_2_TYPES), (SOFT_GRAD_4, SOFT_GRAD_4_TYPES) = _TWO.soft_gradient(), _FOUR.soft_gradient()
NEG_SUMS_2, NEG_SUMS_2_TYPES = _TWO.negative_sums(paired=False)
NEG_PAIRS_2, NEG_PAIRS_2_TYPES = _TWO.negative_sums(paired=True)
NEG_SUMS_4, NEG_SUMS_4_TYPES = _FOUR.negative_sums(paired=False)
NEG_PAIRS_4, NEG_PAIRS_4_TYPES = _FOUR.negative_sums(paired=True)
NEG_GRAD_2, NEG_GRAD_2_TYPES = _TWO.negative_gradient(log=False)
(NEG_GRAD_4, NEG_GRAD_4_TYPES), (NEG_LOG_4, _) = _FOUR.negative_gradient(log=False), _FOUR.negative_gradient(log=True)
(LEFT_OUT_2, LEFT_OUT_2_TYPES), (LEFT_OUT_4, LEFT_OUT_4_TYPES) = _TWO.left_out(), _FOUR.left_out()
# Float16 words take the same operands as bfloat16 words.
(HARD_SUMS_H, _), (HARD_GRAD_H, _) = _HALF.hard_sums(paired=False), _HALF.hard_gradient()
(BITS_SUMS_H, _), (BITS_GRAD_H, _) = _HALF.bits_sums(), _HALF.bits_gradient()
(SOFT_SUMS_H, _), (SOFT_GRAD_H, _) = _HALF.soft_sums(), _HALF.soft_gradient()
(NEG_SUMS_H, _), (NEG_PAIRS_H, _) = _HALF.negative_sums(paired=False), _HALF.negative_sums(paired=True)
(NEG_GRAD_H, _), (LEFT_OUT_H, _) = _HALF.negative_gradient(log=False), _HALF.left_out()
