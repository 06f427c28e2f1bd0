"""``manyhot explain``: the words or features that count for and against each label."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.style import Style
from rich.text import Text

from manyhot.cli.commands.spans.explain import explain_span_files, unexplained
from manyhot.cli.commands.spans.reading import span_reading_of
from manyhot.cli.io.blocks import STDIN, read_blocks
from manyhot.cli.io.console import JsonFlag, QuietFlag, results, say, show_json, show_table, show_text
from manyhot.cli.io.models import ModelArgument, fitted_to, inherited_reading, open_model
from manyhot.cli.io.reading import read_flags, reading_of
from manyhot.cli.io.terminal import masked
from manyhot.explain.contributions import STEPS
from manyhot.explain.explanation import EXACT, Explanation, LabelExplanation
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.spans.bundle import is_span_bundle

ExplainFiles = Annotated[
    list[str] | None, typer.Argument(help="Files of rows to explain; - is the standard input.", show_default=STDIN)
]
LabelFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--label", help="A label to explain; may be repeated.", show_default="the predicted labels and the best ones, see --top"
    ),
]
TopFlag = Annotated[
    int, typer.Option("--top", min=1, help="Explain the predicted labels, and the next best ones up to this many per row.")
]
MostFlag = Annotated[int, typer.Option("--most", min=1, help="List at most this many words or features per label.")]
StepsFlag = Annotated[
    int | None,
    typer.Option(
        "--steps",
        min=1,
        help="Number of steps of integrated gradients; more steps leave less unexplained (mlp, conv, encoder).",
        show_default=str(STEPS),
    ),
]
RowsFlag = Annotated[
    int | None, typer.Option("--rows", min=1, help="Explain at most this many rows.", show_default="10; all with --json")
]
WordsFlag = Annotated[
    bool, typer.Option("--words", help="List the words with the largest weights of each label, without any rows (linear, bag).")
]
FOR, AGAINST = Style(color="green", bold=True), Style(color="red")
ROWS_SHOWN = 10
# Words whose contribution is below this share of the largest are not highlighted.
FAINT = 0.15


@read_flags
def explain(
    model: ModelArgument,
    files: ExplainFiles = None,
    *,
    label: LabelFlag = None,
    top: TopFlag = 3,
    most: MostFlag = 8,
    steps: StepsFlag = None,
    rows: RowsFlag = None,
    words: WordsFlag = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    reading: dict[str, Any],
) -> None:
    """Explain the labels of rows: which inputs count for and against each label, and how they add up to the score.

    Explanations of linear and bag models are exact. Other models are explained by integrated gradients; the rest of the score
    is printed as unexplained. For a span model, the predicted spans and the next best ones are explained.
    """
    if is_span_bundle(model):
        if words:
            raise typer.BadParameter("--words is for linear and bag models of labels; this is a span model.")
        chosen = span_reading_of(reading, {})
        explain_span_files(
            model, files, chosen, label, top=top, most=most, steps=steps or STEPS, rows=rows, as_json=json, quiet=quiet
        )
        return
    trained = open_model(model)
    if steps is not None and (words or trained.factors() is not None):
        raise typer.BadParameter(
            "--steps is for bodies explained by gradients (mlp, conv, encoder); this one is explained exactly."
        )
    if words:
        if files or rows is not None or reading:
            raise typer.BadParameter(
                "--words describes the model, not rows; leave out files, --rows and the flags for reading."
            )
        _show_words(trained, label, most, as_json=json)
        return
    inherited = inherited_reading(model, labels=False)
    limit = rows if rows is not None else (None if json else ROWS_SHOWN)
    count = 0
    asked: dict[str, Any] = {"labels": label or None, "top": top, "most": most, "steps": steps or STEPS}
    for block in read_blocks(files, reading_of(reading), inherited=inherited, quiet=quiet):
        part = block if limit is None else block[: max(0, limit - count)]
        # Row by row, so that the first results of a long file appear at once.
        for place in range(len(part)):
            found = trained.explain(fitted_to(trained, part[place : place + 1]), **asked)[0]
            name = None if block.ids is None else block.ids[place]
            if json:
                line = {**found.to_json(), "row": count, **({} if name is None else {"id": name})}
                sys.stdout.write(json_text.dumps(line, ensure_ascii=False) + "\n")
            else:
                _show_row(found, count, name)
            count += 1
        if len(part) < len(block):
            say(f"Only the first {count:,} rows were explained; --rows N explains more.", quiet=quiet)
            return


def _show_words(model: TrainedModel, labels: Sequence[str] | None, most: int, *, as_json: bool) -> None:
    found = model.label_words(labels=labels or None, most=most)
    if as_json:
        show_json([each.to_json() for each in found])
        return
    table = [
        (
            each.label,
            *(", ".join(f"{name} {weight:+.2f}" for name, weight in side) for side in (each.speak_for, each.speak_against)),
        )
        for each in found
    ]
    show_table(("label", "counts for it", "counts against it"), table)


def _show_row(found: Explanation, row: int, name: str | None) -> None:
    show_text(f"row {row}" if name is None else f"row {row}, {name}", style="bold")
    if found.text is not None and found.labels:
        results.print(_highlighted(found.text, found.labels[0]), soft_wrap=True)
    for label in found.labels:
        _show_label(label, exact=found.method == EXACT)
    show_text()


def _show_label(label: LabelExplanation, *, exact: bool) -> None:
    threshold = "" if label.threshold is None else f", threshold {label.threshold:+.3f}"
    probability = "" if label.probability is None else f", probability {label.probability:.3f}"
    show_text(f"{'yes' if label.predicted else 'no ':3} {label.label}: score {label.score:+.3f}{threshold}{probability}")
    parts = [f"{each.feature} {each.part:+.3f}" for each in label.contributions]
    added = f"base {label.base:+.3f}, " + ", ".join(parts) + (f", the rest {label.rest:+.3f}" if abs(label.rest) > 5e-4 else "")
    show_text(f"    {added}")
    if not exact:
        show_text(f"    {unexplained(label)}")


def _highlighted(text: str, label: LabelExplanation) -> Text:
    """The text with the words for and against its first label in colour."""
    shown = Text(masked(text))
    most = max((abs(part) for _, _, part in label.words), default=0.0)
    for start, end, part in label.words:
        if abs(part) >= FAINT * most > 0:
            shown.stylize(FOR if part > 0 else AGAINST, start, end)
    return shown
