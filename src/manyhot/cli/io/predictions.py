"""Predictions as JSON lines or CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from manyhot.cli.io.models import fitted_to
from manyhot.cli.io.output import text_output
from manyhot.cli.io.shards import own_blocks
from manyhot.cli.io.terminal import safe_json
from manyhot.data.examples import Examples
from manyhot.decisions.rule import DecisionRule
from manyhot.predictor import Prediction, predict_rows
from manyhot.training.rows.bundle import TrainedModel

OUTPUTS = ("jsonl", "csv")
SEPARATOR = "|"
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


class PredictionTask:
    """The model, the rule and the values to write for each row."""

    def __init__(
        self, model: TrainedModel, rule: DecisionRule, close: Any, format: str, *, scores: bool, probabilities: bool
    ) -> None:
        self.model, self.rule, self.close, self.format = model, rule, close, format
        self.asked = {"scores": scores, "probabilities": probabilities}

    def write(self, to: Path | None, blocks: Iterable[Examples], own: range | None = None, *, header: bool = True) -> int:
        """Predict all blocks, or those of ``own``, into a file or the standard output; returns the number of rows."""
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
    # If a name contains the separator, every cell is a JSON list, which readers accept too.
    join = _as_json_list if any(SEPARATOR in name for name in names) else SEPARATOR.join

    def write(row: int, name: str | None, prediction: Prediction) -> None:
        parts = (getattr(prediction, each) for each in asked)
        cells = [row, guarded(name or ""), guarded(join(prediction.labels))]
        table.writerow([*cells, *(SEPARATOR.join(f"{value:g}" for value in part) for part in parts)])

    return write


def _as_json_list(labels: Sequence[str]) -> str:
    return json.dumps(list(labels), ensure_ascii=False)


def guarded(cell: str) -> str:
    """A cell that a spreadsheet does not run as a formula: an apostrophe precedes the signs that begin one.

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
    out.write(safe_json(json.dumps(line, ensure_ascii=False)) + "\n")
