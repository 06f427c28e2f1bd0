"""Explains the scores of a trained model, for every kind of input and body; ``manyhot.explain`` has the arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from manyhot._checks import check_at_least
from manyhot._suggest import nearest
from manyhot.decisions.rule import decide
from manyhot.explain.contributions import Attribution, gradient_contributions, linear_contributions
from manyhot.explain.explanation import (
    EXACT,
    GRADIENT,
    Contribution,
    Explanation,
    LabelExplanation,
    LabelWords,
    WordShares,
    largest,
)
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.inputs.features import FeatureInputs
from manyhot.training.rows.inputs.places import feature_name, find_places
from manyhot.training.rows.inputs.row_batches import take_rows
from manyhot.training.rows.inputs.texts import TextInputs
from manyhot.training.rows.inputs.tokens import TokenInputs, TokenRows, texts_of
from manyhot.training.rows.strategies import without_reader

if TYPE_CHECKING:
    from manyhot.training.rows.bundle import TrainedModel

# Most weights (features times labels) that are in memory at once.
BLOCK = 1 << 24


class _Row(NamedTuple):
    """One prepared row: the names, values and places of its K elements, and the function that splits scores among them."""

    name: Callable[[int], str]
    values: Tensor
    places: Sequence[tuple[int, int, int]]
    words: Sequence[tuple[int, int]]
    split: Callable[[Sequence[int], int], Attribution]


def can_explain(model: TrainedModel) -> bool:
    """Whether ``explain_rows`` supports the body of a model."""
    return get_body(model.shape["body"]).explains


def explain_rows(
    model: TrainedModel, inputs: Any, *, labels: Sequence[str] | None, top: int, most: int, steps: int
) -> Iterator[Explanation]:
    """One ``Explanation`` a row; ``TrainedModel.explain`` says what the arguments mean."""
    who = "TrainedModel.explain"
    for name, value in (("top", top), ("most", most), ("steps", steps)):
        check_at_least(who, name, value, 1)
    if not can_explain(model):
        raise ValueError(
            f"{who}: the body must split its scores among its inputs, by weights or by gradients; {model.shape['body']!r} does"
            " not. Train another one, such as linear or bag."
        )
    wanted = None if labels is None else _numbers(who, model.label_names, labels)
    texts = texts_of(inputs) if isinstance(model.inputs, (TextInputs, TokenInputs)) else None
    rows = model.inputs.rows(inputs if texts is None else texts)
    method = GRADIENT if model.factors() is None else EXACT
    for place in range(rows.shape[0]):
        one = take_rows(rows, slice(place, place + 1))
        with torch.inference_mode():
            moved = one.to_device(model.device) if hasattr(one, "to_device") else one.to(model.device)
            scores = model.body(moved)
            logits = (scores if isinstance(scores, Tensor) else scores.dense()).float().cpu()
        chosen = _best(logits[0], decide(logits, model.rule)[0], top) if wanted is None else wanted
        text = None if texts is None else texts[place]
        prepared = _prepared(model, rows, place, text)
        yield Explanation(place, text, method, _explained(model, logits, chosen, prepared, most, steps))


def label_words(model: TrainedModel, *, labels: Sequence[str] | None = None, most: int = 10) -> Iterator[LabelWords]:
    """The features with the largest and the lowest weights of each label, if scores are linear in the features."""
    who = "TrainedModel.label_words"
    check_at_least(who, "most", most, 1)
    factors = model.factors()
    if factors is None:
        raise ValueError(
            f"{who}: the body must be linear in its inputs, as linear and bag are; got {model.shape['body']!r}."
            " Use `explain` on rows."
        )
    chosen = list(range(model.num_labels)) if labels is None else _numbers(who, model.label_names, labels)
    size = max(1, BLOCK // len(factors.first))
    name = _namer(model)
    for start in range(0, len(chosen), size):
        part = chosen[start : start + size]
        table = factors.weights(part)
        high, low = (table.topk(min(most, table.shape[1]), dim=1, largest=side) for side in (True, False))
        for row, label in enumerate(part):
            ends = [
                tuple((name(int(column)), float(weight)) for weight, column in zip(*found, strict=True) if weight * sign > 0)
                for found, sign in (((high.values[row], high.indices[row]), 1), ((low.values[row], low.indices[row]), -1))
            ]
            yield LabelWords(model.label_names[label], ends[0], ends[1])


def _numbers(who: str, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    if isinstance(wanted, str):
        raise TypeError(f"{who}: `labels` must be a list of label names; got one string.")
    number = {name: place for place, name in enumerate(names)}
    for name in wanted:
        if name not in number:
            raise ValueError(f"{who}: `labels` must be labels of the model; got {name!r}.{nearest(str(name), names)}")
    return [number[name] for name in wanted]


def _best(logits: Tensor, predicted: Tensor, top: int) -> list[int]:
    """The predicted labels and the next best ones, up to ``top``, by descending score."""
    order = logits.nan_to_num(-torch.inf).argsort(descending=True, stable=True).tolist()
    said = [label for label in order if predicted[label]]
    others = [label for label in order if not predicted[label]]
    kept = {*said, *others[: max(0, top - len(said))]}
    return [label for label in order if label in kept]


def _explained(
    model: TrainedModel, logits: Tensor, chosen: Sequence[int], row: _Row, most: int, steps: int
) -> tuple[LabelExplanation, ...]:
    found = row.split(chosen, steps)
    predicted = decide(logits, model.rule)[0]
    probs = None if model.calibration is None and model.link is None else model.to_probabilities(logits)[0]
    spans: dict[int, list[tuple[int, int]]] = {}
    for element, start, end in row.places:
        spans.setdefault(element, []).append((start, end))
    shares = WordShares(row.words, row.places) if row.words else None
    answers = []
    for place, label in enumerate(chosen):
        parts = found.parts[place].flatten()
        kept = largest(parts, most)
        listed = tuple(
            Contribution(row.name(each), float(row.values[each]), float(parts[each]), tuple(spans.get(each, ())))
            for each in kept
        )
        answers.append(
            LabelExplanation(
                label=model.label_names[label],
                score=float(found.score[place]),
                predicted=bool(predicted[label]),
                threshold=_threshold(model, label),
                probability=None if probs is None else float(probs[label]),
                base=float(found.base[place]),
                contributions=listed,
                rest=float(parts.sum() - sum(each.part for each in listed)),
                error=float(found.error[place]),
                words=() if shares is None else shares(parts),
            )
        )
    return tuple(answers)


def _threshold(model: TrainedModel, label: int) -> float | None:
    rule = model.rule
    if not rule.by_threshold:
        return None
    return rule.threshold[label] if isinstance(rule.threshold, tuple) else rule.threshold


def _namer(model: TrainedModel) -> Callable[[int], str]:
    inputs = model.inputs
    if isinstance(inputs, TextInputs):
        return lambda feature: feature_name(inputs, feature)
    names = inputs.names if isinstance(inputs, FeatureInputs) else None
    return (lambda feature: f"feature {feature}") if names is None else names.__getitem__


def _prepared(model: TrainedModel, rows: Any, place: int, text: str | None) -> _Row:
    """A row with the names and places of its elements."""
    inputs, name = model.inputs, _namer(model)
    if isinstance(inputs, TokenInputs):
        return _token_row(model, rows[slice(place, place + 1)], inputs, text or "")
    if isinstance(rows, Tensor):
        image = rows[place]
        return _Row(_pixel_name(image), image.flatten(), (), (), _image_split(model, image))
    if isinstance(rows, np.ndarray):
        columns, values = np.arange(rows.shape[1]), torch.from_numpy(np.ascontiguousarray(rows[place]))
    else:
        one = rows[place]
        columns, values = one.indices.astype(np.int64), torch.from_numpy(one.data.astype(np.float32))
    listed = columns.tolist()
    split = _column_split(model, torch.from_numpy(columns), values)
    words, places = ([], []) if text is None or not isinstance(inputs, TextInputs) else find_places(inputs, text)
    among = {column: element for element, column in enumerate(listed)}
    known = [(among[feature], start, end) for feature, start, end in places if feature in among]
    return _Row(lambda element: name(listed[element]), values, known, words, split)


def _column_split(model: TrainedModel, columns: Tensor, values: Tensor) -> Callable[[Sequence[int], int], Attribution]:
    """Split scores among features: exactly if the body is linear, otherwise by gradients from a baseline of zeros."""
    factors = model.factors()

    def exact(labels: Sequence[int], steps: int) -> Attribution:
        del steps
        assert factors is not None
        return linear_contributions(values, *factors.rows(columns, labels))

    def by_gradient(labels: Sequence[int], steps: int) -> Attribution:
        # The body with only those rows of its first weights that the input uses, so that the input is a small dense row.
        name, weight = _first_weight(model.body)
        picked = weight[columns.to(model.device)].detach()

        def score(batch: Tensor) -> Tensor:
            return torch.func.functional_call(model.body, {name: picked}, (batch,))  # type: ignore[no-any-return]

        x = values.to(model.device)
        return gradient_contributions(score, x, torch.zeros_like(x), labels, steps=steps)

    return by_gradient if factors is None else exact


def _first_weight(body: nn.Module) -> tuple[str, Tensor]:
    """``(name, weight [F, H])`` of the layer that reads the features; a body without a hidden layer has only its head."""
    own = without_reader(body)
    layer = "first" if hasattr(own, "first") else "head"
    name = f"{layer}.weight" if own is body else f"body.{layer}.weight"
    return name, body.get_parameter(name)


def _image_split(model: TrainedModel, image: Tensor) -> Callable[[Sequence[int], int], Attribution]:
    """Split scores among pixels, by gradients from the mean image, which is 0 everywhere."""

    def split(labels: Sequence[int], steps: int) -> Attribution:
        x = image.to(model.device)
        return gradient_contributions(model.body, x, torch.zeros_like(x), labels, steps=steps)

    return split


def _pixel_name(image: Tensor) -> Callable[[int], str]:
    _, height, width = image.shape

    def name(element: int) -> str:
        channel, place = divmod(element, height * width)
        return f"channel {channel}, row {place // width}, column {place % width}"

    return name


def _token_row(model: TrainedModel, row: TokenRows, inputs: TokenInputs, text: str) -> _Row:
    """Split scores among tokens, by gradients at their embeddings from a text of padding tokens."""
    pieces, offsets = inputs.pieces(text)
    ids, _ = row.to(model.device).padded(inputs.padding)
    embed: nn.Module = without_reader(model.body).encoder.get_input_embeddings()  # type: ignore[operator, union-attr]
    with torch.no_grad():
        x, blank = embed(ids)[0], embed(torch.full_like(ids, inputs.padding))[0]

    def score(batch: Tensor) -> Tensor:
        handle = embed.register_forward_hook(lambda *_: batch)
        try:
            return model.body(row.to(model.device))  # type: ignore[no-any-return]
        finally:
            handle.remove()

    def split(labels: Sequence[int], steps: int) -> Attribution:
        found = gradient_contributions(score, x, blank, labels, steps=steps)
        return Attribution(found.score, found.base, found.parts.sum(dim=-1))

    places = [(element, start, end) for element, (start, end) in enumerate(offsets) if end > start]
    words = sorted({(start, end) for _, start, end in places})
    return _Row(lambda element: pieces[element], row.ids.float(), places, words, split)
