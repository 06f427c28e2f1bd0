"""Mistakes: the sizes of label sets, labels that are missed together, and the worst rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.labels.sparse import SparseLabels
from manyhot.report.parts.thumbnails import thumbnail
from manyhot.report.run.judged import Judged, Origin, rounded

MOST_MISSED = 12
PAIRS = 15
WORST = 12
TEXT_CHARACTERS = 400
SHOWN_LABELS = 12
# Pairs are counted only among the labels with the most mistakes; in a long tail hardly any pair occurs twice.
COUNTED = 500


def measure_counts(judged: Judged) -> dict[str, Any]:
    """The number of rows with 0, 1, 2, ... labels, true and predicted."""
    true, predicted = judged.positives.counts(), judged.predictions.counts()
    most = int(torch.cat([true, predicted, true.new_zeros(1)]).max())
    return {
        "true": torch.bincount(true, minlength=most + 1).tolist(),
        "predicted": torch.bincount(predicted, minlength=most + 1).tolist(),
    }


def without(listed: SparseLabels, others: SparseLabels) -> tuple[Tensor, Tensor]:
    """``(rows, columns)`` of the entries of ``listed`` that are not in ``others``."""
    kept = ~others.contains(listed.rows, listed.indices)
    return listed.rows[kept], listed.indices[kept]


def measure_missed(judged: Judged) -> dict[str, Any]:
    """Labels that are missed in the same rows, and labels that are wrongly predicted in rows where another label is missed."""
    missed = without(judged.positives, judged.predictions)
    wrong = without(judged.predictions, judged.positives)
    lost, lost_labels = _matrix(missed, judged)
    false, false_labels = _matrix(wrong, judged)
    together = np.asarray((lost.T @ lost).todense()) if len(lost_labels) else np.zeros((0, 0))
    instead = np.asarray((lost.T @ false).todense()) if len(lost_labels) and len(false_labels) else np.zeros((0, 0))
    names = judged.label_names
    top = lost_labels[:MOST_MISSED].tolist()
    return {
        "labels": [names[label] for label in top],
        "together": together[: len(top), : len(top)].astype(int).tolist(),
        "pairs": [
            {"labels": [names[lost_labels[a]], names[lost_labels[b]]], "rows": count}
            for a, b, count in _largest(np.triu(together, 1))
        ],
        "instead": [
            {"missed": names[lost_labels[a]], "predicted": names[false_labels[b]], "rows": count}
            for a, b, count in _largest(instead)
        ],
    }


def _matrix(entries: tuple[Tensor, Tensor], judged: Judged) -> tuple[Any, Any]:
    """``(0/1 matrix of rows by labels, the numbers of these labels)``, the labels with the most entries first."""
    from scipy import sparse

    rows, columns = (part.numpy() for part in entries)
    counts = np.bincount(columns, minlength=judged.labels.num_labels)
    labels = np.argsort(-counts, kind="stable")[: min(COUNTED, int((counts > 0).sum()))]
    place = np.full(judged.labels.num_labels, -1)
    place[labels] = np.arange(len(labels))
    kept = place[columns] >= 0
    shape = (len(judged.labels), len(labels))
    ones = np.ones(int(kept.sum()), dtype=np.int64)
    return sparse.csr_matrix((ones, (rows[kept], place[columns[kept]])), shape=shape), labels


def _largest(table: np.ndarray[Any, Any]) -> list[tuple[int, int, int]]:
    """``(row, column, count)`` of the largest counts above 0, largest first."""
    order = np.argsort(-table, axis=None, kind="stable")[:PAIRS]
    places = [divmod(int(flat), table.shape[1]) for flat in order] if table.size else []
    return [(a, b, int(table[a, b])) for a, b in places if table[a, b] > 0]


def measure_worst(judged: Judged, origin: Origin) -> list[dict[str, Any]]:
    """The rows whose wrong decisions are farthest from their thresholds, summed over labels."""
    far = torch.zeros(len(judged.labels), dtype=torch.float64)
    for rows, columns in (without(judged.positives, judged.predictions), without(judged.predictions, judged.positives)):
        margin = (judged.scores_at(rows, columns) - judged.thresholds[columns]).abs()
        # The threshold of a label that is never predicted is infinite; its margin becomes the largest finite one. NaN counts 0.
        known = margin[margin.isfinite()]
        margin = margin.nan_to_num(nan=0.0, posinf=float(known.max()) if len(known) else 1.0)
        far.index_add_(0, rows, margin)
    order = far.argsort(descending=True, stable=True)[:WORST].tolist()
    return [_example(judged, origin, row, float(far[row])) for row in order if far[row] > 0]


def id_and_text(examples: Examples, row: int) -> dict[str, str]:
    """The id and the text of a row, truncated, if the examples have them."""
    told = {}
    if examples.ids is not None:
        told["id"] = examples.ids[row][:TEXT_CHARACTERS]
    if examples.texts is not None:
        text = " ".join(examples.texts[row].split())
        told["text"] = text[:TEXT_CHARACTERS] + ("…" if len(text) > TEXT_CHARACTERS else "")
    return told


def _example(judged: Judged, origin: Origin, row: int, far: float) -> dict[str, Any]:
    true, predicted = set(judged.positives[row].tolist()), set(judged.predictions[row].tolist())
    place, examples = origin.place(row), origin.examples
    told: dict[str, Any] = {"row": place + 1, "far": rounded([far])[0], **id_and_text(examples, place)}
    if examples.images is not None:
        told["image"] = thumbnail(examples.images[place])
    for kind, labels in (("missed", true - predicted), ("wrong", predicted - true), ("right", true & predicted)):
        numbers = torch.tensor(sorted(labels), dtype=torch.int64)
        scores = dict(
            zip(numbers.tolist(), judged.scores_at(numbers.new_full((len(labels),), row), numbers).tolist(), strict=True)
        )
        ranked = sorted(labels, key=lambda label: (-abs(scores[label] - float(judged.thresholds[label])), label))
        told[kind] = [
            {"label": judged.label_names[label], "score": rounded([scores[label]], 3)[0]} for label in ranked[:SHOWN_LABELS]
        ]
        told[f"more_{kind}"] = max(0, len(labels) - SHOWN_LABELS)
    return told
