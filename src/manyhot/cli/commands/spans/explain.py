"""``manyhot explain`` with a span model: the tokens that count for and against each span."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from manyhot.cli.commands.spans.predict import open_span_model
from manyhot.cli.commands.spans.reading import read_span_files
from manyhot.cli.io.blocks import STDIN
from manyhot.cli.io.console import say, show_text
from manyhot.cli.io.terminal import safe_json
from manyhot.explain.explanation import LabelExplanation
from manyhot.explain.span_explanation import SpanExplanation, TextExplanation

TEXTS_SHOWN = 10


def explain_span_files(
    folder: Path,
    files: Sequence[str] | None,
    reading: Mapping[str, Any],
    types: Sequence[str] | None,
    *,
    top: int,
    most: int,
    steps: int,
    rows: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Explain the spans of texts, text by text."""
    model = open_span_model(folder)
    unknown = [name for name in types or () if name not in model.type_names]
    if unknown:
        raise typer.BadParameter(f"--label must be a type of the model, {', '.join(model.type_names)}; got {unknown[0]!r}.")
    examples = read_span_files(list(files or [STDIN]), reading, need_spans=False, quiet=quiet)
    limit = rows if rows is not None else (len(examples) if as_json else TEXTS_SHOWN)
    for row in range(min(limit, len(examples))):
        found = model.explain(examples[row : row + 1], types=types or None, top=top, most=most, steps=steps)[0]
        name = None if examples.ids is None else examples.ids[row]
        if as_json:
            line = {**found.to_json(), "row": row, **({} if name is None else {"id": name})}
            sys.stdout.write(safe_json(json.dumps(line, ensure_ascii=False)) + "\n")
        else:
            _show(found, row, name)
    if limit < len(examples):
        say(f"Only the first {limit:,} texts were explained; --rows N explains more.", quiet=quiet)


def _show(found: TextExplanation, row: int, name: str | None) -> None:
    show_text(f"text {row}" if name is None else f"text {row}, {name}", style="bold")
    for span in found.spans:
        _show_span(span)
    show_text()


def _show_span(span: SpanExplanation) -> None:
    measured = f"score {span.score:+.3f}, threshold {span.threshold:+.3f}, probability {span.probability:.3f}"
    show_text(f"{'yes' if span.predicted else 'no ':3} {span.type} {span.text!r} ({span.start} to {span.end}): {measured}")
    parts = ", ".join(f"{each.feature} {each.part:+.3f}" for each in span.contributions)
    rest = f", the rest {span.rest:+.3f}" if abs(span.rest) > 5e-4 else ""
    show_text(f"    base {span.base:+.3f}, {parts}{rest}")
    show_text(f"    {unexplained(span)}")


def unexplained(found: LabelExplanation | SpanExplanation) -> str:
    """The part of the score that gradients leave unexplained, with a warning if it is large."""
    advice = (
        "a larger --steps lowers that" if found.reliable else "too much to rely on the parts; a larger --steps may lower that"
    )
    return f"integrated gradients leave {found.error:+.3f} unexplained; {advice}"
