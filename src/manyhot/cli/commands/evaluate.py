"""``manyhot evaluate``: metrics of a model on labelled examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from manyhot.cli.commands.report import report_on
from manyhot.cli.commands.spans.predict import open_span_model
from manyhot.cli.commands.spans.reading import read_span_files, refuse_span_flags, span_read_flags, span_reading_of
from manyhot.cli.commands.spans.report import report_on_spans
from manyhot.cli.commands.spans.scores import show_span_scores, span_scores
from manyhot.cli.io.console import JsonFlag, QuietFlag, say, show_json, show_text
from manyhot.cli.io.hierarchies import (
    ChosenHierarchy,
    HierarchyFlag,
    IgnoreFlag,
    ModeFlag,
    check_hierarchy_flags,
    chosen_hierarchy,
)
from manyhot.cli.io.models import ModelArgument, fitted_to, inherited_reading, open_for_scoring, warn_of_training_rows
from manyhot.cli.io.output import check_outputs
from manyhot.cli.io.reading import FilesArgument, read_files, read_flags, reading_of
from manyhot.cli.io.scores import show_scores
from manyhot.data.examples import Examples
from manyhot.data.files.problems import DataError
from manyhot.data.spans.examples import SpanExamples
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.at_k import MOST_A, MOST_B
from manyhot.metrics.names import MetricName, parse_metric
from manyhot.training.run.folder import fingerprint
from manyhot.training.spans.bundle import TrainedSpanModel, is_span_bundle

MetricFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--metric", help="A metric to compute; manyhot metrics lists them; may be repeated.", show_default="the common ones"
    ),
]

AFlag = Annotated[
    float | None,
    typer.Option(
        "--propensity-a",
        help="For PSP@k: A of the propensity formula, how fast the propensity grows with a label's count.",
        min=1e-6,
        max=MOST_A,
        show_default="0.55",
    ),
]
BFlag = Annotated[
    float | None,
    typer.Option(
        "--propensity-b",
        help="For PSP@k: B of the propensity formula, which is added to every label's count.",
        min=1e-6,
        max=MOST_B,
        show_default="1.5",
    ),
]
ReportFlag = Annotated[Path | None, typer.Option(help="Write a report on these examples into this folder.")]


@span_read_flags
@read_flags
def evaluate(
    model: ModelArgument,
    files: FilesArgument,
    *,
    metric: MetricFlag = None,
    propensity_a: AFlag = None,
    propensity_b: BFlag = None,
    report: ReportFlag = None,
    hierarchy: HierarchyFlag = None,
    hierarchy_mode: ModeFlag = None,
    hierarchy_ignore_unknown: IgnoreFlag = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    reading: dict[str, Any],
    span_reading: dict[str, Any],
) -> None:
    """Evaluate a model on files of labelled examples, or a span model on texts with spans."""
    check_hierarchy_flags(hierarchy, hierarchy_mode, ignore_unknown=hierarchy_ignore_unknown)
    propensity = {flag: value for flag, value in (("--propensity-a", propensity_a), ("--propensity-b", propensity_b)) if value}
    if is_span_bundle(model):
        if metric or hierarchy or propensity:
            raise typer.BadParameter(
                "--metric, --propensity-a, --propensity-b and --hierarchy are for models of labels; this is a span model."
            )
        texts = read_span_files(files, span_reading_of(reading, span_reading))
        warn_of_training_rows(model, texts.fingerprint, quiet=quiet or json)
        _evaluate_spans(open_span_model(model), texts, Path(model), files, report, json=json)
        return
    refuse_span_flags(span_reading)
    from manyhot.evaluation import evaluate as evaluate_model

    asked = _parsed(metric or ())
    check_outputs({"--report": report}, [model, *files])
    trained = open_for_scoring(model)
    _check_enough_labels(asked, trained.num_labels)
    propensities = _propensities(trained, {name.kind for name in asked}, propensity)
    tree = chosen_hierarchy(hierarchy, hierarchy_mode, trained.label_names, ignore_unknown=hierarchy_ignore_unknown)
    found = read_files(files, reading_of(reading), inherited=inherited_reading(model, labels=True), quiet=quiet or json)
    warn_of_training_rows(model, lambda: fingerprint(found), quiet=quiet or json)
    examples = found.with_labels(trained.label_names)
    tell_unseen(examples, quiet=quiet or json)
    scores = evaluate_model(trained, fitted_to(trained, examples), metrics=metric, propensities=propensities)
    if tree is not None:
        scores |= _hierarchical(tree, trained.predict(fitted_to(trained, examples)), examples.hardened().labels)
    page = None
    if report is not None:
        page = report_on(
            trained, fitted_to(trained, examples), report, files=files, title=f"{model.absolute().name}, test rows"
        )
    if json:
        told = {"model": str(Path(model)), "rows": len(examples), "unseen_labels": dict(examples.unseen), "scores": scores}
        show_json(told if page is None else {**told, "report": str(page)})
        return
    show_scores(scores, title=f"{len(examples):,} rows, {len(trained.label_names):,} labels")
    if page is not None:
        show_text(f"Report: {page}")


def _evaluate_spans(
    trained: TrainedSpanModel, texts: SpanExamples, model: Path, files: list[str], report: Path | None, *, json: bool
) -> None:
    """Evaluate a span model on texts, print the result, and write a report if ``report`` is given."""
    scored, page = span_scores(trained, texts), None
    if report is not None:
        page = report_on_spans(trained, texts, report, files=files, title=f"{model.absolute().name}, test texts")
    if json:
        told = {"model": str(model), **scored.to_json()}
        show_json(told if page is None else {**told, "report": str(page)})
        return
    show_span_scores(scored)
    if page is not None:
        show_text(f"Report: {page}")


def _parsed(metrics: Sequence[str]) -> list[MetricName]:
    try:
        return [parse_metric(name) for name in metrics]
    except ValueError as error:
        raise typer.BadParameter(f"--metric: {str(error).split(': ', 1)[1]}") from None


def _check_enough_labels(asked: Sequence[MetricName], num_labels: int) -> None:
    for name in asked:
        if name.k > num_labels:
            raise typer.BadParameter(f"--metric {name.text} needs more labels than the model has, {num_labels}.")


def _propensities(model: Any, asked: set[str], given: dict[str, float]) -> Any:
    """The propensities for PSP@k, or None if they are not needed and the model has none."""
    if given and asked and "PSP@k" not in asked:
        raise typer.BadParameter(f"{next(iter(given))} is for PSP@k, which is not among the metrics.")
    if "PSP@k" in asked or given or (not asked and model.has_propensities):
        try:
            return model.propensities(a=given.get("--propensity-a", 0.55), b=given.get("--propensity-b", 1.5))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return None


def _hierarchical(tree: ChosenHierarchy, predicted: SparseLabels, labels: SparseLabels) -> dict[str, float]:
    """Hierarchical metrics, for the raw predictions and for those made consistent with the hierarchy."""
    broken = tree.tree.metrics(predicted, labels)["broken-rows"]
    closed = tree.close(predicted)
    found = {name: value for name, value in tree.tree.metrics(closed, labels).items() if name != "broken-rows"}
    hits = sum(len(set(a) & set(b)) for a, b in zip(closed.lists(), labels.lists(), strict=True))
    both = sum(len(a) + len(b) for a, b in zip(closed.lists(), labels.lists(), strict=True))
    return {**found, f"micro-F1 closed {tree.mode}": 2 * hits / max(both, 1), "broken-rows before": broken}


def tell_unseen(examples: Examples, *, quiet: bool) -> None:
    """Print the labels of the file that the model does not know; it is an error if it knows none of them."""
    unseen = examples.unseen
    if unseen and not len(examples.labels.indices):
        files = ", ".join(source.path for source in examples.source)
        known = ", ".join(map(repr, examples.label_names[:3]))
        raise DataError(
            f"none of its labels is known to the model; the file has {next(iter(unseen))!r}, the model {known}, ...", file=files
        )
    if unseen:
        named = ", ".join(sorted(unseen, key=lambda name: (-unseen[name], name))[:5])
        more = ", ..." if len(unseen) > 5 else ""
        say(f"{len(unseen):,} labels of the file are not in the model and are ignored: {named}{more}", quiet=quiet)
