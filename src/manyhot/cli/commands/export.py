"""``manyhot export``: a model for other software."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from manyhot._checks import check_choice
from manyhot.cli.commands.spans.export import export_span_files
from manyhot.cli.commands.spans.reading import span_reading_of
from manyhot.cli.io.config import CONFIG, read_config
from manyhot.cli.io.console import JsonFlag, QuietFlag, say, show_json, show_text
from manyhot.cli.io.models import ModelArgument, fitted_to, inherited_reading, open_model
from manyhot.cli.io.output import check_outputs
from manyhot.cli.io.reading import read_files, read_flags, reading_of
from manyhot.export.graph import check_exportable
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.spans.bundle import is_span_bundle

TARGETS = ("onnx", "huggingface", "weights")
ToFlag = Annotated[str, typer.Option("--to", help=f"What to export to: {', '.join(TARGETS[:-1])} or {TARGETS[-1]}.")]
FolderFlag = Annotated[Path | None, typer.Option("--folder", help="The folder to write to.", show_default="MODEL-TARGET")]
RowsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files of rows on which the export is compared with the model.",
        show_default="the files that the run was trained on",
    ),
]
MostFlag = Annotated[int, typer.Option("--rows", min=1, help="Compare on at most this many rows.")]


@read_flags
def export(
    model: ModelArgument,
    files: RowsArgument = None,
    *,
    to: ToFlag = "onnx",
    folder: FolderFlag = None,
    rows: MostFlag = 1000,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    reading: dict[str, Any],
) -> None:
    """Export a model for other software: one ONNX graph, a Hugging Face folder, or plain weights.

    The export is compared with the model on real rows. If a decision differs, nothing is written.
    """
    try:
        check_choice("export", "to", to, TARGETS)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if is_span_bundle(model):
        if to != "onnx":
            raise typer.BadParameter("a span model can only be exported --to onnx. To use it without an export: manyhot serve.")
        target = folder or model.with_name(f"{model.absolute().name}-{to}")
        export_span_files(model, files, target, span_reading_of(reading, {}), rows=rows, as_json=json, quiet=quiet)
        return
    trained = open_model(model)
    target = folder or model.with_name(f"{model.absolute().name}-{to}")
    check_outputs({"--folder": target}, [model])
    check_exportable(trained)
    examples = _examples(model, trained, files, reading)[:rows]
    parity = _exported(trained, target, to, examples)
    say(f"Compared on {parity.rows:,} rows: {parity.different} of {parity.decisions:,} decisions differ.", quiet=quiet or json)
    if json:
        show_json({"folder": str(target), "to": to, **parity._asdict()})
    else:
        show_text(f"Done: {target}")


def _exported(trained: TrainedModel, target: Path, to: str, examples: Any) -> Any:
    if to == "onnx":
        from manyhot.export.onnx_file import export_onnx

        return export_onnx(trained, target, rows=examples)
    if to == "weights":
        from manyhot.export.plain_weights import export_weights

        return export_weights(trained, target, rows=examples)
    if trained.shape["body"] == "classifier":
        from manyhot.integrations.huggingface.export import export_classifier

        return export_classifier(trained, target, texts=list(examples.texts))
    from manyhot.export.huggingface_folder import export_huggingface

    return export_huggingface(trained, target, rows=examples)


def _examples(model: Path, trained: TrainedModel, files: list[str] | None, reading: dict[str, Any]) -> Any:
    if not files:
        config = read_config(model / CONFIG) if (model / CONFIG).is_file() else None
        files = list(config["files"].get("train", [])) if config else []
        if not files:
            raise typer.BadParameter("name a file of real rows for the comparison: manyhot export MODEL FILE")
    inherited = inherited_reading(model, labels=False)
    return fitted_to(trained, read_files(files, reading_of(reading), inherited=inherited, need_labels=False))
