"""``manyhot predict``: labels for rows that have none, from files or a pipe, to files or a pipe."""

from __future__ import annotations

import csv
import json as json_text
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from manyhot._checks import check_choice
from manyhot.cli.commands.spans.predict import predict_spans
from manyhot.cli.commands.spans.reading import refuse_span_flags, span_read_flags, span_reading_of
from manyhot.cli.io.blocks import STDIN, read_blocks
from manyhot.cli.io.console import JsonFlag, QuietFlag, say
from manyhot.cli.io.hierarchies import HierarchyFlag, IgnoreFlag, ModeFlag, chosen_hierarchy
from manyhot.cli.io.models import ModelArgument, fitted_to, inherited_reading, open_model
from manyhot.cli.io.output import check_outputs, text_output
from manyhot.cli.io.reading import read_flags, reading_of
from manyhot.cli.io.shards import (
    WHOLE,
    Shard,
    ShardFlag,
    ToFolderFlag,
    claim_folder,
    output_files,
    own_blocks,
    parse_shard,
)
from manyhot.cli.io.terminal import safe_json
from manyhot.data.examples import Examples
from manyhot.decisions.rule import DecisionRule
from manyhot.labels.sparse import SparseLabels
from manyhot.predictor import Prediction, predict_rows
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
    to_folder: ToFolderFlag = None,
    shard: ShardFlag = None,
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

    A span model marks the spans of texts: highlighted on a terminal, otherwise JSON lines, or a page. --shard divides very
    many rows among processes or machines; --to-folder has one output for each input file.
    """
    part = parse_shard(shard)
    _check_part(part, to, to_folder, files, html=html)
    check_outputs({"--to": to, "--html": html}, files or ())
    if input and files:
        raise typer.BadParameter("--input and files: give one or the other.")
    if is_span_bundle(model):
        if top_k is not None or output_format != "jsonl" or hierarchy is not None:
            raise typer.BadParameter("--top-k, --output-format and --hierarchy are for models of labels; this is one of spans.")
        chosen = span_reading_of(reading, span_reading)
        asked = {"scores": scores, "probabilities": probabilities}
        if to_folder is not None:
            for name, path in _unfinished(to_folder, model, files or [], asked, "jsonl", part, quiet=quiet):
                given: dict[str, Any] = {"to": path, "html": None, "as_json": False, "quiet": quiet, **asked}
                predict_spans(model, [name], texts=None, reading=chosen, **given)
            return
        if part != WHOLE:
            raise typer.BadParameter("--shard of a span model divides files; give --to-folder too.")
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
    close = None if tree is None else tree.close
    task = _Task(trained, rule, close, output_format, scores=scores, probabilities=probabilities)

    def blocks_of(names: Sequence[str], *, quiet: bool) -> Iterator[Examples]:
        return (block for name in names for block in read_blocks(name, format=format, reading=chosen, quiet=quiet))

    if to_folder is not None:
        about: dict[str, Any] = {"rule": rule.to_json(), "hierarchy": hierarchy and str(hierarchy), "mode": hierarchy_mode}
        about |= {"format": output_format, "scores": scores, "probabilities": probabilities}
        for name, path in _unfinished(to_folder, model, files or [], about, output_format, part, quiet=quiet):
            say(f"{path}: {task.write(path, blocks_of([name], quiet=quiet)):,} rows", quiet=quiet)
        return
    if input:
        blocks: Iterable[Examples]
        blocks = [Examples(SparseLabels.from_lists([[] for _ in input], num_labels=0), (), texts=list(input))]
        count = task.write(to, blocks)
    elif part == WHOLE:
        count = task.write(to, blocks_of(files or [STDIN], quiet=quiet))
    else:
        sizes = [len(block) for block in blocks_of(files or [], quiet=True)]
        count = task.write(to, blocks_of(files or [], quiet=quiet), part.blocks(sizes), header=part.place == 0)
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


def _check_part(part: Shard, to: Path | None, to_folder: Path | None, files: Sequence[str] | None, **others: Any) -> None:
    """Refuse flags that contradict each other."""
    if to_folder is not None and (to is not None or others["html"] is not None):
        raise typer.BadParameter("--to-folder and --to or --html: give one or the other.")
    if (to_folder is not None or part != WHOLE) and (not files or STDIN in files):
        raise typer.BadParameter("--to-folder and --shard need files that can be read more than once; name them.")


def _unfinished(
    folder: Path, model: Path, files: Sequence[str], about: dict[str, Any], format: str, part: Shard, *, quiet: bool
) -> Iterator[tuple[str, Path]]:
    """``(input, output)`` of the files of this part that are still to be predicted."""
    outputs = output_files(folder, files, f".{format}")
    check_outputs({"--to-folder": None, **{f"--to-folder, for {name}": path for name, path in outputs.items()}}, files)
    claim_folder(folder, model, about)
    own = part.files(files)
    finished = sum(outputs[name].exists() for name in own)
    if finished:
        say(f"{folder}: {finished:,} of {len(own):,} files are there already", quiet=quiet)
    yield from ((name, outputs[name]) for name in own if not outputs[name].exists())


class _Task:
    """What is to be written of each row."""

    def __init__(
        self, model: TrainedModel, rule: DecisionRule, close: Any, format: str, *, scores: bool, probabilities: bool
    ) -> None:
        self.model, self.rule, self.close, self.format = model, rule, close, format
        self.asked = {"scores": scores, "probabilities": probabilities}

    def write(self, to: Path | None, blocks: Iterable[Examples], own: range | None = None, *, header: bool = True) -> int:
        """Predict blocks of rows, or ``own`` ones of them, into a file or the standard output; how many rows that were."""
        count = 0
        numbered = own_blocks(blocks, range(sys.maxsize) if own is None else own)
        with text_output(to) as out:
            asked = [name for name, wanted in self.asked.items() if wanted]
            write = _writer(out, self.format, self.model.label_names, asked, header=header)
            for first, block in numbered:
                rows = predict_rows(self.model, fitted_to(self.model, block), self.rule, close=self.close, **self.asked)
                for place, prediction in enumerate(rows):
                    write(first + place, None if block.ids is None else block.ids[place], prediction)
                count += len(block)
                out.flush()
        return count


Write = Callable[[int, str | None, Prediction], None]


def _writer(out: IO[str], format: str, names: Sequence[str], asked: Sequence[str], *, header: bool) -> Write:
    if format == "jsonl":
        return lambda row, name, prediction: _write_json(out, row, name, prediction, asked)
    table = csv.writer(out, lineterminator="\n")
    if header:
        table.writerow(["row", "id", "labels", *asked])
    # A name with the separator in it would read as two: then every cell is a JSON list, which the reader knows too.
    join = _as_json_list if any(SEPARATOR in name for name in names) else SEPARATOR.join

    def write(row: int, name: str | None, prediction: Prediction) -> None:
        parts = (getattr(prediction, each) for each in asked)
        cells = [row, guarded(name or ""), guarded(join(prediction.labels))]
        table.writerow([*cells, *(SEPARATOR.join(f"{value:g}" for value in part) for part in parts)])

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


def _write_json(out: IO[str], row: int, name: str | None, prediction: Prediction, asked: Sequence[str]) -> None:
    line: dict[str, Any] = {"row": row}
    if name is not None:
        line["id"] = name
    line["labels"] = prediction.labels
    line |= {each: getattr(prediction, each) for each in asked}
    out.write(safe_json(json_text.dumps(line, ensure_ascii=False)) + "\n")


def _offered(incomplete: str) -> list[str]:
    return [name for name in OUTPUTS if name.startswith(incomplete)]
