"""``manyhot inspect --task spans``: facts and problems of files of texts with spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manyhot.cli.commands.spans.reading import read_span_files
from manyhot.cli.io.console import bar, show_pairs, show_table, show_text
from manyhot.cli.io.reading import as_typed
from manyhot.data.spans.alignment import REASONS, Alignment, align_examples
from manyhot.data.spans.examples import SpanExamples
from manyhot.training.spans.tokens import offsets_of, tokens_for

SHOWN = 10
BAR = 30


@dataclass(frozen=True)
class SpanInspection:
    """Facts about texts with spans."""

    examples: SpanExamples
    tokens: str
    alignment: Alignment
    num_tokens: int
    test: SpanExamples | None

    @property
    def num_problems(self) -> int:
        """The number of skipped rows."""
        parts = [self.examples, *([] if self.test is None else [self.test])]
        return sum(source.num_problems for part in parts for source in part.source)

    @property
    def num_soft(self) -> int:
        """Spans whose label lies between 0 and 1."""
        return sum(value < 1 for row in self.examples.values or () for value in row)

    def counts(self) -> dict[str, int]:
        """How many spans each type has, the most frequent first."""
        found = Counter(span.type for row in self.examples.spans for span in row)
        found.update(span.type for row in self.examples.fragmented for span in row)
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    def remarks(self) -> list[str]:
        """Sentences about the data that matter for training."""
        found = []
        if self.alignment.unaligned:
            found.append(f"As {self.tokens} {self.alignment.report()}.")
        rare = [name for name, count in self.counts().items() if count < SHOWN]
        if rare:
            found.append(f"{len(rare)} types have fewer than {SHOWN} spans: {', '.join(rare[:SHOWN])}.")
        if self.num_soft:
            found.append(f"{self.num_soft:,} labels are soft; metrics count those above 0.5 as spans.")
        repeated = len(self.examples) - len(set(self.examples.texts))
        if repeated:
            found.append(f"{repeated:,} texts occur more than once.")
        if self.test is not None:
            own = set(self.examples.texts)
            leaks = sum(text in own for text in self.test.texts)
            if leaks:
                found.append(f"{leaks:,} of {len(self.test):,} test texts are also training texts.")
            unseen = [name for name in self.test.type_names if name not in self.examples.type_names]
            if unseen:
                found.append(f"Types that occur only in the test files: {', '.join(unseen)}.")
        return found

    def to_json(self) -> dict[str, Any]:
        """The facts as JSON."""
        examples = self.examples
        problems = [problem.to_dict() for source in examples.source for problem in source.problems]
        return {
            "sources": [{"path": each.path, "format": each.format, **each.chosen} for each in examples.source],
            "texts": len(examples),
            "characters": sum(map(len, examples.texts)),
            "tokens": {"kind": self.tokens, "count": self.num_tokens},
            "spans": examples.num_spans,
            "types": self.counts(),
            "soft_labels": self.num_soft,
            "nested": examples.num_nested(),
            "crossing": examples.num_crossing(),
            "unaligned": [lost._asdict() for lost in self.alignment.unaligned],
            "remarks": self.remarks(),
            "problems": problems,
            "num_problems": self.num_problems,
        }


def inspect_spans(files: Sequence[str], test: Sequence[str] | None, reading: Mapping[str, Any]) -> SpanInspection:
    """Read files, collect their problems, and count types and spans."""
    examples = read_span_files(files, reading, quiet=True, on_problem="collect")
    other = read_span_files(test, reading, quiet=True, on_problem="collect") if test else None
    tokens = "words" if examples.tokens is not None else tokens_for(examples.texts)
    offsets = offsets_of(examples, tokens)
    return SpanInspection(examples, tokens, align_examples(examples, offsets), sum(map(len, offsets)), other)


def show_span_inspection(found: SpanInspection) -> None:
    """Print the facts as tables."""
    examples = found.examples
    for source in examples.source:
        told = [("file", source.path), ("format", source.format)]
        show_pairs("", told + [(name.replace("_", " "), value) for name, value in source.chosen.items()])
    show_text()
    nested, crossing = examples.num_nested(), examples.num_crossing()
    empty = sum(not row for row in examples.spans)
    pairs: list[tuple[str, Any]] = [
        ("texts", f"{len(examples):,}, {empty:,} of them without spans"),
        ("characters", f"{sum(map(len, examples.texts)):,}, the longest text has {max(map(len, examples.texts)):,}"),
        (found.tokens, found.num_tokens),
        ("spans", f"{examples.num_spans:,}, {nested:,} of them inside another one, {crossing:,} crossing another one"),
        ("types", len(examples.type_names)),
    ]
    if found.test is not None:
        pairs.append(("test part", f"{len(found.test):,} texts, {found.test.num_spans:,} spans"))
    show_pairs("", pairs)
    _show_types(found)
    for title, lines in (("Remarks", found.remarks()), ("Spans that do not align with tokens", _unaligned(found))):
        if lines:
            show_text()
            show_text(title, style="bold")
            for line in lines:
                show_text(f"- {line}")
    problems = [problem for part in (examples, found.test) if part for source in part.source for problem in source.problems]
    if problems:
        show_text()
        show_text(f"Problems (the first {len(problems[:SHOWN])} of {found.num_problems:,})", style="bold")
        for problem in problems[:SHOWN]:
            show_text(f"- {as_typed(str(problem))}")


def _show_types(found: SpanInspection) -> None:
    """Print the number of spans of each type and their length."""
    counts = found.counts()
    if not counts:
        return
    most = max(counts.values())
    lengths: dict[str, list[int]] = {}
    for row in found.examples.spans:
        for span in row:
            lengths.setdefault(span.type, []).append(span.end - span.start)
    show_text()
    rows = [
        (name, count, f"{sum(own) / len(own):.1f}" if (own := lengths.get(name)) else "-", bar(count / most, BAR))
        for name, count in counts.items()
    ]
    show_table(("type", "spans", "characters each", ""), rows, right=(1, 2), whole=(0, 1, 2, 3))


def _unaligned(found: SpanInspection) -> list[str]:
    lost = found.alignment.unaligned
    lines = [f"text {each.row + 1}: {each.type} {each.text!r} {REASONS[each.reason]}" for each in lost[:SHOWN]]
    return lines + ([f"and {len(lost) - SHOWN:,} more; --json lists them all"] if len(lost) > SHOWN else [])
