"""``manyhot compare``: several losses on the same data, with statistics."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from manyhot._cores import available_cores
from manyhot.cli.io.console import JsonFlag, QuietFlag, messages, say, show_json, show_table, show_text
from manyhot.cli.io.flags import flags_of, with_flags
from manyhot.cli.io.reading import read_flags, reading_of, tell
from manyhot.comparison.methods import DEFAULT_LOSSES
from manyhot.comparison.settings import DEVICES, CompareSettings

if TYPE_CHECKING:
    from manyhot.comparison.grid import Progress
    from manyhot.comparison.plan import Plan
    from manyhot.comparison.sets import SetShape

# With more groups than this, only their means are printed; the file has all tables.
SHOWN_GROUPS = 3
FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Data sets. A file is split into training and test rows; x-train.csv and x-test.csv are one set."),
]
LossesFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--losses",
        help="Losses, separated by commas; an option follows a +, as in zlpr+smoothing or zlpr+pos_weight=10.",
        show_default=", ".join(DEFAULT_LOSSES),
    ),
]
MODELS, SEEDS = "linear,mlp", 5
ModelsFlag = Annotated[str | None, typer.Option("--models", help="Bodies, separated by commas.", show_default=MODELS)]
SeedsFlag = Annotated[
    int | None,
    typer.Option(
        min=1, max=10_000, help="Number of seeds, for splits, initial weights and the order of rows.", show_default=str(SEEDS)
    ),
]
OutFlag = Annotated[Path | None, typer.Option("--out", help="The folder for results.", show_default="comparisons/NAME")]
ResumeFlag = Annotated[Path | None, typer.Option(help="The folder of an interrupted comparison; run its missing cells.")]
DryFlag = Annotated[
    bool, typer.Option("--dry-run", help="Measure a few steps of each cell and print the estimated time; train nothing.")
]
JobsFlag = Annotated[int, typer.Option(min=0, help="Number of processes; 0 uses one per CPU core.")]
MinutesFlag = Annotated[float | None, typer.Option(min=0, help="Start no cell after this many minutes. Default: no limit.")]
ReferenceFlag = Annotated[
    str | None, typer.Option(help="The loss that the others are compared with.", show_default="zlpr, or the first one")
]


@with_flags("settings", flags_of(CompareSettings, choices={"device": DEVICES}), panel="Budget")
@read_flags
def compare(
    files: FilesArgument = None,
    *,
    losses: LossesFlag = None,
    models: ModelsFlag = None,
    seeds: SeedsFlag = None,
    out: OutFlag = None,
    resume: ResumeFlag = None,
    dry_run: DryFlag = False,
    jobs: JobsFlag = 0,
    minutes: MinutesFlag = None,
    reference: ReferenceFlag = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    reading: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    """Compare losses on your data: same body, splits, number of trials and early stopping for all.

    Every loss is evaluated with its natural decision and with a threshold tuned on validation rows. A cell is one combination
    of data set, body, loss and seed; each cell is saved when it finishes.
    """
    workers = jobs or available_cores()
    if resume is not None:
        if files or losses or models or seeds is not None or out or reading or settings:
            raise typer.BadParameter(
                "--resume continues a comparison with its own settings; leave out files, losses, models, seeds and settings."
            )
        plan, folder = _saved_plan(resume), resume
    else:
        what = (losses or list(DEFAULT_LOSSES), models or MODELS, SEEDS if seeds is None else seeds)
        plan = _new_plan(files or [], *what, _kept(reading_of(reading)), settings)
        folder = out or Path("comparisons") / "-".join(each.name for each in plan.sets)[:60]
    chosen = _reference(plan, reference)
    if dry_run:
        _tell_time(plan, folder, workers, json=json)
        return
    if resume is None:
        _check_new(folder)
    shapes = _read_shapes(plan, folder)
    tell([source for shape in shapes.values() for source in shape.source], quiet=quiet or json)
    if resume is None:
        from manyhot.comparison.compare_files import begin_comparison

        begin_comparison(plan, folder)
    _run(plan, folder, shapes, workers, minutes, chosen, json=json, quiet=quiet)


def _new_plan(
    files: list[str], losses: list[str], models: str, seeds: int, reading: dict[str, Any], settings: dict[str, Any]
) -> Plan:
    from manyhot.comparison.compare_files import plan_comparison

    if not files:
        raise typer.BadParameter("name at least one file of examples.")
    for file in files:
        if file == "-" or not Path(file).is_file():
            raise typer.BadParameter(
                f"{file}: there is no such file. compare needs regular files, which it reads several times."
            )
    try:
        bodies = [name.strip() for name in models.split(",") if name.strip()]
        budget = CompareSettings.from_dict(settings)
        return plan_comparison(files, losses, budget, models=bodies, seeds=seeds, reading=reading)
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(
            str(error).removeprefix("compare: ").replace("unknown loss", "--losses: unknown loss")
        ) from None


def _reference(plan: Plan, given: str | None) -> str:
    from manyhot.comparison.compare_files import reference_of

    try:
        return reference_of(plan, given)
    except ValueError as error:
        raise typer.BadParameter(str(error).removeprefix("compare: ").replace("`reference`", "--reference")) from None


def _kept(reading: dict[str, Any]) -> dict[str, Any]:
    """Reading flags as the plan stores them: arguments of ``read_examples``."""
    kept = {name: value for name, value in reading.items() if name != "skip_bad"}
    return {**kept, "on_problem": "collect"} if reading.get("skip_bad") else kept


def _saved_plan(folder: Path) -> Plan:
    from manyhot.comparison.plan import Plan
    from manyhot.comparison.records import PLAN

    path = folder / PLAN
    if not path.is_file():
        raise typer.BadParameter(f"{folder}: there is no {PLAN} in it, so it is not a comparison that can be resumed.")
    return Plan.from_dict(json_module.loads(path.read_text()))


def _check_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise typer.BadParameter(
            f"--out must be a new or empty folder; {folder} is neither."
            f" To run its missing cells: manyhot compare --resume {folder}"
        )


def _read_shapes(plan: Plan, folder: Path) -> dict[str, SetShape]:
    """The shapes of the data sets; an unreadable file is an error before anything is written or printed."""
    from manyhot.comparison.grid import shapes_of
    from manyhot.comparison.records import CELLS, read_cells

    return shapes_of(plan, plan.missing(read_cells(folder / CELLS)))


def _tell_time(plan: Plan, folder: Path, workers: int, *, json: bool) -> None:
    from manyhot.comparison.grid import estimate_seconds
    from manyhot.comparison.records import CELLS, read_cells

    missing = plan.missing(read_cells(folder / CELLS))
    cells = sum(len(job.seeds) for job in missing)
    with GridWatch(len(missing), quiet=json, text="jobs measured") as watch:
        seconds = estimate_seconds(plan, missing, watch.count)
    wall = seconds / max(min(workers, len(missing)), 1)
    if json:
        show_json({"cells": plan.num_cells, "missing": cells, "core_seconds": seconds, "seconds": wall, "jobs": workers})
        return
    show_text(
        f"Cells: {plan.num_cells:,}, {cells:,} of them to run. Time: at most {_duration(seconds)} of one core,"
        f" about {_duration(wall)} with {workers} processes; less if trials stop early."
    )


def _run(
    plan: Plan,
    folder: Path,
    shapes: dict[str, SetShape],
    workers: int,
    minutes: float | None,
    reference: str,
    *,
    json: bool,
    quiet: bool,
) -> None:
    from manyhot.comparison.compare_files import run_comparison
    from manyhot.comparison.records import TABLE

    say(f"{plan.num_cells:,} cells in {folder}; each is saved when it is done", quiet=quiet or json)
    say("--dry-run estimates the time; --models linear, --seeds 2 and --minutes shorten it", quiet=quiet or json)
    try:
        with GridWatch(plan.num_cells, quiet=quiet or json) as watch:
            how = {"workers": workers, "minutes": minutes, "shapes": shapes, "watch": watch}
            cells, statistics = run_comparison(plan, folder, reference=reference, **how)
    except KeyboardInterrupt:
        typer.echo(f"manyhot: interrupted. Continue with: manyhot compare --resume {folder}", err=True)
        raise typer.Exit(130) from None
    failures = [cell for cell in cells if "error" in cell]
    left = plan.num_cells - len(cells) + len(failures)
    if json:
        show_json({"folder": str(folder), "left": left, "statistics": statistics})
    else:
        _show_tables(statistics)
        show_text(f"All tables: {folder / TABLE}. A report: manyhot report {folder}")
    if failures:
        say(f"{len(failures)} cells failed, the first: {failures[0]['key']}: {failures[0]['error'].splitlines()[0]}")
    if left:
        say(f"{left} cells are missing. Run them with: manyhot compare --resume {folder}")
        raise typer.Exit(1)


def _show_tables(statistics: dict[str, Any]) -> None:
    """Print the values of every group, or their means if there are many groups, and the ranks over groups."""
    from manyhot.comparison.statistics import PAPER_METRICS
    from manyhot.comparison.table import at_k_of, mean_rows, rank_rows, value_rows

    groups = statistics["groups"]
    for rule in ("natural", "tuned"):
        tables = [(f"{group}, percent", value_rows(statistics, rule, group)) for group in groups]
        if len(groups) > SHOWN_GROUPS:
            tables = [(f"means over {len(groups)} groups, percent", mean_rows(statistics, rule))]
        if len(groups) > 1:
            tables.append(("average ranks, 1 is best", rank_rows(statistics, rule)))
        for about, rows in tables:
            _show_values(f"{about}, {rule} rule", PAPER_METRICS, rows)
    for group in groups if len(groups) <= SHOWN_GROUPS else ():
        measured = at_k_of(statistics, group)
        if measured:
            rows = value_rows(statistics, "tuned", group, measured)
            _show_values(f"{group}, percent, metrics of the k best labels", measured, rows)


def _show_values(title: str, metrics: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    right = tuple(range(1, 1 + len(metrics)))
    show_text(title, style="bold")
    plain = [[part.replace("**", "").replace(" ± ", "±") for part in row] for row in rows]
    show_table(["", *metrics], plain, right=right, whole=right)


class GridWatch:
    """Progress of the whole grid: a bar on a terminal, elsewhere at most one line every ten seconds."""

    def __init__(self, total: int, *, quiet: bool = False, text: str = "cells") -> None:
        self.total, self.quiet, self.text = total, quiet, text
        self._bar: Bar | None = None
        self._task: Any = None
        self._said = 0.0

    def __enter__(self) -> GridWatch:
        if not self.quiet and messages.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn())
            self._bar = Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=messages, transient=True)
            self._task = self._bar.add_task(self.text, total=self.total)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def count(self, done: int, total: int, about: str = "") -> None:
        """Show that ``done`` of ``total`` are finished."""
        import time

        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=about or self.text)
        elif not self.quiet and (time.monotonic() - self._said > 10 or done == total):
            self._said = time.monotonic()
            say(f"{done} of {total} {self.text}{': ' + about if about else ''}")

    def __call__(self, progress: Progress) -> None:
        """Show that a job has ended."""
        job = progress.job
        about = f"{job.data}/{job.model}/{job.method.name} {progress.seconds:.1f} s"
        if progress.error and not self.quiet:
            say(f"{about}: failed: {progress.error}")
        self.count(progress.done, progress.total, about)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
