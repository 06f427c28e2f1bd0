"""``manyhot report``: rebuild the report of a run or of a comparison from its saved results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyhot.cli.io.console import JsonFlag, show_json, show_text
from manyhot.data.examples import Examples
from manyhot.data.files.problems import DataError
from manyhot.training.rows.bundle import TrainedModel

if TYPE_CHECKING:
    from manyhot.training.rows.rules.fitting import Tuning

HTML, JSON = "report.html", "report.json"
TEST_REPORT = "test"
# Metrics in the last line of a training run.
HEADLINES = 3
FolderArgument = Annotated[Path, typer.Argument(help="The folder of a run, a comparison or another report.")]
ToFlag = Annotated[Path | None, typer.Option(help="The folder to write to.", show_default="the same folder")]
TitleFlag = Annotated[str | None, typer.Option(help="The title of the page.", show_default="the folder's name")]


def report(folder: FolderArgument, *, to: ToFlag = None, title: TitleFlag = None, json: JsonFlag = False) -> None:
    """Rebuild the report of a run or of a comparison from its saved results, without the data."""
    # Imported here because reports load metrics, which other commands do not need.
    from manyhot.report.files import read_report, write_report

    if not folder.is_dir():
        raise DataError("must be the folder of a run or of a comparison; there is no such folder.", file=str(folder))
    page = write_report(read_report(folder), to or folder, title=title or f"Report: {folder.absolute().name}")
    if json:
        show_json({"report": str(page)})
    else:
        show_text(f"Report: {page}")


def report_on(model: TrainedModel, examples: Examples, folder: Path, *, files: Sequence[str], title: str) -> Path:
    """Write the report of a model on examples it was not trained on; returns the path of its page."""
    from manyhot.report.files import write_report
    from manyhot.report.run.judged import Judged, Origin, drawn_rows
    from manyhot.report.run.measure import measure_run
    from manyhot.training.rows.rules.fitting import LISTED

    examples, drawn_from = examples.with_labels(model.label_names), 0
    drawn = drawn_rows(len(examples), LISTED if model.lazy else examples.num_labels)
    rows = examples if drawn is None else examples[drawn]
    if drawn is not None:
        drawn_from = len(examples)
    most = max(LISTED, model.rule.top_k or model.rule.max_labels or 0)
    judged = Judged.by_model(model, model.top_k(rows, most) if model.lazy else model.logits(rows), rows.labels, rows.where())
    origin = Origin("test", examples, drawn, file_names(files), drawn_from)
    return write_report(measure_run(model, judged, origin), folder, title=title)


def run_reporter(
    folder: Path, examples: Examples, validation: Examples | None, files: Mapping[str, Sequence[str]]
) -> Callable[[TrainedModel, Tuning | None], None]:
    """A callback for ``train`` that writes a report on the held-out scores into the run folder."""

    def write(model: TrainedModel, tuning: Tuning | None) -> None:
        from manyhot.report.files import write_report
        from manyhot.report.run.judged import Judged, Origin, drawn_rows
        from manyhot.report.run.measure import measure_run

        if tuning is None or not len(tuning.labels):
            return
        judged = Judged.by_model(model, tuning.logits, tuning.labels, tuning.where)
        drawn = None if judged.listed else drawn_rows(len(tuning.labels), model.num_labels)
        places, drawn_from = tuning.rows, 0
        if drawn is not None:
            judged, drawn_from = judged.rows(drawn), len(tuning.labels)
            places = drawn if places is None else places[drawn]
        if tuning.rows is None and validation is not None:
            shown = validation.with_labels(model.label_names)
            origin = Origin("validation", shown, places, file_names(files.get("validation", ())), drawn_from)
        else:
            what = "cross-fitted" if len(tuning.labels) == len(examples) else "held out"
            origin = Origin(what, examples, places, file_names(files.get("train", ())), drawn_from)
        write_report(measure_run(model, judged, origin, run=folder), folder)

    return write


def has_report(folder: Path) -> bool:
    """Whether a folder holds all files of a report."""
    from manyhot.report.files import MARKDOWN

    return all((folder / name).is_file() for name in (JSON, HTML, MARKDOWN))


def headline(folder: Path) -> str | None:
    """The main metrics of a run's report in one line; None if it has no report."""
    if not (folder / JSON).is_file():
        return None
    from manyhot.report.files import read_report

    found = read_report(folder)
    named = [f"{each['name']} {each['value']:.4f}" for each in found["metrics"][:HEADLINES] if each["value"] is not None]
    unit, what = "texts" if found["kind"] == "spans" else "rows", found["rows"]["what"]
    what += "" if what == "test" else ", also used for tuning"
    return f"On {found['rows']['count']:,} {unit} ({what}): {', '.join(named)}"


def show_end(folder: Path, pages: Sequence[str], show_test: Callable[[], None] | None, *, report: bool) -> None:
    """Print the last lines of a training run: its metrics, the metrics on the test files, and the paths of its results.

    ``report`` says whether a report was asked for: if there is none, a line says why.
    """
    found = headline(folder)
    if found is not None:
        show_text(found)
    if show_test is not None:
        show_test()
    show_text(f"Done: {folder}. Use it with: manyhot predict {folder} FILE")
    for path in pages:
        show_text(f"Report: {path}")
    if report and not pages:
        show_text("No report: there were no held-out examples to measure on. Give more of them, or a --validation-file.")


def file_names(files: Sequence[str]) -> tuple[str, ...]:
    """File names without their folders, because reports are shared."""
    return tuple("the standard input" if file == "-" else Path(file).name for file in files)
