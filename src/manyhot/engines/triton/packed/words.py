"""Words of 64 bits, each two or four scores: their sums, their gradient, and listed labels left out of them (CUDA).

``PER`` is the number of scores per word: two float32, or four bfloat16 (float16 if ``HALF``). Compiled kernels use the PTX of
``ptx``; the interpreter cannot run PTX and unpacks the words.
"""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import COMPILED, exp
from manyhot.engines.triton.packed.ptx import (
    BITS_GRAD_4,
    BITS_GRAD_4_TYPES,
    BITS_GRAD_H,
    BITS_SUMS_4,
    BITS_SUMS_4_TYPES,
    BITS_SUMS_H,
    HARD_GRAD_2,
    HARD_GRAD_2_TYPES,
    HARD_GRAD_4,
    HARD_GRAD_4_TYPES,
    HARD_GRAD_H,
    HARD_PAIRS_2,
    HARD_PAIRS_2_TYPES,
    HARD_SUMS_2,
    HARD_SUMS_2_TYPES,
    HARD_SUMS_4,
    HARD_SUMS_4_TYPES,
    HARD_SUMS_H,
    LEFT_OUT_2,
    LEFT_OUT_2_TYPES,
    LEFT_OUT_4,
    LEFT_OUT_4_TYPES,
    LEFT_OUT_H,
    NEG_GRAD_2,
    NEG_GRAD_2_TYPES,
    NEG_GRAD_4,
    NEG_GRAD_4_TYPES,
    NEG_GRAD_H,
    NEG_LOG_4,
    NEG_PAIRS_2,
    NEG_PAIRS_2_TYPES,
    NEG_PAIRS_4,
    NEG_PAIRS_4_TYPES,
    NEG_PAIRS_H,
    NEG_SUMS_2,
    NEG_SUMS_2_TYPES,
    NEG_SUMS_4,
    NEG_SUMS_4_TYPES,
    NEG_SUMS_H,
    SOFT_GRAD_2,
    SOFT_GRAD_2_TYPES,
    SOFT_GRAD_4,
    SOFT_GRAD_4_TYPES,
    SOFT_GRAD_H,
    SOFT_SUMS_2,
    SOFT_SUMS_2_TYPES,
    SOFT_SUMS_4,
    SOFT_SUMS_4_TYPES,
    SOFT_SUMS_H,
)


@triton.jit
def _of_two(halves):
    """One float32 for every two words, which hold half of its bits each."""
    low, high = tl.split(tl.reshape(halves, [halves.shape[0], halves.shape[1] // 2, 2]))
    bits = (high.to(tl.int32) << 16) | (low.to(tl.int32) & 0xFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def word_sums(s, t, smoothing, HARD: tl.constexpr, PAIRED: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr):
    """The sums of each word's positive and negative terms, ``t e^-s`` and ``(1 - t) e^s``.

    Where PAIRED there is one sum for two neighbours, which takes half the registers; every thread must have pairs of words.
    """
    if not COMPILED:
        neg, pos = tl.zeros(s.shape, tl.float32), tl.zeros(s.shape, tl.float32)
        for k in tl.static_range(PER):
            score, label = _score(s, k, PER, HALF), _label(t, k, smoothing, HARD, PER, HALF)
            neg += tl.where(label == 1, 0.0, (1.0 - label) * exp(score))
            pos += tl.where(label == 0, 0.0, label * exp(-score))
    elif HARD and PAIRED and PER == 2:
        neg, pos = tl.inline_asm_elementwise(
            HARD_PAIRS_2, HARD_PAIRS_2_TYPES, [s, t], dtype=(tl.int16, tl.int16), is_pure=True, pack=2
        )
        neg, pos = _of_two(neg), _of_two(pos)
    elif HARD:
        ASM: tl.constexpr = HARD_SUMS_H if HALF else (HARD_SUMS_4 if PER == 4 else HARD_SUMS_2)
        TYPES: tl.constexpr = HARD_SUMS_4_TYPES if PER == 4 else HARD_SUMS_2_TYPES
        neg, pos = tl.inline_asm_elementwise(ASM, TYPES, [s, t], dtype=(tl.float32, tl.float32), is_pure=True, pack=2)
    else:
        SOFT: tl.constexpr = SOFT_SUMS_H if HALF else (SOFT_SUMS_4 if PER == 4 else SOFT_SUMS_2)
        SOFT_TYPES: tl.constexpr = SOFT_SUMS_4_TYPES if PER == 4 else SOFT_SUMS_2_TYPES
        neg, pos = tl.inline_asm_elementwise(
            SOFT, SOFT_TYPES, [s, t, smoothing / 2, 1.0 - smoothing], dtype=(tl.float32, tl.float32), is_pure=True, pack=2
        )
    return pos, neg


@triton.jit
def word_gradient(s, t, smoothing, pos_factor, neg_factor, zero, HARD: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr):
    """The gradient of each word: its terms times the factors of their sides, in the type of the scores."""
    if not COMPILED:
        grad = tl.zeros(s.shape, tl.int64)
        for k in tl.static_range(PER):
            score, label = _score(s, k, PER, HALF), _label(t, k, smoothing, HARD, PER, HALF)
            neg = tl.where(label == 1, 0.0, (1.0 - label) * exp(score)) * neg_factor
            pos = tl.where(label == 0, 0.0, label * exp(-score)) * pos_factor
            grad = grad | (_bits(neg - pos, PER, HALF) << (64 // PER * k))
    elif HARD:
        ASM: tl.constexpr = HARD_GRAD_H if HALF else (HARD_GRAD_4 if PER == 4 else HARD_GRAD_2)
        TYPES: tl.constexpr = HARD_GRAD_4_TYPES if PER == 4 else HARD_GRAD_2_TYPES
        grad = tl.inline_asm_elementwise(ASM, TYPES, [s, t, neg_factor, pos_factor, zero], dtype=tl.int64, is_pure=True, pack=2)
    else:
        SOFT: tl.constexpr = SOFT_GRAD_H if HALF else (SOFT_GRAD_4 if PER == 4 else SOFT_GRAD_2)
        SOFT_TYPES: tl.constexpr = SOFT_GRAD_4_TYPES if PER == 4 else SOFT_GRAD_2_TYPES
        numbers = [s, t, smoothing / 2, 1.0 - smoothing, neg_factor, pos_factor, zero]
        grad = tl.inline_asm_elementwise(SOFT, SOFT_TYPES, numbers, dtype=tl.int64, is_pure=True, pack=2)
    return grad


@triton.jit
def bits_sums(s, t, HALF: tl.constexpr):
    """``word_sums`` for hard labels and words of four scores, and the labels as bits, which take a quarter of the registers.

    Every thread must have groups of four words; the first word of a group returns the sum of the group.
    """
    if not COMPILED:
        pos, neg = word_sums(s, t, 0.0, True, False, 4, HALF)
        bits = t
    else:
        ASM: tl.constexpr = BITS_SUMS_H if HALF else BITS_SUMS_4
        neg, pos, bits = tl.inline_asm_elementwise(
            ASM, BITS_SUMS_4_TYPES, [s, t], dtype=(tl.float32, tl.float32, tl.int8), is_pure=True, pack=4
        )
    return pos, neg, bits


@triton.jit
def bits_gradient(s, bits, pos_factor, neg_factor, zero, HALF: tl.constexpr):
    """``word_gradient`` with labels as ``bits_sums`` gives them."""
    if not COMPILED:
        grad = word_gradient(s, bits, 0.0, pos_factor, neg_factor, zero, True, 4, HALF)
    else:
        operands = [s, bits, neg_factor, pos_factor, zero]
        ASM: tl.constexpr = BITS_GRAD_H if HALF else BITS_GRAD_4
        grad = tl.inline_asm_elementwise(ASM, BITS_GRAD_4_TYPES, operands, dtype=tl.int64, is_pure=True, pack=4)
    return grad


@triton.jit
def negative_sums(s, PAIRED: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr):
    """The sum of each word's ``e^s``; of two neighbouring words' where PAIRED."""
    if not COMPILED:
        neg = tl.zeros(s.shape, tl.float32)
        for k in tl.static_range(PER):
            neg += exp(_score(s, k, PER, HALF))
    elif PAIRED:
        PAIR: tl.constexpr = NEG_PAIRS_H if HALF else (NEG_PAIRS_4 if PER == 4 else NEG_PAIRS_2)
        PAIR_TYPES: tl.constexpr = NEG_PAIRS_4_TYPES if PER == 4 else NEG_PAIRS_2_TYPES
        neg = _of_two(tl.inline_asm_elementwise(PAIR, PAIR_TYPES, [s], dtype=tl.int16, is_pure=True, pack=2))
    else:
        ASM: tl.constexpr = NEG_SUMS_H if HALF else (NEG_SUMS_4 if PER == 4 else NEG_SUMS_2)
        TYPES: tl.constexpr = NEG_SUMS_4_TYPES if PER == 4 else NEG_SUMS_2_TYPES
        neg = tl.inline_asm_elementwise(ASM, TYPES, [s], dtype=tl.float32, is_pure=True, pack=2)
    return neg


@triton.jit
def negative_gradient(s, factor, zero, SIGNED: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr):
    """The gradient of each word, ``e^s`` times a factor, in the type of the scores.

    In bfloat16, the logarithm of a factor that is not SIGNED is added to the exponent, which is exact enough there.
    """
    LOG: tl.constexpr = PER == 4 and not SIGNED and not HALF
    if not COMPILED:
        grad = tl.zeros(s.shape, tl.int64)
        for k in tl.static_range(PER):
            grad = grad | (_bits(exp(_score(s, k, PER, HALF)) * factor, PER, HALF) << (64 // PER * k))
    else:
        ASM: tl.constexpr = NEG_LOG_4 if LOG else (NEG_GRAD_H if HALF else (NEG_GRAD_4 if PER == 4 else NEG_GRAD_2))
        TYPES: tl.constexpr = NEG_GRAD_4_TYPES if PER == 4 else NEG_GRAD_2_TYPES
        if LOG:
            factor = tl.inline_asm_elementwise(
                "lg2.approx.f32 $0, $1;", "=f,f", [factor], dtype=tl.float32, is_pure=True, pack=1
            )
        grad = tl.inline_asm_elementwise(ASM, TYPES, [s, factor, zero], dtype=tl.int64, is_pure=True, pack=2)
    return grad


@triton.jit
def leave_out(s, words, a, b, c, d, e, f, g, h, PER: tl.constexpr, HALF: tl.constexpr):
    """The words with -inf at eight labels; a label that is in none of the words changes nothing."""
    if not COMPILED:
        for label in (a, b, c, d, e, f, g, h):
            place = 64 // PER * (label % PER)
            nothing, whole = (0xFC00 if HALF else 0xFF80, 0xFFFF) if PER == 4 else (0xFF800000, 0xFFFFFFFF)
            left = (s & ~(tl.full([1, 1], whole, tl.int64) << place)) | (tl.full([1, 1], nothing, tl.int64) << place)
            s = tl.where((label >= 0) & (words == label // PER), left, s)
    else:
        ASM: tl.constexpr = LEFT_OUT_H if HALF else (LEFT_OUT_4 if PER == 4 else LEFT_OUT_2)
        TYPES: tl.constexpr = LEFT_OUT_4_TYPES if PER == 4 else LEFT_OUT_2_TYPES
        s = tl.inline_asm_elementwise(ASM, TYPES, [s, words, a, b, c, d, e, f, g, h], dtype=tl.int64, is_pure=True, pack=2)
    return s


@triton.jit
def _score(s, k: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr):
    """The k-th score of each word, for the interpreter."""
    if HALF:
        score = ((s >> (16 * k)) & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    elif PER == 4:
        score = (((s >> (16 * k)) & 0xFFFF) << 16).to(tl.int32).to(tl.float32, bitcast=True)
    else:
        score = ((s >> (32 * k)) & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)
    return score


@triton.jit
def _label(t, k: tl.constexpr, smoothing, HARD: tl.constexpr, PER: tl.constexpr, HALF: tl.constexpr):
    """The k-th label of each word, for the interpreter."""
    if HARD:
        label = tl.where(((t >> (8 * k)) & 0xFF) != 0, 1.0, 0.0)
    else:
        label = _score(t, k, PER, HALF) * (1.0 - smoothing) + smoothing / 2
    return label


@triton.jit
def _bits(grad, PER: tl.constexpr, HALF: tl.constexpr):
    """The bits of a gradient in a word, for the interpreter."""
    bits = grad.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    if HALF:
        bits = grad.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int64) & 0xFFFF
    elif PER == 4:
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return bits
