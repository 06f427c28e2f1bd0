"""``manyhot suspects``: labels of a file that look wrong or missing."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyhot.cli.io.config import CONFIG, read_config
from manyhot.cli.io.console import JsonFlag, QuietFlag, say, show_table, show_text
from manyhot.cli.io.models import inherited_reading
from manyhot.cli.io.output import check_outputs
from manyhot.cli.io.reading import read_files, read_flags, reading_of
from manyhot.cli.io.terminal import safe_json
from manyhot.data.examples import Examples
from manyhot.data.files.json_lines import check_target
from manyhot.training.rows.settings import TrainSettings

if TYPE_CHECKING:
    from manyhot.curation.reasons import Reasons
    from manyhot.curation.suspects import Suspect

SourcesArgument = Annotated[
    list[str], typer.Argument(help="Files of examples, or a run folder, whose training files and settings are used.")
]
MostFlag = Annotated[int, typer.Option("--most", min=1, help="List at most this many suspects.")]
KindFlag = Annotated[str, typer.Option("--kind", help="Which suspects: wrong, missing or both.")]
FoldsFlag = Annotated[
    int, typer.Option("--folds", min=2, help="Number of cross-fitting folds; each model scores the rows it was not trained on.")
]
CorrectedFlag = Annotated[
    Path | None,
    typer.Option("--corrected", help="Write the examples to this JSON lines file, with the listed suspects corrected."),
]
SUSPECT_KINDS = {"wrong": ("wrong",), "missing": ("missing",), "both": ("wrong", "missing")}


@read_flags
def suspects(
    sources: SourcesArgument,
    *,
    most: MostFlag = 50,
    kind: KindFlag = "both",
    folds: FoldsFlag = 5,
    corrected: CorrectedFlag = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    reading: dict[str, Any],
) -> None:
    """List the labels that look wrong or missing, and estimate how many of them are mistakes.

    The most doubtful labels come first. Every row is scored by a model that was not trained on it.
    """
    if kind not in SUSPECT_KINDS:
        raise typer.BadParameter(f"--kind must be wrong, missing or both; got {kind!r}.")
    if corrected is not None:
        check_target("--corrected", corrected)
    examples, settings = _examples(sources, reading)
    check_outputs({"--corrected": corrected}, [source.path for source in examples.source])
    from manyhot.curation.cross_fit import cross_fitted_logits
    from manyhot.curation.reasons import Reasons
    from manyhot.curation.suspects import corrected_labels, find_suspects

    reasons = Reasons()
    logits = cross_fitted_logits(
        examples,
        settings,
        folds=min(folds, len(examples)),
        on_fold=lambda number: say(f"fold {number + 1} of {folds}", quiet=quiet or json),
        on_model=reasons.keep,
    )
    where = None if examples.unknown is None else ~examples.unknown.dense().bool()
    found = find_suspects(logits, examples.labels, most=most, kinds=SUSPECT_KINDS[kind], where=where)
    if corrected is not None:
        from manyhot.data.write import write_examples

        write_examples(replace(examples, labels=corrected_labels(examples.labels, found)), corrected)
        say(f"{corrected}: {len(found):,} labels changed", quiet=quiet)
    if json:
        _print_lines(examples, found, reasons)
    else:
        _print_table(examples, found, reasons)


def _print_lines(examples: Examples, found: Sequence[Suspect], reasons: Reasons) -> None:
    """One JSON object per suspect."""
    for rank, each in enumerate(found, start=1):
        line: dict[str, Any] = {"rank": rank, "row": each.row}
        if examples.ids is not None:
            line["id"] = examples.ids[each.row]
        line |= {"label": examples.label_names[each.label], "kind": each.kind, "probability": round(each.probability, 6)}
        because = [{"feature": feature, "part": round(part, 6)} for feature, part in reasons.of(each, examples)]
        line |= {"doubt": round(each.doubt, 6), "because": because}
        line["text"] = None if examples.texts is None else examples.texts[each.row]
        sys.stdout.write(safe_json(json_text.dumps(line, ensure_ascii=False)) + "\n")


def _print_table(examples: Examples, found: Sequence[Suspect], reasons: Reasons) -> None:
    """Print a table of the suspects, and the share of them that are expected to be mistakes."""
    rows: list[tuple[Any, ...]] = []
    for each in found:
        name = each.row if examples.ids is None else examples.ids[each.row]
        because = ", ".join(f"{feature} {part:+.2f}" for feature, part in reasons.of(each, examples))
        text = () if examples.texts is None else (_shortened(examples.texts[each.row]),)
        rows.append((name, examples.label_names[each.label], each.kind, each.probability, each.doubt, because, *text))
    told = () if examples.texts is None else ("text",)
    show_table(("row", "label", "looks", "probability", "doubt", "because", *told), rows)
    expected = sum(each.doubt for each in found) / max(len(found), 1)
    about = f"About {expected:.0%} of these {len(found):,} labels are expected to be mistakes"
    show_text(f"{about}; a better model gives a better estimate.")


def _examples(sources: list[str], reading: dict[str, Any]) -> tuple[Examples, TrainSettings | None]:
    folder = Path(sources[0])
    if len(sources) == 1 and folder.is_dir() and (folder / CONFIG).is_file():
        config = read_config(folder / CONFIG)
        inherited = inherited_reading(folder, labels=True)
        found = read_files(list(config["files"]["train"]), reading_of(reading), inherited=inherited)
        return found, TrainSettings.from_dict(config["train"])
    return read_files(sources, reading_of(reading)), None


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "\u2026"
