"""``manyhot evaluate``: how good a model is on examples it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from manyhot.cli.console import JsonFlag, QuietFlag, say, show_json
from manyhot.cli.models import ModelArgument, fitted_to, inherited_reading, open_model
from manyhot.cli.reading import FilesArgument, read_files, read_flags, reading_of
from manyhot.cli.scores import show_scores
from manyhot.metrics.names import parse_metric

MetricFlag = Annotated[
    list[str] | None,
    typer.Option("--metric", help="A metric; may be given again. See: manyhot metrics", show_default="those most used"),
]


@read_flags
def evaluate(
    model: ModelArgument,
    files: FilesArgument,
    *,
    metric: MetricFlag = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    reading: dict[str, Any],
) -> None:
    """Measure a model on files of examples with their labels."""
    from manyhot.evaluate import DEFAULT_METRICS
    from manyhot.evaluate import evaluate as evaluate_model

    names = tuple(metric or DEFAULT_METRICS)
    try:
        for name in names:
            parse_metric(name)
    except ValueError as error:
        raise typer.BadParameter(f"--metric: {str(error).split(': ', 1)[1]}") from None
    trained = open_model(model)
    examples = read_files(files, {**inherited_reading(model, labels=True), **reading_of(reading)}).with_labels(
        trained.label_names
    )
    tell_unseen(examples.unseen, quiet=quiet or json)
    scores = evaluate_model(trained, fitted_to(trained, examples), metrics=names)
    if json:
        show_json({"model": str(Path(model)), "rows": len(examples), "unseen_labels": dict(examples.unseen), "scores": scores})
    else:
        show_scores(scores, title=f"{len(examples):,} rows, {len(trained.label_names):,} labels")


def tell_unseen(unseen: Any, *, quiet: bool) -> None:
    """Say which labels of the file the model does not know."""
    if unseen:
        named = ", ".join(sorted(unseen, key=lambda name: (-unseen[name], name))[:5])
        more = ", ..." if len(unseen) > 5 else ""
        say(f"{len(unseen):,} labels of the file are not in the model and are left out: {named}{more}", quiet=quiet)
