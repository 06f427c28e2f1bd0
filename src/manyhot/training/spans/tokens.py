"""Splits texts into tokens with their positions; the shape of a token, a feature that needs no vocabulary."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from manyhot.data.spans.examples import Offsets, SpanExamples

_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")
_CHARACTER = re.compile(r"\S")
# Writing systems without blanks between words: Thai, Lao, Myanmar, Khmer, kana, Chinese characters (not Hangul).
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
SAMPLE_TEXTS = 1000
SHAPES = ("other", "lower", "title", "upper", "mixed", "digits", "with digits", "mark", "ideograph", "letter")


def split_text(text: str, tokens: str) -> Offsets:
    """``(start, end)`` of each token of a text. ``words`` are runs of letters and digits, and single marks; ``characters`` are
    all characters except blanks.

    Example:
        >>> split_text("Ada's 2 cats", "words")
        [(0, 3), (3, 4), (4, 5), (6, 7), (8, 12)]
    """
    pattern = _WORD if tokens == "words" else _CHARACTER
    return [found.span() for found in pattern.finditer(text)]


def offsets_of(examples: SpanExamples, tokens: str) -> list[Offsets]:
    """The tokens of every row: those of the examples if they are split into words, otherwise split from the text."""
    if tokens == "words" and examples.tokens is not None:
        return examples.tokens
    return [split_text(text, tokens) for text in examples.texts]


def tokens_for(texts: Sequence[str]) -> str:
    """``characters`` if most letters belong to a writing system without blanks between words, otherwise ``words``."""
    sample = "".join(texts[:: max(len(texts) // SAMPLE_TEXTS, 1)])
    unspaced = len(_UNSPACED.findall(sample))
    letters = sum(map(str.isalpha, sample))
    return "characters" if 2 * unspaced > letters else "words"


def shape_of(token: str) -> int:
    """The index of a token's shape in ``SHAPES``.

    Example:
        >>> [SHAPES[shape_of(word)] for word in ("Ada", "iPhone", "EU", "1815", "B2B", "-", "彭")]
        ['title', 'mixed', 'upper', 'digits', 'with digits', 'mark', 'ideograph']
    """
    if _UNSPACED.match(token[:1]):
        return SHAPES.index("ideograph")
    if token.isdigit():
        return SHAPES.index("digits")
    if any(map(str.isdigit, token)):
        return SHAPES.index("with digits")
    if not any(map(str.isalpha, token)):
        return SHAPES.index("mark" if unicodedata.category(token[:1] or " ")[0] in "PS" else "other")
    if token.islower():
        return SHAPES.index("lower")
    if len(token) > 1 and token.isupper():
        return SHAPES.index("upper")
    if token[:1].isupper() and (len(token) == 1 or token[1:].islower()):
        return SHAPES.index("title")
    return SHAPES.index("mixed" if token != token.lower() else "letter")
