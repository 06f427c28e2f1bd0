"""``manyhot predict`` with a span model: spans highlighted on a terminal, as JSON lines or as a page."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import typer
from rich.text import Text

from manyhot._files import write_whole
from manyhot.cli.commands.spans.page import span_page
from manyhot.cli.commands.spans.reading import read_span_files
from manyhot.cli.io.blocks import STDIN
from manyhot.cli.io.console import results, say
from manyhot.cli.io.output import text_output
from manyhot.cli.io.terminal import printable, safe_json
from manyhot.data.spans.examples import SpanExamples
from manyhot.training.run.bundle_folder import BundleError
from manyhot.training.spans.bundle import FoundSpan, TrainedSpanModel, load_span_model

COLOURS = (
    "cyan",
    "magenta",
    "yellow",
    "green",
    "blue",
    "red",
    "bright_cyan",
    "bright_magenta",
    "bright_yellow",
    "bright_green",
)


def open_span_model(folder: Path) -> TrainedSpanModel:
    """The model of a run or of a bundle."""
    try:
        return load_span_model(folder)
    except BundleError as error:
        raise typer.BadParameter(str(error)) from None


def predict_spans(
    folder: Path,
    files: Sequence[str] | None,
    *,
    texts: Sequence[str] | None,
    reading: Mapping[str, Any],
    to: Path | None,
    html: Path | None,
    as_json: bool,
    scores: bool,
    probabilities: bool,
    quiet: bool,
) -> None:
    """Predict the spans of texts: highlighted on a terminal, JSON lines in a pipe or a file."""
    model = open_span_model(folder)
    if texts:
        examples = SpanExamples(list(texts), [[] for _ in texts])
    else:
        examples = read_span_files(files or [STDIN], reading, need_spans=False, quiet=quiet)
    found = model.predict(examples)
    total = sum(map(len, found))
    if html is not None:
        about = f"{total:,} spans in {len(examples):,} texts, predicted by {folder.name}"
        title = "Spans" if not files else ", ".join(Path(name).name for name in files)
        write_whole(html, span_page(examples.texts, found, title=title, about=about, ids=examples.ids).encode())
        say(f"{html}: {len(examples):,} texts, {total:,} spans", quiet=quiet)
    if to is not None:
        with text_output(to) as out:
            write_lines(out, examples, found, scores=scores, probabilities=probabilities)
        say(f"{to}: {len(examples):,} texts, {total:,} spans", quiet=quiet)
    elif as_json or (html is None and not results.is_terminal):
        write_lines(sys.stdout, examples, found, scores=scores, probabilities=probabilities)
    elif html is None:
        for row, text in enumerate(examples.texts):
            results.print(highlighted(text, found[row], model.type_names), soft_wrap=True)


def write_lines(
    out: IO[str], examples: SpanExamples, found: Sequence[Sequence[FoundSpan]], *, scores: bool, probabilities: bool
) -> None:
    """Span JSON lines, which ``manyhot train`` and ``evaluate`` read too."""
    for row, text in enumerate(examples.texts):
        spans = []
        for span in found[row]:
            record: dict[str, Any] = {"start": span.start, "end": span.end, "type": span.type}
            record["text"] = text[span.start : span.end]
            record |= {"score": round(span.score, 6)} if scores else {}
            record |= {"probability": round(span.probability, 6)} if probabilities else {}
            spans.append(record)
        line = {} if examples.ids is None else {"id": examples.ids[row]}
        out.write(safe_json(json.dumps({**line, "text": text, "spans": spans}, ensure_ascii=False)) + "\n")


def highlighted(text: str, spans: Sequence[Sequence[Any]], type_names: Sequence[str]) -> Text:
    """A text for a terminal: spans in brackets, followed by their type, coloured by type.

    Example:
        >>> highlighted("Uni Leipzig heute", [("ORG", 0, 11), ("LOC", 4, 11)], ["LOC", "ORG"]).plain
        '[Uni [Leipzig]LOC]ORG heute'
    """
    colour = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(type_names)}
    begins: dict[int, list[Any]] = {}
    ends: dict[int, list[Any]] = {}
    for span in sorted(spans, key=lambda span: (span[1], -span[2], str(span[0]))):
        begins.setdefault(span[1], []).append(span)
        ends.setdefault(span[2], []).insert(0, span)
    out = Text()
    inside: list[Any] = []
    cuts = sorted({0, len(text), *begins, *ends})
    for place, stop in zip(cuts, [*cuts[1:], len(text)], strict=True):
        for span in ends.get(place, ()):
            out.append("]", style=f"bold {colour[span[0]]}")
            out.append(printable(str(span[0])), style=f"{colour[span[0]]} reverse")
            inside.remove(span)
        for span in begins.get(place, ()):
            out.append("[", style=f"bold {colour[span[0]]}")
            inside.append(span)
        innermost = min(inside, key=lambda span: span[2] - span[1], default=None)
        out.append(printable(text[place:stop]), style="" if innermost is None else f"bold {colour[innermost[0]]}")
    return out
