"""The explanations in a report: the words of each label, and some decisions with the words that contributed to them."""

from __future__ import annotations

from typing import Any

import torch

from manyhot.explain.explanation import LabelExplanation
from manyhot.report.run.judged import Judged, Origin, rounded
from manyhot.report.run.mistakes import TEXT_CHARACTERS, without
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.explaining import can_explain

LABELS, WORDS = 60, 8
# Number of explained decisions: correct ones of the most frequent labels, and the worst mistakes.
RIGHT, MISTAKEN = 4, 4
PARTS = 6
# For nonlinear bodies: steps of integrated gradients from the baseline to the row.
STEPS = 16
# Words are highlighted if their contribution is at least the share FAINT of the largest. Nothing is highlighted if all
# contributions are below the share NOTHING of the score.
FAINT, NOTHING = 0.2, 0.02


def measure_explanations(model: TrainedModel, judged: Judged, origin: Origin) -> dict[str, Any]:
    """``{"words": the words of each label, "examples": explained decisions}``; either may be empty.

    The words are those with the largest weights, for linear models and bags. Decisions are explained for texts and features.
    """
    return {"words": _label_words(model, judged), "examples": _examples(model, judged, origin)}


def _label_words(model: TrainedModel, judged: Judged) -> list[dict[str, Any]]:
    if model.factors() is None:
        return []
    frequent = judged.confusion[1].positive.argsort(descending=True, stable=True)[:LABELS].tolist()
    found = model.label_words(labels=[judged.label_names[label] for label in frequent], most=WORDS)
    return [
        {
            "label": each.label,
            "for": [[name, rounded([weight], 3)[0]] for name, weight in each.speak_for],
            "against": [[name, rounded([weight], 3)[0]] for name, weight in each.speak_against],
        }
        for each in found
    ]


def _examples(model: TrainedModel, judged: Judged, origin: Origin) -> list[dict[str, Any]]:
    # Top lists lack the scores of the other labels; label trees have no gradient.
    if origin.examples.kind == "images" or judged.listed or not can_explain(model):
        return []
    told = []
    for row, label in [*_correct_decisions(judged), *_worst_mistakes(judged)]:
        place, name = origin.place(row), judged.label_names[label]
        found = model.explain(origin.examples[place : place + 1], labels=[name], most=PARTS, steps=STEPS)[0]
        true = label in judged.positives[row].tolist()
        told.append({"row": place + 1, "true": true, "method": found.method, **_explained(found.labels[0], found.text)})
    return told


def _correct_decisions(judged: Judged) -> list[tuple[int, int]]:
    """The most confident correct row of each of the most frequent labels; no row occurs twice."""
    rows = torch.repeat_interleave(torch.arange(len(judged.labels)), judged.positives.counts())
    predicted = {*zip(judged.predictions.rows.tolist(), judged.predictions.indices.tolist(), strict=True)}
    chosen: dict[int, int] = {}
    for label in judged.confusion[1].hits.argsort(descending=True, stable=True).tolist():
        if len(chosen) == RIGHT:
            break
        own = rows[judged.positives.indices == label]
        scores = judged.scores_at(own, torch.full_like(own, label))
        order = own[scores.argsort(descending=True, stable=True)].tolist()
        row = next((row for row in order if row not in chosen and (row, label) in predicted), None)
        if row is not None:
            chosen[row] = label
    return list(chosen.items())


def _worst_mistakes(judged: Judged) -> list[tuple[int, int]]:
    """The entries farthest on the wrong side of their thresholds, alternating between missed and wrongly predicted labels."""
    kinds = []
    for rows, columns in (without(judged.positives, judged.predictions), without(judged.predictions, judged.positives)):
        margin = (judged.scores_at(rows, columns) - judged.thresholds[columns]).abs()
        order = margin.where(margin.isfinite(), -torch.ones_like(margin)).argsort(descending=True, stable=True)[:MISTAKEN]
        kinds.append(list(zip(rows[order].tolist(), columns[order].tolist(), strict=True)))
    chosen: dict[int, int] = {}
    for turn in range(MISTAKEN):
        for kind in kinds:
            if turn < len(kind) and len(chosen) < MISTAKEN:
                chosen.setdefault(*kind[turn])
    return list(chosen.items())


def _explained(label: LabelExplanation, text: str | None) -> dict[str, Any]:
    parts = [[each.feature[:TEXT_CHARACTERS], rounded([each.part], 5)[0]] for each in label.contributions]
    numbers = {name: rounded([getattr(label, name)], 6)[0] for name in ("score", "base", "rest", "error")}
    threshold = None if label.threshold is None else rounded([label.threshold], 4)[0]
    told = {"label": label.label, "predicted": label.predicted, "threshold": threshold, **numbers, "parts": parts}
    return told if text is None else {**told, **_window(text, label)}


def _window(text: str, label: LabelExplanation) -> dict[str, Any]:
    """The passage of the text with the largest contributions, and the positions of the highlighted words in it."""
    best, first, total = (-1.0, 0), 0, 0.0
    for start, end, part in label.words:
        total += abs(part)
        while first < len(label.words) and end - label.words[first][0] > TEXT_CHARACTERS and label.words[first][0] < start:
            total -= abs(label.words[first][2])
            first += 1
        best = max(best, (total, -label.words[first][0]))
    begin = 0 if len(text) <= TEXT_CHARACTERS else -best[1]
    shown = text[begin : begin + TEXT_CHARACTERS]
    most = max([NOTHING * abs(label.score), *(abs(part) for _, _, part in label.words)])
    words = [
        [start - begin, end - begin, rounded([part / most], 3)[0]]
        for start, end, part in label.words
        if abs(part) >= FAINT * most > 0 and start >= begin and end <= begin + len(shown)
    ]
    return {"text": shown, "words": words, "before": begin > 0, "after": begin + len(shown) < len(text)}
