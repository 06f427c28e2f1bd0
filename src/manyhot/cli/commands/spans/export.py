"""``manyhot export`` with a span model: an ONNX graph of its scores, without decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from manyhot.cli.commands.spans.predict import open_span_model
from manyhot.cli.commands.spans.reading import read_span_files
from manyhot.cli.commands.spans.train import is_span_config, read_span_config
from manyhot.cli.io.config import CONFIG
from manyhot.cli.io.console import say, show_json, show_text


def export_span_files(
    folder: Path,
    files: Sequence[str] | None,
    target: Path,
    reading: Mapping[str, Any],
    *,
    rows: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Export the scores of a span model, and compare the export on texts of the given files or of the run's training files."""
    from manyhot.export.span_onnx import export_span_onnx

    model = open_span_model(folder)
    if not files:
        if not is_span_config(folder):
            raise typer.BadParameter("name a file of texts for the comparison: manyhot export MODEL FILE --to onnx")
        tables = read_span_config(folder / CONFIG)
        files, reading = tables["files"]["train"], {**tables["read"], **reading}
    texts = read_span_files(list(files), reading, need_spans=False, quiet=quiet or as_json)[:rows]
    parity = export_span_onnx(model, target, texts=texts)
    compared = f"Compared on {parity.rows:,} windows: {parity.different} of {parity.decisions:,} decisions differ."
    say(f"{compared} Decoding is not in the graph; model.json describes it.", quiet=quiet or as_json)
    if as_json:
        show_json({"folder": str(target), "to": "onnx", **parity._asdict()})
    else:
        show_text(f"Done: {target}")
