"""``manyhot sample``: choose the rows to label next."""

from __future__ import annotations

import json as json_text
import sys
from typing import Annotated, Any

import torch
import typer

from manyhot.cli.io.blocks import read_blocks
from manyhot.cli.io.console import JsonFlag, QuietFlag, show_table
from manyhot.cli.io.models import ModelArgument, fitted_to, inherited_reading, open_model
from manyhot.cli.io.reading import read_flags, reading_of
from manyhot.training.spans.bundle import is_span_bundle

SampleFiles = Annotated[list[str], typer.Argument(help="Files of rows without labels; - is the standard input.")]
RowsFlag = Annotated[int, typer.Option("--rows", min=1, help="Number of rows to choose.")]
SeedFlag = Annotated[
    int, typer.Option("--seed", min=0, max=2**53 - 1, help="Random seed of the choice among the most uncertain rows.")
]


@read_flags
def sample(
    model: ModelArgument,
    files: SampleFiles,
    *,
    rows: RowsFlag = 100,
    seed: SeedFlag = 0,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    reading: dict[str, Any],
) -> None:
    """Choose the rows to label next: uncertain and diverse ones."""
    if is_span_bundle(model):
        raise typer.BadParameter("sample is for models of labels; this is a span model.")
    trained = open_model(model)
    inherited = inherited_reading(model, labels=False)
    logits: list[torch.Tensor] = []
    texts: list[str | None] = []
    ids: list[str | None] = []
    for block in read_blocks(files, reading_of(reading), inherited=inherited, quiet=quiet):
        logits.append(trained.logits(fitted_to(trained, block)))
        texts.extend(block.texts or [None] * len(block))
        ids.extend(block.ids or [None] * len(block))
    from manyhot.curation.sampling import choose_rows

    scores = torch.cat(logits) if logits else torch.zeros(0, trained.num_labels)
    found = choose_rows(scores, trained.rule, rows=rows, seed=seed)
    names = trained.label_names
    if json:
        for each in found:
            line: dict[str, Any] = {"row": each.row, "id": ids[each.row], "uncertainty": round(each.uncertainty, 6)}
            line |= {"labels": [names[label] for label in each.labels], "text": texts[each.row]}
            sys.stdout.write(json_text.dumps(line, ensure_ascii=False) + "\n")
        return
    table = [
        (ids[each.row] or each.row, each.uncertainty, ", ".join(names[n] for n in each.labels), _shortened(texts[each.row]))
        for each in found
    ]
    show_table(("row", "uncertainty", "uncertain labels", "text"), table, right=(1,))


def _shortened(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= 60 else line[:59] + "\u2026"
