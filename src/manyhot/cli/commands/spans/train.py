"""``manyhot train --task spans``: train a span model on files of texts with spans, in a run folder."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from manyhot._suggest import nearest
from manyhot.cli.commands.report import HTML, TEST_REPORT, has_report, show_end
from manyhot.cli.commands.spans.reading import SHARED, SPAN_READ_FLAGS, read_span_files
from manyhot.cli.commands.spans.report import report_on_spans, span_run_reporter
from manyhot.cli.commands.spans.scores import show_span_scores, span_scores
from manyhot.cli.io.config import CONFIG, write_config
from manyhot.cli.io.console import say, show_json
from manyhot.cli.io.flags import Flag, flags_of, with_other_defaults
from manyhot.cli.io.progress import Watch
from manyhot.cli.io.reading import absolute
from manyhot.cli.io.run_folder import claimed_run
from manyhot.cli.io.slow_engine import tell_slow_engine
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.spans.settings import CHOICES, SpanSettings

if TYPE_CHECKING:
    from manyhot.data.spans.examples import SpanExamples
    from manyhot.training.spans.bundle import TrainedSpanModel

TABLE = "spans"
KEYS: dict[str, tuple[str, ...]] = {
    "files": ("train", "validation", "test"),
    "read": (*SHARED, *(flag.name for flag in SPAN_READ_FLAGS)),
    TABLE: tuple(each.name for each in fields(SpanSettings)),
}


def span_only_flags() -> list[Flag]:
    """A flag for each setting that only span models have; the others are flags of rows too."""
    others = {each.name for each in fields(TrainSettings)}
    return [flag for flag in flags_of(SpanSettings, choices=CHOICES) if flag.name not in others]


def with_span_defaults(flags: Iterable[Flag]) -> list[Flag]:
    """The flags of rows, whose help also says the defaults of span models."""
    return with_other_defaults(flags, flags_of(SpanSettings), name="spans")


def is_span_config(path: Path | None) -> bool:
    """Whether a settings file, or that of a run folder, is for spans. False if it is unreadable: its reader reports that."""
    if path is None:
        return False
    try:
        return TABLE in tomllib.loads((path / CONFIG if path.is_dir() else path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False


def read_span_config(path: Path) -> dict[str, dict[str, Any]]:
    """The tables ``[files]``, ``[read]`` and ``[spans]`` of a settings file; missing ones are empty."""
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    for table, content in given.items():
        if table not in KEYS or not isinstance(content, Mapping):
            raise typer.BadParameter(f"{path}: the tables are {', '.join(KEYS)}; got {table!r}.{nearest(table, KEYS)}")
        for key in content:
            if key not in KEYS[table]:
                raise typer.BadParameter(f"{path}: unknown key {key!r} in [{table}].{nearest(key, KEYS[table])}")
    files = {key: [value] if isinstance(value, str) else list(value) for key, value in given.get("files", {}).items()}
    folder = path.absolute().parent
    files = {key: [part if part == "-" else str(folder / part) for part in value] for key, value in files.items()}
    return {"files": files, "read": dict(given.get("read", {})), TABLE: dict(given.get(TABLE, {}))}


def span_tables(
    config: Path | None, files: Mapping[str, list[str] | None], reading: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The tables of a settings file, with the flags taking precedence."""
    tables = read_span_config(config) if config else {name: {} for name in KEYS}
    tables["files"] |= {key: [absolute(part) for part in value] for key, value in files.items() if value}
    tables["read"] |= reading
    tables[TABLE] |= settings
    if tables[TABLE].get("teacher"):
        # The run may be resumed in another folder.
        tables[TABLE]["teacher"] = absolute(tables[TABLE]["teacher"])
    if not tables["files"].get("train"):
        raise typer.BadParameter("name a file of texts with spans to train on.")
    return tables


def train_on_spans(
    tables: dict[str, dict[str, Any]], folder: Path, *, resume: bool, report: bool, json: bool, quiet: bool
) -> None:
    """Run the training; the folder is new, or its run is resumed."""
    # Imported here because they load slowly, and --help should be fast.
    from manyhot.training.run.processes import several_processes
    from manyhot.training.spans.train import train_spans

    try:
        chosen = SpanSettings.from_dict(tables[TABLE])
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from None
    with several_processes() as processes:
        # With several processes only the first one writes and prints.
        first, files = processes.first, tables["files"]
        examples, held_out, test = (
            read_span_files(files[name], tables["read"]) if files.get(name) else None
            for name in ("train", "validation", "test")
        )
        assert examples is not None
        silent, types = quiet or json or not first, len(examples.type_names)
        say(f"{len(examples):,} texts, {examples.num_spans:,} spans, {types:,} types; run folder {folder}", quiet=silent)
        tell_slow_engine(quiet=silent)
        with claimed_run(folder, new=not resume, first=first) as claim:
            if not resume and first:
                write_config(folder / CONFIG, {**tables, TABLE: chosen.to_dict()})
            # A run that was killed after its model was saved gets its report now.
            reporter = span_run_reporter(folder, files) if report and not has_report(folder) else None
            with Watch(quiet=silent) as watch:
                model = train_spans(
                    examples, chosen, validation=held_out, run=claim, resume=resume, progress=watch, held_out=reporter
                )
            if first:
                _tell(model, folder, test, files, report=report, json=json)


def _tell(
    model: TrainedSpanModel,
    folder: Path,
    test: SpanExamples | None,
    files: Mapping[str, Any],
    *,
    report: bool,
    json: bool,
) -> None:
    """Evaluate on the test texts, and print the results."""
    scores = None if test is None else span_scores(model, test)
    if test is not None and report:
        report_on_spans(model, test, folder / TEST_REPORT, files=files["test"], title=f"{folder.name}, test texts")
    pages = [str(path) for path in (folder / HTML, folder / TEST_REPORT / HTML) if path.is_file()]
    if json:
        tested = None if scores is None else scores.to_json()
        show_json({"run": str(folder), "model": model.describe(), "test": tested, "reports": pages})
        return
    shown = None if scores is None else partial(show_span_scores, scores, title="On the test texts")
    show_end(folder, pages, shown, report=report)
