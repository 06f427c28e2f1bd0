"""Everything that the report of a run on spans shows, as JSON; the page is built only from these values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from manyhot.data.spans.alignment import REASONS, align_examples
from manyhot.data.spans.examples import SpanExamples, TextSpan
from manyhot.metrics.spans.errors import SpanError, count_span_errors, find_span_errors
from manyhot.metrics.spans.scores import SpanMetrics
from manyhot.report.run.judged import rounded
from manyhot.report.run.measure import FORMAT, learning_curves
from manyhot.training.run.versions import versions
from manyhot.training.spans.bundle import FoundSpan, TrainedSpanModel
from manyhot.training.spans.scoring import HIGHEST, LOWEST, ranked_spans

KIND = "spans"
# Number of worst texts, of characters shown of each, and of its spans shown of each kind.
WORST, EXCERPT, TAGS = 12, 360, 12
CONFUSIONS, UNALIGNED = 10, 10
POSITIONS = 65
SUMMARIES = {
    "F1": "F1 of spans with the right type and both ends",
    "precision": "share of predicted spans that are right",
    "recall": "share of true spans that are predicted",
    "macro F1": "mean of F1 over the types",
    "boundary F1": "F1 of both ends, ignoring the type",
    "outer F1": "F1 of spans that are not inside another span",
    "inner F1": "F1 of spans inside another span",
}


def measure_spans(
    model: TrainedSpanModel, examples: SpanExamples, *, what: str, files: Sequence[str] = (), run: Path | None = None
) -> dict[str, Any]:
    """Measure a span model for its report; a soft label above one half is a span.

    Args:
        model: the trained model.
        examples: texts it was not trained on, with their spans.
        what: which texts these are: ``"held out"``, ``"validation"`` or ``"test"``.
        files: the names of their files.
        run: the run folder, for the learning curves in its log, or None.

    Returns:
        A dict for JSON, which ``span_run_page`` and ``span_run_markdown`` read.
    """
    examples = examples.hardened()
    found = model.predict(examples)
    metrics = SpanMetrics()
    metrics.update(found, examples.spans, unaligned=[[span.type for span in row] for row in examples.fragmented])
    errors = find_span_errors(found, examples.spans)
    known = set(model.type_names)
    unseen = Counter(span.type for row in examples.spans for span in row if span.type not in known)
    return {
        "format": FORMAT,
        "kind": KIND,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "rows": {"what": what, "count": len(examples), "spans": examples.num_spans, "files": list(files)},
        "model": described(model),
        "metrics": _figures(metrics, found, examples),
        "types": [
            {**row._asdict(), "type": str(row.type), "known": row.type in known}
            for row in sorted(metrics.table(), key=lambda row: (-row.gold, str(row.type)))
        ],
        "unseen": dict(unseen),
        "unaligned": _unaligned(model, examples),
        "errors": count_span_errors(errors),
        "confused": _confused(errors),
        "thresholds": _thresholds(model, examples),
        "worst": _worst(errors, found, examples),
        "learning": [] if run is None else learning_curves(run / "metrics.jsonl"),
        "versions": versions(),
    }


def described(model: TrainedSpanModel) -> dict[str, Any]:
    """The description of a model for the page."""
    told = model.describe()
    defaults = type(model.settings)().to_dict()
    told["chosen"] = [name for name, value in told["settings"].items() if value != defaults[name]]
    return told


def _figures(metrics: SpanMetrics, found: Sequence[Sequence[FoundSpan]], examples: SpanExamples) -> list[dict[str, Any]]:
    counts = metrics.counts()
    values = {"F1": counts.f1, "precision": counts.precision, "recall": counts.recall}
    values |= {"macro F1": metrics.f1(average="macro"), "boundary F1": metrics.f1(match="boundary")}
    if metrics.counts(level="inner").gold:
        values |= {"outer F1": metrics.f1(level="outer"), "inner F1": metrics.f1(level="inner")}
    halves = _half_widths(found, examples, values)
    return [
        {"name": name, "value": value, "half_width": halves.get(name), "better": "more", "summary": SUMMARIES[name]}
        for name, value in values.items()
    ]


def _half_widths(found: Sequence[Sequence[FoundSpan]], examples: SpanExamples, values: dict[str, float]) -> dict[str, float]:
    """Half the width of a 95 % confidence interval over texts, by the infinitesimal jackknife."""
    counts = np.array(
        [
            (len({span[:3] for span in mine} & set(truth)), len({span[:3] for span in mine}), len(truth) + len(lost))
            for mine, truth, lost in zip(found, examples.spans, examples.fragmented, strict=True)
        ],
        dtype=np.float64,
    ).reshape(-1, 3)
    hits, predicted, gold = counts.T
    ratios = {"F1": (2 * hits, predicted + gold), "precision": (hits, predicted), "recall": (hits, gold)}
    halves = {}
    for name, (above, below) in ratios.items():
        if len(counts) > 1 and below.sum() > 0:
            halves[name] = float(1.96 * math.sqrt(np.square(above - values[name] * below).sum()) / below.sum())
    return halves


def _unaligned(model: TrainedSpanModel, examples: SpanExamples) -> dict[str, Any]:
    own = examples.tokens if model.inputs.tokens == "words" else None
    alignment = align_examples(examples, own or [model.inputs.offsets(text) for text in examples.texts])
    listed = [
        {"row": each.row + 1, "type": each.type, "text": each.text[:80], "why": REASONS[each.reason]}
        for each in alignment.unaligned[:UNALIGNED]
    ]
    return {"count": len(alignment.unaligned), "told": alignment.report(), "listed": listed}


def _confused(errors: Sequence[SpanError]) -> list[dict[str, Any]]:
    pairs = Counter(
        (str(error.gold[0]), str(error.predicted[0]))
        for error in errors
        if error.gold is not None and error.predicted is not None and error.gold[0] != error.predicted[0]
    )
    return [{"true": gold, "found": guess, "spans": count} for (gold, guess), count in pairs.most_common(CONFUSIONS)]


def _thresholds(model: TrainedSpanModel, examples: SpanExamples) -> dict[str, Any]:
    """F1, precision and recall of other thresholds on the same texts."""
    scores, hits = ranked_spans(model, examples)
    places = np.linspace(LOWEST, HIGHEST, POSITIONS)
    taken = np.searchsorted(-scores, -places)
    right = np.concatenate([[0], np.cumsum(hits)])[taken]
    gold = examples.num_spans
    return {
        "threshold": rounded(places),
        "own": model.settings.threshold,
        "tuned": "tuned_f1" in model.about,
        "F1": rounded(2 * right / np.maximum(taken + gold, 1)),
        "precision": rounded(np.where(taken > 0, right / np.maximum(taken, 1), np.nan)),
        "recall": rounded(right / max(gold, 1)),
    }


def _worst(errors: Sequence[SpanError], found: Sequence[Sequence[FoundSpan]], examples: SpanExamples) -> list[dict[str, Any]]:
    """The texts with the most errors, truncated to a passage with errors."""
    by_row = Counter(error.row for error in errors)
    worst = sorted(by_row, key=lambda row: (-by_row[row], row))[:WORST]
    return [_told(row, by_row[row], found[row], examples) for row in worst]


def _told(row: int, count: int, found: Sequence[FoundSpan], examples: SpanExamples) -> dict[str, Any]:
    text, truth = examples.texts[row], set(examples.spans[row])
    guesses = {TextSpan(*span[:3]): span.score for span in found}
    wrong_places = [span[1] for span in truth ^ set(guesses)]
    start = max(0, min(wrong_places, default=0) - EXCERPT // 6)
    end = min(len(text), start + EXCERPT)
    told: dict[str, Any] = {
        "row": row + 1,
        "errors": count,
        "text": f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}",
    }
    kinds: dict[str, set[TextSpan]] = {
        "missed": truth - set(guesses),
        "wrong": set(guesses) - truth,
        "right": truth & set(guesses),
    }
    for kind, spans in kinds.items():
        shown = sorted((span for span in spans if start <= span[1] < end), key=lambda span: (span[1], span[2], span[0]))
        told[kind] = [
            {
                "type": span[0],
                "text": text[span[1] : span[2]][:60],
                "score": None if span not in guesses else round(guesses[span], 3),
            }
            for span in shown[:TAGS]
        ]
        told[f"more_{kind}"] = len(spans) - len(told[kind])
    if examples.ids is not None:
        told["id"] = examples.ids[row]
    return told
