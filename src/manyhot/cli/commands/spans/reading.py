"""The command-line flags for reading files of texts with spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from manyhot.cli.io.flags import Flag, with_flags
from manyhot.cli.io.reading import tell
from manyhot.data.formats.registry import formats
from manyhot.data.spans.conll import SCHEMES
from manyhot.data.spans.examples import SpanExamples
from manyhot.data.spans.read import read_span_examples

TASKS = ("labels", "spans")
SPAN_READ_FLAGS = (
    Flag("tag_columns", int, "Number of tag columns at the end of CoNLL lines, 1 or 2. Default: detected."),
    Flag("scheme", str, f"Tagging scheme of CoNLL: {', '.join(SCHEMES)}. Default: detected.", choices=SCHEMES),
)
# Flags for reading files of labels that also apply to files of spans.
SHARED = ("format", "skip_bad", "max_line_bytes", "max_expansion")

span_read_flags = with_flags("span_reading", SPAN_READ_FLAGS, panel="How to read files of spans")
TaskFlag = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="What to predict: labels (of rows) or spans (in texts).",
        show_default="labels",
        autocompletion=lambda incomplete: [name for name in TASKS if name.startswith(incomplete)],
    ),
]


def checked_task(task: str | None) -> str | None:
    """The task, checked."""
    if task not in (None, *TASKS):
        raise typer.BadParameter(f"--task must be one of {', '.join(TASKS)}; got {task!r}.")
    return task


def span_reading_of(reading: Mapping[str, Any], span_reading: Mapping[str, Any]) -> dict[str, Any]:
    """Flags as arguments of ``read_span_examples``. A flag that only applies to files of labels is a usage error."""
    wrong = [name for name in reading if name not in SHARED]
    if wrong:
        raise typer.BadParameter(f"--{wrong[0].replace('_', '-')} is for files of labels, not of spans. Leave it out.")
    return {**reading, **span_reading}


def refuse_span_flags(given: Mapping[str, Any]) -> None:
    """Refuse flags for spans if the task is labels."""
    if given:
        raise typer.BadParameter(f"--{next(iter(given)).replace('_', '-')} needs --task spans.")


def read_span_files(
    files: Sequence[str], reading: Mapping[str, Any], *, need_spans: bool = True, quiet: bool = False, **more: Any
) -> SpanExamples:
    """Read texts of one file or several; invalid flags are a usage error."""
    chosen = reading.get("format")
    if chosen is not None and chosen not in formats("spans"):
        raise typer.BadParameter(f"--format must be one of {', '.join(formats('spans'))} for spans; got {chosen!r}.")
    if reading.get("scheme") not in (None, *SCHEMES):
        raise typer.BadParameter(f"--scheme must be one of {', '.join(SCHEMES)}; got {reading['scheme']!r}.")
    if reading.get("tag_columns") not in (None, 1, 2):
        raise typer.BadParameter(f"--tag-columns must be 1 or 2; got {reading['tag_columns']}.")
    given = {**reading, **more}
    if given.pop("skip_bad", False):
        given["on_problem"] = "collect"
    examples = read_span_examples(list(files), need_spans=need_spans, **given)
    tell(examples.source, quiet=quiet)
    return examples
