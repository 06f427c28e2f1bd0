"""``manyhot data get``: download a public data set by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyhot.cli.io.console import JsonFlag, QuietFlag, say, show_json, show_text
from manyhot.data.sets.openml import fetch_openml_examples
from manyhot.data.write import write_examples

RETRIES = 3

data = typer.Typer(help="Download public data sets.", no_args_is_help=True)


@data.callback()
def _public_sets() -> None:
    """Download public data sets."""


@data.command()
def get(
    name: Annotated[str, typer.Argument(help="The set's name on OpenML, such as emotions or yeast.")],
    *,
    version: Annotated[str, typer.Option(help="A version number, or active for the oldest active version.")] = "active",
    labels: Annotated[
        list[str] | None, typer.Option(help="A label column; may be repeated. Needed if OpenML marks none.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="The file to write, .jsonl or .jsonl.gz.", show_default="NAME.jsonl")] = None,
    folder: Annotated[
        str | None, typer.Option(help="The folder of the download cache.", show_default="that of scikit-learn")
    ] = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Download a multi-label data set from OpenML and write it as JSON lines."""
    if version != "active" and not version.isdecimal():
        raise typer.BadParameter(f"--version must be a number or active; got {version!r}.")
    target = to or f"{Path(name).name}.jsonl"
    say(f"asking OpenML for {name!r} ...", quiet=quiet or json)
    examples = fetch_openml_examples(
        name, version="active" if version == "active" else int(version), labels=labels or None, folder=folder, retries=RETRIES
    )
    write_examples(examples, target)
    told = {
        "file": target,
        "rows": len(examples),
        "features": examples.num_features,
        "labels": examples.num_labels,
        **examples.source[0].chosen,
    }
    if json:
        show_json(told)
    else:
        show_text(f"{target}: {len(examples):,} rows, {examples.num_features:,} features, {examples.num_labels:,} labels")
