"""``manyhot predict``: labels for rows that have none, from files or a pipe, to files or a pipe."""

from __future__ import annotations

import csv
import json as json_text
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from manyhot._checks import check_choice
from manyhot.cli.commands.spans.predict import predict_spans
from manyhot.cli.commands.spans.reading import refuse_span_flags, span_read_flags, span_reading_of
from manyhot.cli.io.blocks import STDIN, read_blocks
from manyhot.cli.io.console import JsonFlag, QuietFlag, say
from manyhot.cli.io.hierarchies import ChosenHierarchy, HierarchyFlag, IgnoreFlag, ModeFlag, chosen_hierarchy
from manyhot.cli.io.models import ModelArgument, fitted_to, inherited_reading, open_model
from manyhot.cli.io.output import check_outputs, text_output
from manyhot.cli.io.reading import read_flags, reading_of
from manyhot.cli.io.terminal import safe_json
from manyhot.data.examples import Examples
from manyhot.decisions.links import probabilities as probabilities_of
from manyhot.decisions.rule import DecisionRule, decide_sparse
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.spans.bundle import is_span_bundle

OUTPUTS = ("jsonl", "csv")
SEPARATOR = "|"
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")

PredictFiles = Annotated[
    list[str] | None, typer.Argument(help="Files of rows to predict; - is the standard input.", show_default=STDIN)
]
InputFlag = Annotated[list[str] | None, typer.Option("--input", help="A text to predict, instead of files; repeatable.")]
TopFlag = Annotated[int | None, typer.Option("--top-k", min=1, help="The k best labels of each row, not those of the rule.")]
ProbabilitiesFlag = Annotated[bool, typer.Option("--probabilities", help="Give the probability of each label written.")]
ScoresFlag = Annotated[bool, typer.Option("--scores", help="Give the score of each label written.")]
OutputFlag = Annotated[
    str, typer.Option("--output-format", help="jsonl or csv.", autocompletion=lambda incomplete: _offered(incomplete))
]
ToFlag = Annotated[Path | None, typer.Option("--to", help="The file to write.", show_default="the standard output")]
HtmlFlag = Annotated[Path | None, typer.Option("--html", help="A page of the texts with their spans (span models).")]


@dataclass(frozen=True)
class Prediction:
    """One row: its place from 0, its name, its labels from the best on, and what was asked about them."""

    row: int
    id: str | None
    labels: list[str]
    scores: list[float] | None
    probabilities: list[float] | None


@read_flags
@span_read_flags
def predict(
    model: ModelArgument,
    files: PredictFiles = None,
    *,
    input: InputFlag = None,
    top_k: TopFlag = None,
    probabilities: ProbabilitiesFlag = False,
    scores: ScoresFlag = False,
    output_format: OutputFlag = "jsonl",
    to: ToFlag = None,
    html: HtmlFlag = None,
    hierarchy: HierarchyFlag = None,
    hierarchy_mode: ModeFlag = "up",
    hierarchy_ignore_unknown: IgnoreFlag = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    reading: dict[str, Any],
    span_reading: dict[str, Any],
) -> None:
    """Predict the labels of rows, as they come in: JSON lines or CSV out, labels from the best on.

    A span model marks the spans of texts: highlighted on a terminal, otherwise JSON lines, or a page.
    """
    check_outputs({"--to": to, "--html": html}, files or ())
    if input and files:
        raise typer.BadParameter("--input and files: give one or the other.")
    if is_span_bundle(model):
        if top_k is not None or output_format != "jsonl" or hierarchy is not None:
            raise typer.BadParameter("--top-k, --output-format and --hierarchy are for models of labels; this is one of spans.")
        chosen = span_reading_of(reading, span_reading)
        asked = {"scores": scores, "probabilities": probabilities}
        predict_spans(model, files, texts=input, reading=chosen, to=to, html=html, as_json=json, quiet=quiet, **asked)
        return
    refuse_span_flags({**span_reading, **({"html": html} if html else {})})
    try:
        check_choice("predict", "output_format", output_format, OUTPUTS)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if json and output_format != "jsonl":
        raise typer.BadParameter("--json and --output-format csv contradict each other. Leave one out.")
    trained = open_model(model)
    _check_asked(trained, texts=bool(input), probabilities=probabilities)
    rule = trained.rule if top_k is None else DecisionRule(top_k=min(top_k, len(trained.label_names)))
    tree = chosen_hierarchy(hierarchy, hierarchy_mode, trained.label_names, ignore_unknown=hierarchy_ignore_unknown)
    chosen = {**inherited_reading(model, labels=False), **reading_of(reading)}
    format = chosen.pop("format", None)
    blocks: Iterable[Examples]
    if input:
        blocks = [Examples(SparseLabels.from_lists([[] for _ in input], num_labels=0), (), texts=list(input))]
    else:
        blocks = (block for path in files or [STDIN] for block in read_blocks(path, format=format, reading=chosen, quiet=quiet))
    count = 0
    with text_output(to) as out:
        write = _writer(out, output_format, trained.label_names, with_scores=scores, with_probabilities=probabilities)
        for block in blocks:
            asked_for = {"scores": scores, "probabilities": probabilities}
            for prediction in _predictions(trained, block, rule, tree, first=count, **asked_for):
                write(prediction)
            count += len(block)
            out.flush()
    if to is not None:
        say(f"{to}: {count:,} rows", quiet=quiet)


def _check_asked(trained: TrainedModel, *, texts: bool, probabilities: bool) -> None:
    """Refuse flags that the model cannot serve."""
    if texts and trained.inputs.kind in ("features", "images"):
        raise typer.BadParameter(f"--input is for models that read texts; this one reads {trained.inputs.kind}. Name a file.")
    if probabilities and trained.link is None and trained.calibration is None:
        raise typer.BadParameter(
            f"--probabilities: the loss {trained.settings.loss} only ranks."
            " Fit a calibration first: manyhot tune --calibrate platt"
        )


def _predictions(
    model: TrainedModel,
    block: Examples,
    rule: DecisionRule,
    tree: ChosenHierarchy | None,
    *,
    first: int,
    scores: bool,
    probabilities: bool,
) -> Iterator[Prediction]:
    row = 0
    link = model.calibration or model.link
    for logits in model.iter_logits(fitted_to(model, block)):
        decided = decide_sparse(logits, rule)
        decided = decided if tree is None else tree.close(decided)
        probs = probabilities_of(logits, link) if probabilities and link is not None else None
        for place, labels in enumerate(decided.lists()):
            values = logits[place, labels]
            order = values.argsort(descending=True, stable=True).tolist()
            best = [labels[each] for each in order]
            yield Prediction(
                row=first + row,
                id=None if block.ids is None else block.ids[row],
                labels=[model.label_names[label] for label in best],
                scores=[round(value, 6) for value in logits[place, best].tolist()] if scores else None,
                probabilities=None if probs is None else [round(value, 6) for value in probs[place, best].tolist()],
            )
            row += 1


def _writer(
    out: IO[str], format: str, names: Sequence[str], *, with_scores: bool, with_probabilities: bool
) -> Callable[[Prediction], None]:
    asked = [name for name, wanted in (("scores", with_scores), ("probabilities", with_probabilities)) if wanted]
    if format == "jsonl":
        return lambda prediction: _write_json(out, prediction, asked)
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["row", "id", "labels", *asked])
    # A name with the separator in it would read as two: then every cell is a JSON list, which the reader knows too.
    join = _as_json_list if any(SEPARATOR in name for name in names) else SEPARATOR.join

    def write(prediction: Prediction) -> None:
        parts = (getattr(prediction, name) for name in asked)
        row = [prediction.row, guarded(prediction.id or ""), guarded(join(prediction.labels))]
        table.writerow([*row, *(SEPARATOR.join(f"{value:g}" for value in part) for part in parts)])

    return write


def _as_json_list(labels: Sequence[str]) -> str:
    return json_text.dumps(list(labels), ensure_ascii=False)


def guarded(cell: str) -> str:
    """A cell that a spreadsheet will not run as a formula: an apostrophe before the signs that begin one.

    Example:
        >>> guarded("=1+1"), guarded("eggs|pans")
        ("'=1+1", 'eggs|pans')
    """
    return f"'{cell}" if cell.startswith(FORMULA_SIGNS) else cell


def _write_json(out: IO[str], prediction: Prediction, asked: Sequence[str]) -> None:
    line: dict[str, Any] = {"row": prediction.row}
    if prediction.id is not None:
        line["id"] = prediction.id
    line["labels"] = prediction.labels
    line |= {name: getattr(prediction, name) for name in asked}
    out.write(safe_json(json_text.dumps(line, ensure_ascii=False)) + "\n")


def _offered(incomplete: str) -> list[str]:
    return [name for name in OUTPUTS if name.startswith(incomplete)]
