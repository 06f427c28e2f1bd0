"""Splits texts into windows of tokens, and merges the spans of the windows into those of the texts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from manyhot.data.spans.alignment import Alignment, TokenSpan, align_examples
from manyhot.data.spans.examples import Offsets, SpanExamples, TextSpan
from manyhot.decisions.span_decoding import Span
from manyhot.decisions.span_windows import merge_windows, token_windows
from manyhot.training.spans.inputs import Array, Encoded, as_cells
from manyhot.training.spans.rows import SpanBatch, StoredRows

Decode = Callable[[SpanBatch], list[list[Span]]]
# On a CPU larger batches are divided: the states of this many windows stay in cache, and there is less padding.
CPU_WINDOWS = 64


class SpanInputs(Protocol):
    """Encodes texts as numbers."""

    tokens: str

    def offsets(self, text: str) -> Offsets:
        """The tokens of a text."""
        ...

    def encode(self, text: str, offsets: Offsets) -> tuple[Array, Array]:
        """The numbers of the tokens, and of their letters."""
        ...


@dataclass(frozen=True)
class Windows:
    """All windows of some texts.

    Args:
        rows: the encoded windows.
        text: for each window, the index of its text.
        start: for each window, its first token.
        offsets: for each text, its tokens.
        alignment: the marked spans as tokens, and those that do not align.
        cut: how many aligned spans no window contains whole.
    """

    rows: list[Encoded]
    text: list[int]
    start: list[int]
    offsets: list[Offsets]
    alignment: Alignment
    cut: int = 0

    def report(self) -> str:
        """How many marked spans are in the windows, in a sentence."""
        told = self.alignment.report()
        if not self.cut:
            return told
        many = f"{self.cut:,} spans are" if self.cut > 1 else "1 span is"
        return f"{told}; {many} left out: cut at a window's end, and longer than the overlap of two windows"


def make_windows(
    inputs: SpanInputs, examples: SpanExamples, type_names: Sequence[str], *, max_tokens: int, overlap: int
) -> Windows:
    """The windows of texts with the spans that lie in them; spans of types that are not in ``type_names`` are left out."""
    own = examples.tokens if inputs.tokens == "words" else None
    offsets = own if own is not None else [inputs.offsets(text) for text in examples.texts]
    alignment = align_examples(examples, offsets)
    number = {name: place for place, name in enumerate(type_names)}
    rows, texts, starts, cut = [], [], [], 0
    for place, (text, tokens) in enumerate(zip(examples.texts, offsets, strict=True)):
        features, letters = inputs.encode(text, tokens)
        known = sorted((span for span in alignment.spans[place] if span.type in number), key=lambda span: span.first)
        valued = _valued(examples, place, known, tokens)
        firsts = [span.first for span in known]
        whole: set[TokenSpan] = set()
        for start, stop in token_windows(len(tokens), size=max_tokens, overlap=overlap):
            # Only spans that begin in the window: checking all of them in every window would be quadratic in the length of the
            # text.
            inside = valued[bisect_left(firsts, start) : bisect_left(firsts, stop)]
            cells = as_cells(inside, number, start, stop, soft=examples.soft)
            rows.append(Encoded(features[start:stop], letters[start:stop], *cells))
            whole.update(span for span, _ in inside if span.last < stop)
            texts.append(place)
            starts.append(start)
        cut += len(set(known)) - len(whole)
    return Windows(rows, texts, starts, offsets, alignment, cut)


def _valued(examples: SpanExamples, row: int, known: Sequence[TokenSpan], tokens: Offsets) -> list[tuple[TokenSpan, float]]:
    """Spans of tokens with their labels."""
    if examples.values is None:
        return [(span, 1.0) for span in known]
    value = dict(zip(examples.spans[row], examples.values[row], strict=True))
    return [(span, value[TextSpan(span.type, tokens[span.first][0], tokens[span.last][1])]) for span in known]


def decode_windows(
    windows: Windows, decode: Decode, *, num_types: int, device: torch.device, mode: str, threshold: float, batch_size: int
) -> list[list[Span]]:
    """The spans of each text, as token positions; windows of similar length share a batch."""
    stored = StoredRows(windows.rows, num_types=num_types, device=device)
    order = np.argsort(stored.lengths, kind="stable")
    batch_size = min(batch_size, CPU_WINDOWS) if device.type == "cpu" else batch_size
    found: list[list[Span]] = [[] for _ in windows.rows]
    for first in range(0, len(order), batch_size):
        picked = order[first : first + batch_size]
        with torch.inference_mode():
            spans = decode(stored.batch(picked))
        for row, own in zip(picked.tolist(), spans, strict=True):
            found[row] = own
    by_text: list[tuple[list[list[Span]], list[int]]] = [([], []) for _ in windows.offsets]
    for own, text, start in zip(found, windows.text, windows.start, strict=True):
        by_text[text][0].append(own)
        by_text[text][1].append(start)
    return [
        parts[0] if len(parts) == 1 else merge_windows(parts, starts, mode=mode, threshold=threshold)
        for parts, starts in by_text
    ]
