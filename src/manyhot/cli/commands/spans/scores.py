"""The evaluation of spans on a terminal: F1, a table by type, and errors with examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manyhot.cli.io.console import show_pairs, show_table, show_text
from manyhot.data.spans.alignment import Alignment, align_examples
from manyhot.data.spans.examples import SpanExamples
from manyhot.metrics.spans.errors import ERROR_KINDS, SpanError, count_span_errors, find_span_errors
from manyhot.metrics.spans.scores import SpanMetrics
from manyhot.training.spans.bundle import FoundSpan, TrainedSpanModel

EXAMPLES = 3
CONTEXT = 18


@dataclass(frozen=True)
class SpanEvaluation:
    """The counts of an evaluation."""

    examples: SpanExamples
    metrics: SpanMetrics
    errors: list[SpanError]
    alignment: Alignment
    unseen: dict[str, int]

    def figures(self) -> dict[str, float]:
        """The metrics over all types."""
        counts = self.metrics.counts()
        found = {"F1": counts.f1, "precision": counts.precision, "recall": counts.recall}
        found |= {"macro F1": self.metrics.f1(average="macro"), "boundary F1": self.metrics.f1(match="boundary")}
        if self.metrics.counts(level="inner").gold:
            found |= {"outer F1": self.metrics.f1(level="outer"), "inner F1": self.metrics.f1(level="inner")}
        return found

    def to_json(self) -> dict[str, Any]:
        """All metrics, the number of errors of each kind and the errors themselves, as JSON."""
        return {
            "texts": len(self.examples),
            "spans": self.examples.num_spans,
            "unaligned_spans": len(self.alignment.unaligned),
            "unseen_types": self.unseen,
            "scores": self.figures(),
            "types": [row._asdict() for row in self.metrics.table()],
            "errors": count_span_errors(self.errors),
            "error_list": [error._asdict() for error in self.errors],
        }


def span_scores(model: TrainedSpanModel, examples: SpanExamples) -> SpanEvaluation:
    """Predict spans and count matches. Spans that do not align with tokens count as missed; a soft label above one half is a
    span."""
    examples = examples.hardened()
    found: Sequence[Sequence[FoundSpan]] = model.predict(examples)
    metrics = SpanMetrics()
    metrics.update(found, examples.spans, unaligned=[[span.type for span in row] for row in examples.fragmented])
    own = examples.tokens if model.inputs.tokens == "words" else None
    offsets = own if own is not None else [model.inputs.offsets(text) for text in examples.texts]
    seen = Counter(span.type for row in examples.spans for span in row)
    unseen = {name: count for name, count in seen.items() if name not in model.type_names}
    return SpanEvaluation(examples, metrics, find_span_errors(found, examples.spans), align_examples(examples, offsets), unseen)


def show_span_scores(scores: SpanEvaluation, *, title: str = "") -> None:
    """Print the evaluation as tables."""
    if title:
        show_text(title, style="bold")
    examples = scores.examples
    pairs: list[tuple[str, Any]] = [("texts", len(examples)), ("spans", examples.num_spans)]
    pairs += [(name, f"{value:.4f}") for name, value in scores.figures().items()]
    show_pairs("", pairs)
    show_text()
    rows = [
        (row.type, f"{row.precision:.4f}", f"{row.recall:.4f}", f"{row.f1:.4f}", row.hits, row.predicted, row.gold)
        for row in scores.metrics.table()
    ]
    headings = ("type", "precision", "recall", "F1", "right", "found", "true")
    show_table(headings, rows, right=range(1, 7), whole=range(7))
    if scores.alignment.unaligned:
        show_text()
        show_text(f"{scores.alignment.report()}:")
        for lost in scores.alignment.unaligned[:EXAMPLES]:
            show_text(f"  {lost.type} {lost.text!r}, text {lost.row + 1}")
    if scores.unseen:
        named = ", ".join(f"{name} ({count:,})" for name, count in sorted(scores.unseen.items()))
        show_text(f"types that the model does not know, whose spans are all missed: {named}")
    show_errors(scores)


def show_errors(scores: SpanEvaluation) -> None:
    """Print the number of errors of each kind, the most frequent confusions, and some examples."""
    counts = count_span_errors(scores.errors)
    total = sum(counts.values())
    if not total:
        return
    show_text()
    show_text("Errors", style="bold")
    rows = [(kind, count, f"{count / total:.1%}", ERROR_KINDS[kind]) for kind, count in counts.items()]
    show_table(("error", "spans", "share", "meaning"), rows, right=(1, 2), whole=(0, 1, 2))
    confused = Counter(
        (error.gold[0], error.predicted[0])
        for error in scores.errors
        if error.gold is not None and error.predicted is not None and error.gold[0] != error.predicted[0]
    )
    if confused:
        named = ", ".join(f"{gold} as {guess} ({count:,})" for (gold, guess), count in confused.most_common(5))
        show_text(f"confused types: {named}")
    for kind in ERROR_KINDS:
        own = [error for error in scores.errors if error.kind == kind]
        for error in own[:EXAMPLES]:
            show_text(f"  {kind}: {told(error, scores.examples.texts[error.row])} (text {error.row + 1})")


def told(error: SpanError, text: str) -> str:
    """An error as a sentence, with some of the text around it.

    Example:
        >>> told(SpanError("boundary", 0, ("PER", 0, 3), ("PER", 0, 12)), "Ada Lovelace wrote it")
        "true PER 'Ada Lovelace', found PER 'Ada' in 'Ada Lovelace wrote it'"
    """
    parts, spans = [], []
    for word, span in (("true", error.gold), ("found", error.predicted)):
        if span is not None:
            parts.append(f"{word} {span[0]} {text[span[1] : span[2]]!r}")
            spans.append(span)
    start = max(min(span[1] for span in spans) - CONTEXT, 0)
    end = min(max(span[2] for span in spans) + CONTEXT, len(text))
    around = f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
    return f"{', '.join(parts)} in {around!r}"
