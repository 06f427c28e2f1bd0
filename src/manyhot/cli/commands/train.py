"""``manyhot train``: train a model on files of examples, in a run folder."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from manyhot._files import is_unused
from manyhot.cli.commands.evaluate import tell_unseen
from manyhot.cli.commands.report import HTML, TEST_REPORT, has_report, report_on, run_reporter, show_end
from manyhot.cli.commands.spans.reading import TaskFlag, checked_task, refuse_span_flags, span_read_flags, span_reading_of
from manyhot.cli.commands.spans.train import (
    is_span_config,
    read_span_config,
    span_only_flags,
    span_tables,
    train_on_spans,
    with_span_defaults,
)
from manyhot.cli.io.config import CONFIG, read_config, write_config
from manyhot.cli.io.console import JsonFlag, QuietFlag, say, show_json
from manyhot.cli.io.flags import flags_of, with_flags
from manyhot.cli.io.models import fitted_to
from manyhot.cli.io.progress import Watch
from manyhot.cli.io.reading import absolute, read_files, read_flags, reading_of
from manyhot.cli.io.run_folder import claimed_run, not_new
from manyhot.cli.io.scores import show_scores
from manyhot.cli.io.search import FOLDER, SEARCH_FLAGS, search_table, searched
from manyhot.cli.io.slow_engine import tell_slow_engine
from manyhot.cli.io.warmed_reading import read_warming
from manyhot.data.examples import Examples
from manyhot.data.files.input_file import bare_name
from manyhot.data.formats.registry import formats
from manyhot.data.reading import Reading
from manyhot.data.tables.numbered import column_numbers
from manyhot.data.used_options import check_options_used
from manyhot.decisions.calibrate import KINDS
from manyhot.losses.catalog import LOSSES
from manyhot.metrics.catalog import METRICS
from manyhot.training.rows.bodies.info import AUTO_BODY
from manyhot.training.rows.bodies.registry import trained_bodies
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO, TUNINGS
from manyhot.training.rows.strategies import STRATEGIES
from manyhot.training.run.schedule import SCHEDULES
from manyhot.training.run.settings import PRECISIONS

if TYPE_CHECKING:
    from manyhot.training.rows.bundle import TrainedModel
    from manyhot.training.run.processes import Processes

CHOICES = {
    "model": (AUTO_BODY, *trained_bodies()),
    "loss": ("auto", *LOSSES),
    "strategy": tuple(STRATEGIES),
    "schedule": SCHEDULES,
    "metric": (AUTO, *(name.replace("@k", "@5") for name in METRICS)),
    "tune": TUNINGS,
    "calibrate": (AUTO, "none", *KINDS),
    "precision": PRECISIONS,
}

TrainFiles = Annotated[
    list[str] | None, typer.Argument(help="Files of training examples, read as one set; - is the standard input.")
]
ValidationFlag = Annotated[
    list[str] | None,
    typer.Option("--validation-file", help="Examples for early stopping and tuning. Default: part of the training examples."),
]
TestFlag = Annotated[list[str] | None, typer.Option("--test", help="Test examples; the trained model is evaluated on them.")]
RunFlag = Annotated[
    Path | None, typer.Option(help="The run folder, new or empty.", show_default="runs/NAME, NAME from the first file")
]
ResumeFlag = Annotated[Path | None, typer.Option(help="Continue the interrupted run in this folder from its last checkpoint.")]
ReportFlag = Annotated[
    bool | None,
    typer.Option("--report/--no-report", help="Write a report, report.html, into the run folder.", show_default="yes"),
]
ConfigFlag = Annotated[Path | None, typer.Option(help="A TOML file of settings; flags override it.")]


@span_read_flags
@with_flags("span_settings", span_only_flags(), panel="Further settings of --task spans")
@with_flags("search", SEARCH_FLAGS, panel="Search for settings")
@with_flags("settings", with_span_defaults(flags_of(TrainSettings, choices=CHOICES)), panel="Settings")
@read_flags
def train(
    files: TrainFiles = None,
    *,
    task: TaskFlag = None,
    validation_file: ValidationFlag = None,
    test: TestFlag = None,
    run: RunFlag = None,
    resume: ResumeFlag = None,
    config: ConfigFlag = None,
    report: ReportFlag = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    reading: dict[str, Any],
    settings: dict[str, Any],
    search: dict[str, Any],
    span_reading: dict[str, Any],
    span_settings: dict[str, Any],
) -> None:
    """Train a model on files of examples.

    The run folder gets the settings, a log, checkpoints, the model and a report.
    """
    given_files = {"train": files, "validation": validation_file, "test": test}
    beside = {**reading, **settings, **search, **span_reading, **span_settings}
    if resume is not None:
        _refuse_beside_resume({**given_files, "run": run, "config": config, **beside})
    if checked_task(task) == "spans" or is_span_config(resume or config):
        if search:
            raise typer.BadParameter("--search is for labels; a run on spans has no search.")
        if resume is not None:
            found, folder = read_span_config(_config_of(resume)), resume
        else:
            found = span_tables(config, given_files, span_reading_of(reading, span_reading), {**settings, **span_settings})
            folder = run or _new_folder(found["files"]["train"][0])
            _check_new(folder)
        train_on_spans(found, folder, resume=resume is not None, report=report is not False, json=json, quiet=quiet)
        return
    refuse_span_flags({**span_reading, **span_settings})
    if resume is not None:
        tables, folder = read_config(_config_of(resume)), resume
    else:
        tables = read_config(config) if config else {"files": {}, "read": {}, "train": {}, "search": {}}
        tables["files"] |= {key: [absolute(part) for part in value] for key, value in given_files.items() if value}
        tables["read"] |= reading_of(reading)
        tables["train"] |= settings
        tables["search"] = search_table(tables["search"], search, tables["train"])
        if tables["train"].get("teacher"):
            # The run may be resumed in another folder.
            tables["train"]["teacher"] = absolute(tables["train"]["teacher"])
        if not tables["files"].get("train"):
            raise typer.BadParameter("name a file of examples to train on.")
        folder = run or _new_folder(tables["files"]["train"][0])
    _train(tables, folder, resume=resume is not None, report=report is not False, json=json, quiet=quiet)


def _train(tables: dict[str, dict[str, Any]], folder: Path, *, resume: bool, report: bool, json: bool, quiet: bool) -> None:
    # Imported here because they load slowly, and --help should be fast.
    from manyhot.training.rows.train import train as train_model
    from manyhot.training.run.processes import several_processes

    with several_processes() as processes:
        # With several processes only the first one writes and prints.
        first, files = processes.first, tables["files"]
        chosen, found = settings_from(tables["train"]), None
        if resume and chosen.label_shards:
            # A run may be resumed by another number of processes.
            chosen = replace(chosen, label_shards=processes.count)
        if tables["search"] and processes.count > 1:
            raise typer.BadParameter("--search needs one process. Run it first, then train in several with its settings.")
        if not resume and first:
            _check_new(folder)
        silent = quiet or json or not first
        examples = read_warming(chosen, files["train"], inherited=tables["read"], quiet=silent, processes=processes)
        held_out, test = (
            _read_like(examples, files.get(each), tables["read"], quiet=silent, processes=processes)
            for each in ("validation", "test")
        )
        read = [source for part in (examples, held_out, test) if part is not None for source in part.source]
        check_options_used(tables["read"], read)
        _refuse_ids(tables["read"], examples, shown=report or resume)
        say(f"{len(examples):,} rows, {examples.num_labels:,} labels, {examples.kind}; run folder {folder}", quiet=silent)
        tell_slow_engine(quiet=silent)
        _tell_other_rows(chosen.loss, examples, quiet=silent)
        with claimed_run(folder, new=not resume, first=first) as claim:
            if not resume and first:
                resolved = {**tables, "read": _resolved(tables["read"], examples), "train": chosen.to_dict()}
                write_config(folder / CONFIG, resolved)
            if tables["search"]:
                chosen, found = searched(examples, held_out, chosen, tables["search"], folder / FOLDER, quiet=silent)
            # A run that was killed after its model was saved gets its report now.
            reporter = run_reporter(folder, examples, held_out, files) if report and not has_report(folder) else None
            with Watch(quiet=silent) as watch:
                model = train_model(
                    examples, chosen, validation=held_out, run=claim, resume=resume, progress=watch, held_out=reporter
                )
            if first:
                _tell(model, folder, test, files, report=report, json=json, search=found)


def _refuse_ids(reading: Mapping[str, Any], examples: Examples, *, shown: bool) -> None:
    """Refuse names of rows where there is no report to show them."""
    if not shown and reading.get("ids") and examples.kind == "texts":
        raise typer.BadParameter("--ids names the rows of the report; --no-report writes none. Leave one of them out.")


def _tell_other_rows(loss: str, examples: Examples, *, quiet: bool) -> None:
    """For a loss that needs exactly one label per row, print the number of rows with none or several."""
    if loss in LOSSES and LOSSES[loss].one_label:
        others = int((examples.labels.counts() != 1).sum())
        if others:
            say(f"{loss} is for one label per row and predicts one; {others:,} rows have none or several", quiet=quiet)


def _tell(
    model: TrainedModel,
    folder: Path,
    test: Examples | None,
    files: Mapping[str, Any],
    *,
    report: bool,
    json: bool,
    search: dict[str, Any] | None,
) -> None:
    """Evaluate on the test examples, and print the results."""
    scores = None
    if test is not None:
        from manyhot.evaluation import evaluate

        test = fitted_to(model, test)
        scores = evaluate(model, test)
        if report:
            report_on(model, test, folder / TEST_REPORT, files=files["test"], title=f"{folder.name}, test rows")
    pages = [str(path) for path in (folder / HTML, folder / TEST_REPORT / HTML) if path.is_file()]
    if json:
        told = {"run": str(folder), "model": model.describe(), "test": scores, "reports": pages}
        show_json(told if search is None else {**told, "search": search})
        return
    shown = None if scores is None else partial(show_scores, scores, title="On the test examples")
    show_end(folder, pages, shown, report=report)


def settings_from(given: Mapping[str, Any]) -> TrainSettings:
    """Settings from flags and files; invalid ones are a usage error."""
    try:
        return TrainSettings.from_dict(given)
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from None


def _read_like(
    examples: Examples, files: Sequence[str] | None, reading: Mapping[str, Any], *, quiet: bool, processes: Processes
) -> Examples | None:
    """Read files like the training files; prints labels that do not occur in training."""
    if not files:
        return None
    inherited = {**Reading.of(examples).options(labels=True), **reading}
    found = read_files(files, {}, inherited=inherited, quiet=quiet, processes=processes)
    if found.features is not None and not isinstance(found.features, np.ndarray) and examples.features is not None:
        numbered = column_numbers(found.feature_names or ()) is not None
        if examples.feature_names is None and numbered:
            found = found.with_features(examples.num_features)
        elif found.feature_names is None and column_numbers(examples.feature_names) is not None:
            found = found.with_features(examples.feature_names or ())
    tell_unseen(found.with_labels(examples.label_names), quiet=quiet)
    return found


def _resolved(reading: Mapping[str, Any], examples: Examples) -> dict[str, Any]:
    """The reading flags completed by the chosen columns, so that files are read the same way again."""
    resolved = {name: absolute(value) if name in ("label_names", "label_file") else value for name, value in reading.items()}
    chosen = Reading.of(examples).options(labels=True)
    known = formats("labels")
    taken = {name for source in examples.source if source.format in known for name in known[source.format].takes}
    names = [name for name in ("text", "labels", "separator", "index_base") if name in chosen and name in taken]
    return {**{name: chosen[name] for name in names}, **resolved}


def _refuse_beside_resume(given: Mapping[str, Any]) -> None:
    """Refuse flags that would change a resumed run."""
    flags = {"train": "files", "validation": "--validation-file"}
    set_here = [
        flags.get(name, f"--{'no-' if value is False else ''}{name.replace('_', '-')}")
        for name, value in given.items()
        if value is not None and value != []
    ]
    if set_here:
        raise typer.BadParameter(f"--resume continues a run with its own settings; leave out: {', '.join(set_here)}.")


def _config_of(folder: Path) -> Path:
    if not (folder / CONFIG).is_file():
        raise typer.BadParameter(f"{folder}: there is no {CONFIG} in it, so it is not a run that can be resumed.")
    return folder / CONFIG


def _check_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or not is_unused(folder)):
        raise not_new(folder)


def _new_folder(file: str) -> Path:
    """``runs/NAME``, or the first of ``runs/NAME-2``, ``-3``, ... that does not exist."""
    stem = "stdin" if file == "-" else Path(bare_name(file)).stem or "run"
    names = itertools.chain([stem], (f"{stem}-{count}" for count in itertools.count(2)))
    return next(folder for folder in (Path("runs") / name for name in names) if not folder.exists())
