"""Run the grid in one process or several; a cell is saved as soon as it finishes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from manyhot.comparison.attempt import LoadedSets, attempt
from manyhot.comparison.cell import JobRun
from manyhot.comparison.job import LARGE_STEP, Job, step_work
from manyhot.comparison.plan import Plan
from manyhot.comparison.records import CELLS, Record, add_cells, read_cells, remove_incomplete_line
from manyhot.comparison.sets import SetShape, shape_of
from manyhot.comparison.workers import run_in_processes

PROBE_STEPS = 3


@dataclass(frozen=True)
class Progress:
    """Progress of the grid: finished cells, all cells, the job that just ended, and its error, if any."""

    done: int
    total: int
    job: Job
    seconds: float
    error: str | None = None


def run_grid(
    plan: Plan,
    folder: Path,
    *,
    workers: int,
    minutes: float | None = None,
    first: Sequence[str] = (),
    shapes: Mapping[str, SetShape] | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> list[Record]:
    """Run the cells that are missing in ``folder``, and return all cells.

    Args:
        plan: the plan of the grid.
        folder: the existing folder of ``cells.jsonl``.
        workers: the number of processes; 1 runs everything in this one.
        minutes: start no job after this time; None for no limit.
        first: methods whose jobs run before all others; useful if the grid may not finish.
        shapes: the result of ``shapes_of``, if it is known.
        watch: called after every job.

    Returns:
        The records of all cells, including failed ones.
    """
    path = folder / CELLS
    remove_incomplete_line(path)
    cells = read_cells(path)
    jobs = plan.missing(cells)
    counted = plan.num_cells - sum(len(job.seeds) for job in jobs)
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    shapes = shapes_of(plan, jobs) if shapes is None else shapes

    def finished(job: Job, records: Sequence[Record], seconds: float, error: str | None) -> None:
        nonlocal counted
        add_cells(path, records)
        counted += len(job.seeds)
        if watch is not None:
            watch(Progress(counted, plan.num_cells, job, seconds, error))

    if workers == 1 or len(jobs) == 1:
        _run_here(plan, sorted(jobs, key=lambda job: job.method.name not in first), shapes, finished, deadline)
    elif jobs:
        run_in_processes(plan, queued_by_device(plan, jobs, first, shapes), workers, finished, deadline)
    return read_cells(path)


def device_of(job: Job, plan: Plan, shapes: Mapping[str, SetShape]) -> str:
    """The device of a job: a GPU if there is one and the step is large enough."""
    wanted = plan.settings.device
    if wanted != "auto":
        return wanted
    large = step_work(job, shapes[job.data], plan.settings) > LARGE_STEP
    return "cuda" if large and torch.cuda.is_available() else "cpu"


def shapes_of(plan: Plan, jobs: Sequence[Job]) -> dict[str, SetShape]:
    """The shapes of the data sets of the jobs; an unreadable file is an error here, before anything runs."""
    names = {job.data for job in jobs}
    return {files.name: shape_of(files, plan.settings) for files in plan.sets if files.name in names}


def estimate_seconds(plan: Plan, jobs: Sequence[Job], watch: Callable[[int, int], None]) -> float:
    """Estimate the seconds of all jobs in one process without early stopping, from a few measured steps of each job."""
    sets, shapes, total = LoadedSets(plan), shapes_of(plan, jobs), 0.0
    for number, job in enumerate(jobs, start=1):
        data = sets.get(job.data)
        run = JobRun(job, data, job.seeds, plan.settings, torch.device(device_of(job, plan, shapes)))
        run.train_epoch(1)
        before = run.training_seconds
        run.train_epoch(min(PROBE_STEPS, run.steps_per_epoch))
        step = (run.training_seconds - before) / min(PROBE_STEPS, run.steps_per_epoch)
        started = time.perf_counter()
        run.validate(1, torch.ones(len(job.seeds), len(run.trials), dtype=torch.bool))
        look = time.perf_counter() - started
        total += run.epochs * (run.steps_per_epoch * step + look)
        watch(number, len(jobs))
    return total


def _run_here(
    plan: Plan,
    jobs: Sequence[Job],
    shapes: Mapping[str, SetShape],
    finished: Callable[..., None],
    deadline: float | None,
) -> None:
    sets = LoadedSets(plan)
    for job in jobs:
        if deadline is not None and time.monotonic() > deadline:
            return
        started = time.perf_counter()
        records, error = attempt(job, plan, sets, device_of(job, plan, shapes))
        finished(job, records, time.perf_counter() - started, error)


def queued_by_device(
    plan: Plan, jobs: Sequence[Job], first: Sequence[str], shapes: Mapping[str, SetShape]
) -> dict[str, list[Job]]:
    """The jobs of each device in order: first those of the methods in ``first``, then the others. The largest data sets come
    first. Jobs of a data set are adjacent, so that a process reads it once; its largest jobs come first, so that all processes
    end at about the same time.
    """

    def work(job: Job) -> float:
        return step_work(job, shapes[job.data], plan.settings)

    of_set = {name: max(work(job) for job in jobs if job.data == name) for name in {job.data for job in jobs}}
    waiting: dict[str, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: (job.method.name not in first, -of_set[job.data], job.data, -work(job))):
        waiting.setdefault(device_of(job, plan, shapes), []).append(job)
    return waiting
