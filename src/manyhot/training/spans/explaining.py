"""Explanations of a span model: the gradient of a span's score by the token vectors, times these vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from manyhot._checks import check_at_least
from manyhot._suggest import nearest
from manyhot.data.spans.examples import Offsets, SpanExamples
from manyhot.decisions.span_decoding import Span, decode_spans
from manyhot.explain.contributions import Attribution, gradient_contributions
from manyhot.explain.explanation import Contribution, largest
from manyhot.explain.span_explanation import SpanExplanation, TextExplanation
from manyhot.training.spans.rows import SpanBatch, StoredRows

if TYPE_CHECKING:
    from manyhot.training.spans.bundle import FoundSpan, TrainedSpanModel


class _Candidate(NamedTuple):
    """A span of tokens in the window where its score is best."""

    window: int
    span: Span
    found: bool


def explain_spans(
    model: TrainedSpanModel, examples: SpanExamples, *, types: Sequence[str] | None, top: int, most: int, steps: int
) -> Iterator[TextExplanation]:
    """Yield one ``TextExplanation`` per text. For the arguments see ``TrainedSpanModel.explain``."""
    who = "TrainedSpanModel.explain"
    for name, value in (("top", top), ("most", most), ("steps", steps)):
        check_at_least(who, name, value, 1)
    wanted = set(range(len(model.type_names))) if types is None else _numbers(who, model.type_names, types)
    for row in range(len(examples)):
        one = examples[row : row + 1]
        windows = model.windows(one)
        stored = StoredRows(windows.rows, num_types=len(model.type_names), device=model.device)
        offsets, text = windows.offsets[0], one.texts[0]
        candidates = _candidates(model, stored, windows.start, offsets, next(model.read_windows(windows)), wanted, top)
        told: list[SpanExplanation] = []
        for window in sorted({each.window for each in candidates}):
            own = [each for each in candidates if each.window == window]
            start = windows.start[window]
            split = _split(model, stored.batch(np.array([window])), [each.span for each in own], steps)
            told += _explanations(model, text, offsets[start : start + int(stored.lengths[window])], own, split, most)
        told.sort(key=lambda each: (not each.predicted, -each.score))
        yield TextExplanation(row, text, tuple(told))


def _numbers(who: str, names: Sequence[str], wanted: Sequence[str]) -> set[int]:
    for name in wanted:
        if name not in names:
            raise ValueError(f"{who}: `types` must be types of the model; got {name!r}.{nearest(str(name), names)}")
    return {names.index(name) for name in wanted}


def _candidates(
    model: TrainedSpanModel,
    stored: StoredRows,
    starts: Sequence[int],
    offsets: Offsets,
    found: Sequence[FoundSpan],
    wanted: set[int],
    top: int,
) -> list[_Candidate]:
    """The predicted spans of the selected types and the next best ones, up to ``top``, each in its best window."""
    said = {(span.type, span.start, span.end) for span in found}
    best: dict[tuple[int, int, int], _Candidate] = {}
    for window in range(len(stored)):
        with torch.inference_mode():
            scores = model.network(stored.batch(np.array([window])))
            # The predicted spans of a window are among its cells above the threshold; the next best cells are below it.
            cells = decode_spans(scores, threshold=model.settings.threshold, mode="all")[0]
            cells += decode_spans(scores, threshold=-float("inf"), mode="all", top_k=top * len(model.type_names))[0]
        for span in cells:
            key = (span.type, span.start + starts[window], span.end + starts[window])
            ends = offsets[key[1]][0], offsets[key[2]][1]
            known = (model.type_names[span.type], *ends) in said
            if span.type in wanted and ends[0] < ends[1] and (key not in best or span.score > best[key].span.score):
                best[key] = _Candidate(window, span, known)
    chosen = [each for each in best.values() if each.found]
    others = sorted((each for each in best.values() if not each.found), key=lambda each: -each.span.score)
    return chosen + others[: max(0, top - len(chosen))]


def _split(model: TrainedSpanModel, batch: SpanBatch, spans: Sequence[Span], steps: int) -> Attribution:
    """Split the scores of some cells of a window among the vectors of its tokens. The baseline is a text of unknown tokens."""
    network = model.network
    vectors = _vectors(network.encoder)
    kept: list[Tensor] = []
    handle = vectors.register_forward_hook(lambda _module, _inputs, made: kept.append(made.detach()))
    try:
        with torch.no_grad():
            network(batch)
    finally:
        handle.remove()
    types, first, last = (torch.tensor([getattr(span, name) for span in spans]) for name in ("type", "start", "end"))

    def score(point: Tensor) -> Tensor:
        hook = vectors.register_forward_hook(lambda *_: point)
        try:
            return network(batch).dense()[:, types, first, last]  # type: ignore[no-any-return]
        finally:
            hook.remove()

    # cuDNN has no backward for recurrent layers in evaluation mode.
    with torch.backends.cudnn.flags(enabled=False):
        split = gradient_contributions(
            score, kept[0][0], _baseline(network.encoder, kept[0][0]), range(len(spans)), steps=steps
        )
    parts = split.parts.sum(dim=-1)
    front = len(getattr(network.encoder, "before", ()))
    own = parts[:, front : front + int(batch.sizes[0])]
    # The special tokens around the text are not reported; their parts become a part of the error.
    return Attribution(split.score, split.base, own)


def _vectors(encoder: Any) -> nn.Module:
    """The module whose output is the vectors of tokens."""
    found: nn.Module = encoder.vectors if hasattr(encoder, "vectors") else encoder.model.get_input_embeddings()
    return found


def _baseline(encoder: Any, x: Tensor) -> Tensor:
    """The baseline: as many unknown tokens, or in a pretrained encoder padding.

    Vectors of 0, which an encoder trained from scratch never sees inside a text, are no baseline: near them the scores of a
    recurrent encoder change so fast that no number of steps explained them.
    """
    if hasattr(encoder, "vectors"):
        return encoder.vectors.unknown().expand_as(x).clone()  # type: ignore[no-any-return]
    padding: Tensor = encoder.model.get_input_embeddings().weight[encoder.padding]
    return padding.detach().to(x.dtype).expand_as(x).clone()


def _explanations(
    model: TrainedSpanModel, text: str, tokens: Offsets, own: Sequence[_Candidate], split: Attribution, most: int
) -> list[SpanExplanation]:
    told = []
    for place, each in enumerate(own):
        parts = split.parts[place]
        start, end = tokens[each.span.start][0], tokens[each.span.end][1]
        listed = tuple(
            Contribution(text[tokens[token][0] : tokens[token][1]], 1.0, float(parts[token]), (tokens[token],))
            for token in largest(parts, most)
        )
        score = float(split.score[place])
        told.append(
            SpanExplanation(
                type=model.type_names[each.span.type],
                start=start,
                end=end,
                text=text[start:end],
                score=score,
                predicted=each.found,
                threshold=model.settings.threshold,
                probability=model.probability(score),
                base=float(split.base[place]),
                contributions=listed,
                rest=float(parts.sum()) - sum(part.part for part in listed),
                error=score - float(split.base[place]) - float(parts.sum()),
                words=tuple((one, two, float(part)) for (one, two), part in zip(tokens, parts.tolist(), strict=True)),
            )
        )
    return told
