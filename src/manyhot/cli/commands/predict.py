"""``manyhot predict``: predict the labels of rows from files or a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from manyhot._checks import check_choice
from manyhot._files import remove_drafts
from manyhot.cli.commands.spans.predict import predict_spans
from manyhot.cli.commands.spans.reading import refuse_span_flags, span_read_flags, span_reading_of
from manyhot.cli.io.blocks import STDIN, read_blocks
from manyhot.cli.io.console import JsonFlag, QuietFlag, say
from manyhot.cli.io.hierarchies import UP, HierarchyFlag, IgnoreFlag, ModeFlag, check_hierarchy_flags, chosen_hierarchy
from manyhot.cli.io.models import ModelArgument, inherited_reading, open_for_scoring
from manyhot.cli.io.output import check_outputs
from manyhot.cli.io.predictions import OUTPUTS, PredictionTask
from manyhot.cli.io.reading import read_flags, reading_of
from manyhot.cli.io.shards import WHOLE, Shard, ShardFlag, ToFolderFlag, claim_folder, output_files, parse_shard
from manyhot.data.examples import Examples
from manyhot.decisions.rule import DecisionRule
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.spans.bundle import is_span_bundle

PredictFiles = Annotated[
    list[str] | None, typer.Argument(help="Files of rows to predict; - is the standard input.", show_default=STDIN)
]
InputFlag = Annotated[list[str] | None, typer.Option("--input", help="A text to predict, instead of files; may be repeated.")]
TopFlag = Annotated[
    int | None,
    typer.Option("--top-k", min=1, help="Predict the k best labels of each row instead of applying the decision rule."),
]
ProbabilitiesFlag = Annotated[bool, typer.Option("--probabilities", help="Also write the probability of each predicted label.")]
ScoresFlag = Annotated[bool, typer.Option("--scores", help="Also write the score of each predicted label.")]
OutputFlag = Annotated[
    str | None,
    typer.Option(
        "--output-format",
        help="The output format: jsonl or csv.",
        show_default="csv if --to ends in .csv, otherwise jsonl",
        autocompletion=lambda incomplete: _offered(incomplete),
    ),
]
ToFlag = Annotated[Path | None, typer.Option("--to", help="The file to write.", show_default="the standard output")]
HtmlFlag = Annotated[
    Path | None, typer.Option("--html", help="Write an HTML page with the texts and their spans (span models).")
]


@span_read_flags
@read_flags
def predict(
    model: ModelArgument,
    files: PredictFiles = None,
    *,
    input: InputFlag = None,
    top_k: TopFlag = None,
    probabilities: ProbabilitiesFlag = False,
    scores: ScoresFlag = False,
    output_format: OutputFlag = None,
    to: ToFlag = None,
    to_folder: ToFolderFlag = None,
    shard: ShardFlag = None,
    html: HtmlFlag = None,
    hierarchy: HierarchyFlag = None,
    hierarchy_mode: ModeFlag = None,
    hierarchy_ignore_unknown: IgnoreFlag = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    reading: dict[str, Any],
    span_reading: dict[str, Any],
) -> None:
    """Predict the labels of rows; writes JSON lines or CSV, the label with the highest score first.

    Rows from a pipe are predicted as they arrive. A span model predicts the spans of texts; it highlights them on a terminal,
    and otherwise writes JSON lines or an HTML page. --shard splits the rows over several processes or machines.
    """
    part = parse_shard(shard)
    _check_part(part, to, to_folder, files, html=html)
    check_outputs({"--to": to, "--html": html, "--to-folder": to_folder}, [model, *(files or ())])
    if input and files:
        raise typer.BadParameter("--input and files must not be combined. Leave one of them out.")
    check_hierarchy_flags(hierarchy, hierarchy_mode, ignore_unknown=hierarchy_ignore_unknown)
    asked = {"scores": scores, "probabilities": probabilities}
    if is_span_bundle(model):
        if top_k is not None or output_format not in (None, "jsonl") or hierarchy is not None:
            raise typer.BadParameter("--top-k, --output-format and --hierarchy are for models of labels; this is a span model.")
        chosen = span_reading_of(reading, span_reading)
        given: dict[str, Any] = {"texts": input, "reading": chosen, "html": html, "as_json": json, "quiet": quiet, **asked}
        _predict_spans(model, files or [], to, to_folder, part, given)
        return
    refuse_span_flags({**span_reading, **({"html": html} if html else {})})
    output_format = _chosen_format(output_format, to, json=json)
    trained = open_for_scoring(model)
    _check_asked(trained, texts=bool(input), probabilities=probabilities)
    rule = trained.rule if top_k is None else DecisionRule(top_k=min(top_k, len(trained.label_names)))
    tree = chosen_hierarchy(hierarchy, hierarchy_mode, trained.label_names, ignore_unknown=hierarchy_ignore_unknown)
    task = PredictionTask(trained, rule, None if tree is None else tree.close, output_format, **asked)
    rows = _Rows(files or [STDIN], input or [], reading_of(reading), inherited_reading(model, labels=False))
    if to_folder is not None:
        about = {"rule": rule.to_json(), "hierarchy": hierarchy and str(hierarchy), "mode": hierarchy_mode or UP, **asked}
        for name, path in _unfinished(to_folder, model, files or [], about, output_format, part, quiet=quiet):
            say(f"{path}: {task.write(path, rows.blocks([name], quiet=quiet)):,} rows", quiet=quiet)
        return
    own = None if part == WHOLE else part.blocks([len(block) for block in rows.blocks(quiet=True)])
    count = task.write(to, rows.blocks(quiet=quiet), own, header=part.place == 0)
    if to is not None:
        say(f"{to}: {count:,} rows", quiet=quiet)


class _Rows(NamedTuple):
    """The source of rows: files, or texts of the command line."""

    files: list[str]
    texts: list[str]
    reading: dict[str, Any]
    inherited: dict[str, Any]

    def blocks(self, names: Sequence[str] | None = None, *, quiet: bool) -> Iterator[Examples]:
        """The rows of all files, or of some, block by block."""
        if self.texts:
            yield Examples(SparseLabels.from_lists([[] for _ in self.texts], num_labels=0), (), texts=self.texts)
            return
        yield from read_blocks(names or self.files, self.reading, inherited=self.inherited, quiet=quiet)


def _predict_spans(
    model: Path, files: list[str], to: Path | None, to_folder: Path | None, part: Shard, given: dict[str, Any]
) -> None:
    if to_folder is None and part != WHOLE:
        raise typer.BadParameter("--shard splits the files of a span model, not their rows; it needs --to-folder.")
    if to_folder is None:
        predict_spans(model, files or None, to=to, **given)
        return
    about = {name: given[name] for name in ("scores", "probabilities")}
    for name, path in _unfinished(to_folder, model, files, about, "jsonl", part, quiet=given["quiet"]):
        predict_spans(model, [name], to=path, **given)


def _check_asked(trained: TrainedModel, *, texts: bool, probabilities: bool) -> None:
    """Refuse flags that the model does not support."""
    if texts and trained.inputs.kind in ("features", "images"):
        raise typer.BadParameter(f"--input is for models that read texts; this one reads {trained.inputs.kind}. Name a file.")
    if probabilities and trained.link is None and trained.calibration is None:
        raise typer.BadParameter(
            f"--probabilities: the loss {trained.settings.loss} only ranks."
            " Fit a calibration first: manyhot tune --calibrate platt"
        )


def _chosen_format(asked: str | None, to: Path | None, *, json: bool) -> str:
    """The requested format; by default CSV if ``to`` ends in .csv, otherwise JSON lines."""
    if asked is None:
        return "csv" if to is not None and to.suffix.lower() == ".csv" and not json else "jsonl"
    try:
        check_choice("predict", "output_format", asked, OUTPUTS)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if json and asked != "jsonl":
        raise typer.BadParameter("--json and --output-format csv contradict each other. Leave one out.")
    return asked


def _check_part(part: Shard, to: Path | None, to_folder: Path | None, files: Sequence[str] | None, **others: Any) -> None:
    """Refuse flags that contradict each other."""
    if to_folder is not None and (to is not None or others["html"] is not None):
        raise typer.BadParameter("--to-folder must not be combined with --to or --html. Leave one of them out.")
    if (to_folder is not None or part != WHOLE) and (not files or STDIN in files):
        raise typer.BadParameter("--to-folder and --shard need files that can be read more than once; name them.")


def _unfinished(
    folder: Path, model: Path, files: Sequence[str], about: dict[str, Any], format: str, part: Shard, *, quiet: bool
) -> Iterator[tuple[str, Path]]:
    """``(input, output)`` of the files of this shard that are not predicted yet."""
    outputs = output_files(folder, files, f".{format}")
    check_outputs({"--to-folder": None, **{f"--to-folder, for {name}": path for name, path in outputs.items()}}, files)
    claim_folder(folder, model, {**about, "format": format})
    own = part.files(files)
    finished = sum(outputs[name].exists() for name in own)
    if finished:
        say(f"{folder}: {finished:,} of {len(own):,} files exist already and are skipped", quiet=quiet)
    for name in own:
        if not outputs[name].exists():
            # No other shard writes this file, so a partial one was left by a killed call.
            remove_drafts(folder, outputs[name].name)
            yield name, outputs[name]


def _offered(incomplete: str) -> list[str]:
    return [name for name in OUTPUTS if name.startswith(incomplete)]
