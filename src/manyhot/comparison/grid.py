"""The grid run in processes: each takes jobs until none is left, and every finished cell is on disk at once."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from manyhot.comparison.cell import LARGE_STEP, Job, JobRun, TooLargeError, step_work
from manyhot.comparison.plan import Plan
from manyhot.comparison.records import CELLS, Record, add_cells, cell_key, heal, read_cells
from manyhot.comparison.sets import ComparedSet, SetShape, load_set, shape_of

# More processes than this do not make one GPU faster.
GPU_WORKERS = 6
PROBE_STEPS = 3


@dataclass(frozen=True)
class Progress:
    """How far the grid is: cells done of all, the job that just ended, and what went wrong with it, if anything."""

    done: int
    total: int
    job: Job
    seconds: float
    error: str | None = None


class LoadedSets:
    """The sets of a plan, the last few kept in memory."""

    def __init__(self, plan: Plan, most: int = 2) -> None:
        self.files = {each.name: each for each in plan.sets}
        self.plan, self.most = plan, most
        self.kept: dict[str, ComparedSet] = {}

    def get(self, name: str) -> ComparedSet:
        """One of them, read where it is not in memory."""
        if name not in self.kept:
            while len(self.kept) >= self.most:
                self.kept.pop(next(iter(self.kept)))
            self.kept[name] = load_set(self.files[name], range(self.plan.seeds), self.plan.settings)
        return self.kept[name]


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
    """Run the cells that ``folder`` does not have yet, and give all it then has.

    Args:
        plan: what belongs to the grid.
        folder: where ``cells.jsonl`` is; it exists.
        workers: processes; 1 runs everything in this one.
        minutes: start no job after this time; None is until the end.
        first: methods whose jobs go before all others, for a grid that may be cut off.
        shapes: what ``shapes_of`` found, where it was asked before.
        watch: told after every job.

    Returns:
        The records of all cells, failed ones too.
    """
    path = folder / CELLS
    heal(path)
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
        _run_in_processes(plan, queued_by_device(plan, jobs, first, shapes), workers, finished, deadline)
    return read_cells(path)


def device_of(job: Job, plan: Plan, shapes: Mapping[str, SetShape]) -> str:
    """Where a job runs: on a GPU where there is one and the step is large enough for it."""
    wanted = plan.settings.device
    if wanted != "auto":
        return wanted
    large = step_work(job, shapes[job.data], plan.settings) > LARGE_STEP
    return "cuda" if large and torch.cuda.is_available() else "cpu"


def shapes_of(plan: Plan, jobs: Sequence[Job]) -> dict[str, SetShape]:
    """The shapes of the sets that jobs read; a file that cannot be read is an error here, before anything runs."""
    names = {job.data for job in jobs}
    return {files.name: shape_of(files, plan.settings) for files in plan.sets if files.name in names}


def run_job(job: Job, plan: Plan, sets: LoadedSets, device: str) -> list[Record]:
    """The records of a job; those of a failure say why."""
    data = sets.get(job.data)
    place = torch.device(device)
    if place.type == "cuda":
        # What the last job held is for the other processes to take.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(place)
    try:
        return JobRun(job, data, job.seeds, plan.settings, place).run()
    except TooLargeError:
        if len(job.seeds) == 1:
            raise
    alone = [replace(job, seeds=(seed,)) for seed in job.seeds]
    return [record for each in alone for record in JobRun(each, data, each.seeds, plan.settings, place).run()]


def estimate_seconds(plan: Plan, jobs: Sequence[Job], watch: Callable[[int, int], None]) -> float:
    """Seconds all jobs take one after the other if no trial stops early, from a few measured steps of each."""
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
        records, error = _attempt(job, plan, sets, device_of(job, plan, shapes))
        finished(job, records, time.perf_counter() - started, error)


def _attempt(job: Job, plan: Plan, sets: LoadedSets, device: str) -> tuple[list[Record], str | None]:
    try:
        return run_job(job, plan, sets, device), None
    except Exception as error:  # One bad cell must not end the grid: it is recorded, told, and tried again next time.
        text = f"{type(error).__name__}: {error}"
        return failed(job, text + "\n" + traceback.format_exc(limit=-4)), text


def failed(job: Job, text: str) -> list[Record]:
    """Records of a job that could not be run."""
    common = {"version": 1, "data": job.data, "model": job.model, "method": job.method.name, "error": text}
    common |= {"title": job.method.title, "family": job.method.family}
    return [{"key": cell_key(job.data, job.model, job.method.name, s), "seed": s, **common} for s in job.seeds]


def _run_in_processes(
    plan: Plan,
    waiting: dict[str, list[Job]],
    workers: int,
    finished: Callable[..., None],
    deadline: float | None,
) -> None:
    shares = _worker_shares({device: len(part) for device, part in waiting.items()}, workers)
    context = multiprocessing.get_context("spawn")
    running: dict[int, tuple[Any, Any, str, Job | None, float]] = {}

    def start(device: str) -> None:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, plan.to_dict(), device), daemon=True)
        process.start()
        theirs.close()
        running[process.pid or 0] = (process, ours, device, None, 0.0)

    def hand_out(pid: int) -> None:
        process, pipe, device, _, _ = running[pid]
        late = deadline is not None and time.monotonic() > deadline
        if late or not waiting[device]:
            pipe.send(None)
            del running[pid]
            process.join()
            return
        job = waiting[device].pop(0)
        pipe.send((job.data, job.model, job.method.name, job.seeds))
        running[pid] = (process, pipe, device, job, time.perf_counter())

    try:
        for device, count in shares.items():
            for _ in range(count):
                start(device)
        while running:
            ready = wait([each[1] for each in running.values()], timeout=5)
            for pid in [pid for pid, each in running.items() if each[1] in ready]:
                process, pipe, device, job, began = running[pid]
                try:
                    answer = pipe.recv()
                except EOFError:
                    process.join()
                    del running[pid]
                    if job is not None:
                        text = f"the process ended with code {process.exitcode}, killed or out of memory"
                        finished(job, failed(job, text), time.perf_counter() - began, text)
                        start(device)
                    continue
                if job is not None:
                    finished(job, answer[0], time.perf_counter() - began, answer[1])
                    if answer[1] and device == "cuda":
                        # After some errors of a GPU nothing in the process works any more: a fresh one goes on.
                        pipe.send(None)
                        process.join()
                        del running[pid]
                        start(device)
                        continue
                hand_out(pid)
    finally:
        for process, *_ in running.values():
            process.terminate()


def queued_by_device(
    plan: Plan, jobs: Sequence[Job], first: Sequence[str], shapes: Mapping[str, SetShape]
) -> dict[str, list[Job]]:
    """Jobs for each device: methods of ``first``, then the others; in both the largest sets first, jobs of a set together so
    that a process reads it once, and its largest jobs first so that processes end together."""

    def work(job: Job) -> float:
        return step_work(job, shapes[job.data], plan.settings)

    of_set = {name: max(work(job) for job in jobs if job.data == name) for name in {job.data for job in jobs}}
    waiting: dict[str, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: (job.method.name not in first, -of_set[job.data], job.data, -work(job))):
        waiting.setdefault(device_of(job, plan, shapes), []).append(job)
    return waiting


def _worker_shares(counts: dict[str, int], workers: int) -> dict[str, int]:
    shares = {device: min(count, workers) for device, count in counts.items()}
    if len(shares) > 1:
        shares["cuda"] = min(counts["cuda"], GPU_WORKERS, max(1, workers // 2))
        shares["cpu"] = min(counts["cpu"], max(1, workers - shares["cuda"]))
    elif "cuda" in shares:
        shares["cuda"] = min(shares["cuda"], GPU_WORKERS)
    return shares


def _work(pipe: Any, plan_data: dict[str, Any], device: str) -> None:
    """A process of the grid: jobs come through the pipe, records go back."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent.sentinel,), daemon=True).start()
    torch.set_num_threads(1)
    plan = Plan.from_dict(plan_data)
    methods = {method.name: method for method in plan.methods}
    sets = LoadedSets(plan)
    pipe.send(None)
    while (given := pipe.recv()) is not None:
        data, model, method, seeds = given
        pipe.send(_attempt(Job(data, model, methods[method], tuple(seeds)), plan, sets, device))


def _leave_with(sentinel: Any) -> None:
    """End this process when the one that started it is gone, whatever it is doing."""
    wait([sentinel])
    os._exit(1)
