"""Do the words that an explanation names carry the score? They are deleted, and the score is taken again.

    python -m benchmarks.explain_deletion --data FOLDER --models FOLDER [--page PAGE]

The models are those of ``benchmarks.export_parity``.
"""

from __future__ import annotations

import argparse
import platform
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.text_sets import SETS
from manyhot import load_model
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.inputs.places import feature_name
from manyhot.training.rows.inputs.row_batches import SparseRows
from manyhot.training.rows.inputs.texts import TextInputs

ROWS, WORDS = 300, 3
CELLS = [(name, body) for name in ("reuters21578", "goemotions") for body in ("linear", "bag", "encoder")]


def without(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with some places cut out."""
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return text


def same_word(text: str, words: list[tuple[int, int, float]], picked: set[str]) -> list[tuple[int, int]]:
    """Every place of the picked words."""
    return [(start, end) for start, end, _ in words if text[start:end].lower() in picked]


def deleted_features(model: TrainedModel, text: str, label: int, parts: list[tuple[str, float]]) -> float:
    """The largest distance between a feature's part and what its deletion takes off the score."""
    row = model.inputs.rows([text])[0]
    names = [feature_name(model.inputs, int(column)) for column in row.indices]  # type: ignore[arg-type]

    def score(kept: list[int]) -> float:
        listed = (row.indices[kept].astype(np.int64), np.array([0, len(kept)]), row.data[kept])
        with torch.inference_mode():
            return float(model.body(SparseRows(*(torch.from_numpy(part) for part in listed)))[0, label])

    whole = score(list(range(len(names))))
    return max(
        (abs(whole - score([i for i, name in enumerate(names) if name != feature]) - part) for feature, part in parts),
        default=0.0,
    )


def measure(model: TrainedModel, texts: list[str]) -> dict[str, Any]:
    """Deletions on the best label of each text."""
    draw = random.Random(0)
    gaps, named, chance, predicted, errors = [], [], [], [], []
    for text in texts:
        steps = 1 if model.factors() is not None else 16
        label = model.explain([text], top=1, most=5, steps=steps)[0].labels[0]
        number = model.label_names.index(label.label)
        words = list(label.words)
        kinds = sorted({text[start:end].lower() for start, end, _ in words})
        if len(kinds) < 2 * WORDS:
            continue
        total = {kind: sum(part for start, end, part in words if text[start:end].lower() == kind) for kind in kinds}
        best = set(sorted(kinds, key=lambda kind: -total[kind])[:WORDS])
        other = set(draw.sample(kinds, WORDS))
        scores = model.logits([text, *(without(text, same_word(text, words, picked)) for picked in (best, other))])[:, number]
        named.append(float(scores[0] - scores[1]))
        chance.append(float(scores[0] - scores[2]))
        predicted.append(sum(total[kind] for kind in best))
        errors.append(abs(label.error))
        if isinstance(model.inputs, TextInputs) and len(gaps) < 50:
            gaps.append(deleted_features(model, text, number, [(c.feature, c.part) for c in label.contributions]))
    table = np.array([named, predicted])
    return {
        "texts": len(named),
        "feature": max(gaps) if gaps else None,
        "named": float(np.mean(named)),
        "chance": float(np.mean(chance)),
        "predicted": float(np.mean(predicted)),
        "correlation": float(np.corrcoef(table)[0, 1]),
        "error": float(np.mean(errors)),
    }


def page(lines: list[tuple[str, str, dict[str, Any]]], command: str) -> str:
    """The result page."""
    head = "| set | body | texts | a feature deleted: largest gap | 3 words named | as predicted | correlation |"
    head += " 3 words by chance | error |"
    table = [head, "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name, body, found in lines:
        gap = "" if found["feature"] is None else f"{found['feature']:.1e}"
        values = [f"{found[key]:.3f}" for key in ("named", "predicted", "correlation", "chance", "error")]
        table.append(f"| {name} | {body} | {found['texts']} | {gap} | " + " | ".join(values) + " |")
    return "\n".join(
        [
            "# Deleting what an explanation names",
            "",
            "The best label of each text. *A feature deleted*: the largest distance between the part of a feature and what",
            "its deletion takes off the score, over the five largest parts of 50 texts: rounding alone. *3 words*: all places",
            "of the three words with the largest parts are cut out of the text, and the mean drop of the score stands beside",
            "the drop that their parts predict and beside that of three words drawn by chance. Cutting words out also changes",
            "the length that the other values are divided by, and the words that stand next to each other, so that the",
            "prediction is not exact. *Error* is the mean of what gradient times input (16 steps) leaves unexplained.",
            "",
            *table,
            "",
            f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, torch {torch.__version__}.",
            "The encoder is the tiny one of `benchmarks.export_parity`.",
            "",
            f"    {command}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for name, body in CELLS:
        folder = given.models / f"{name}-{body}"
        if (folder / "model.json").exists():
            texts = list(SETS[name](given.data)[1].texts or [])
            lines.append((name, body, measure(load_model(folder), texts[:ROWS])))
    text = page(lines, "python -m benchmarks.explain_deletion --data DATA --models MODELS --page PAGE")
    if given.page:
        given.page.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
