"""All missing cells of the told page, single methods and told, in one pool: ``python -m benchmarks.told_grid``.

    python -m benchmarks.told_grid --data FOLDER --out CELLS --done FILE... --jobs 14 --gpu-jobs 2 --seconds 400
    python -m benchmarks.told_grid --merge FILE... --told TOLD --others OTHERS       # the cells of several runs, for the page

A cell of a single method is that of ``benchmarks.compare_groups``, a told one that of ``benchmarks.told_metric``, which is run
in parts, one for each training. Sets are read once, before the processes are forked. Cells are started in the order of
seeds, so that groups end with the same seeds; among those of a seed the longest come first, and one that would not end in time
is passed over. Each finished cell is a line of CELLS; a cell that is in CELLS or in a file of ``--done`` is not run again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from benchmarks import told_metric
from benchmarks.compare_groups import TABULAR, find_sets
from benchmarks.told_metric import LARGE, TOLD, parts_of
from manyhot.comparison.attempt import LoadedSets, attempt
from manyhot.comparison.job import Job
from manyhot.comparison.methods import Method, parse_methods
from manyhot.comparison.plan import Plan
from manyhot.comparison.records import cell_key
from manyhot.comparison.settings import CompareSettings
from manyhot.comparison.statistics import PAPER_METRICS

METHODS = "zlpr,bce,focal,dice1,dice2,lsep,powerset,zlpr+pos_weight=auto"
BODIES, SEEDS = ("linear", "mlp"), 5
# Seconds of a seed on one core for the order of cells alone, as measured: ZLPR and the like, LSEP, label powerset.
SECONDS = {
    "medical/linear": (6, 6, 8),
    "medical/mlp": (9, 9, 9),
    "cal500/linear": (2, 10, 2),
    "cal500/mlp": (3, 12, 3),
    "enron/linear": (6, 6, 30),
    "enron/mlp": (11, 11, 15),
    "corel5k/linear": (35, 130, 150),
    "corel5k/mlp": (30, 120, 80),
    "bibtex/linear": (35, 120, 400),
    "bibtex/mlp": (30, 110, 65),
    "delicious/linear": (110, 250, 1200),
    "delicious/mlp": (100, 210, 520),
}
# The same for a told cell, and for its part for whole sets.
TOLD_SECONDS = {
    "enron/linear": (4, 2),
    "enron/mlp": (30, 12),
    "corel5k/linear": (40, 20),
    "corel5k/mlp": (45, 30),
    "bibtex/linear": (35, 20),
    "bibtex/mlp": (130, 60),
    "delicious/linear": (90, 300),
    "delicious/mlp": (270, 700),
}
USUAL_SECONDS, SLOWER = 3, 1.3
# A told part that takes longer on a core is trained on a GPU, if there is one.
LONGEST = 500
Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Seeds of a single method, or some metrics of one told seed.

    Args:
        group: the set and the body.
        seeds: the seeds.
        method: the single method; None: told.
        metrics: of the part of a told cell.
        stage: tasks of a lower stage come first.
    """

    group: tuple[str, str]
    seeds: tuple[int, ...]
    method: Method | None = None
    metrics: tuple[str, ...] = ()
    stage: int = 0

    @property
    def seconds(self) -> float:
        """About how long it takes on one core."""
        name = "/".join(self.group)
        if self.method is None:
            whole, sets = TOLD_SECONDS.get(name, (USUAL_SECONDS, USUAL_SECONDS))
            return SLOWER * (sets if "SubACC" in self.metrics else whole / 3)
        usual, lsep, powerset = SECONDS.get(name, (USUAL_SECONDS,) * 3)
        return SLOWER * len(self.seeds) * {"lsep": lsep, "powerset": powerset}.get(self.method.name, usual)

    @property
    def heavy(self) -> float:
        """The work for a GPU, which takes all seeds of a single method at once."""
        if self.method is None:
            return 1 if self.seconds > LONGEST else 0
        return SECONDS.get("/".join(self.group), (0, 0, 0))[2 if self.method and self.method.name == "powerset" else 0]

    def text(self) -> str:
        what = self.method.name if self.method else TOLD + " " + ",".join(self.metrics)
        return f"{'/'.join(self.group)} {what} {self.seeds}"


def cells_of(task: Task) -> list[tuple[Any, ...]]:
    """What a finished task leaves in the file, as ``(set, body, method, seed, metric)``."""
    name = task.method.name if task.method else TOLD
    return [(*task.group, name, seed, metric) for seed in task.seeds for metric in task.metrics or ("",)]


def done_cells(paths: list[Path]) -> set[tuple[Any, ...]]:
    """The cells of files that are there already."""
    found: set[tuple[Any, ...]] = set()
    for cell in read_lines(paths):
        about = (cell["data"], cell["model"], cell["method"], cell["seed"])
        found |= {(*about, metric) for metric in (cell["metrics"]["tuned"] if cell["method"] == TOLD else ("",))}
    return found


def read_lines(paths: list[Path]) -> Iterator[Record]:
    """The finished cells of files; the last line of a killed run may be cut."""
    for line in (line for path in paths if path.exists() for line in path.read_text().splitlines()):
        try:
            cell = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "metrics" in cell:
            yield cell


def planned(plan: Plan, done: set[tuple[Any, ...]], *, told_only: bool, together: bool) -> list[Task]:
    """The tasks that are missing, first those that run first; told ones come last, or ``together`` with the others, whose
    most work a GPU does."""
    tasks = []
    for files in plan.sets:
        for body in plan.models:
            group = (files.name, body)
            for method in () if told_only else plan.methods:
                alone = files.name in LARGE
                seeds = [(s,) for s in range(plan.seeds)] if alone else [tuple(range(plan.seeds))]
                tasks += [Task(group, each, method) for each in seeds]
            for seed in range(plan.seeds):
                tasks += [Task(group, (seed,), None, part, 1) for part in parts_of(PAPER_METRICS, body)]
    left = []
    for task in tasks:
        missing = [cell for cell in cells_of(task) if cell not in done]
        if missing and task.method:
            left.append(replace(task, seeds=tuple(cell[3] for cell in missing)))
        elif missing:
            left.append(replace(task, metrics=tuple(cell[4] for cell in missing)))
    return sorted(left, key=lambda task: (0 if together else task.stage, task.seeds[0], -task.seconds))


def run_task(task: Task, plan: Plan, sets: LoadedSets, folder: str, device: str) -> list[Record]:
    """The lines of a task."""
    if task.method is None:
        return [told_metric.run(*task.group, task.seeds[0], folder, task.metrics, device)]
    records, error = attempt(Job(*task.group, task.method, task.seeds), plan, sets, device)
    if error:
        raise RuntimeError(error)
    return records


def work(pipe: Any, plan: Plan, sets: LoadedSets, folder: str, device: str) -> None:
    """A process: it takes tasks until there is none."""
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.set_num_threads(1)
    while (task := pipe.recv()) is not None:
        try:
            pipe.send((run_task(task, plan, sets, folder, device), ""))
        except Exception as error:  # One bad cell must not end the others.
            pipe.send(([], f"{type(error).__name__}: {error} {traceback.format_exc(limit=-3)}"[:600]))


class Pool:
    """Processes with their tasks, on CPU cores and on a GPU."""

    def __init__(self, plan: Plan, tasks: list[Task], folder: str, ends: float, counts: dict[str, int]) -> None:
        self.tasks, self.ends, self.counts = tasks, ends, counts
        # What failed on the GPU, and waits for a core.
        self.failed: list[Task] = []
        sets = LoadedSets(plan, most=len(TABULAR))
        for name in {task.group[0] for task in tasks if task.method}:
            sets.get(name)
        self.workers: dict[Any, tuple[Any, str, Task | None, float]] = {}
        for device, count in counts.items():
            # A process that uses a GPU must not be forked; it reads the sets by itself.
            context = multiprocessing.get_context("fork" if device == "cpu" else "spawn")
            loaded = sets if device == "cpu" else LoadedSets(plan, most=len(TABULAR))
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=work, args=(theirs, plan, loaded, folder, device), daemon=True)
                process.start()
                self.workers[ours] = (process, device, None, 0.0)

    def next_task(self, device: str) -> Task | None:
        """The next task of a device; one for a GPU joins the seeds that wait."""
        left = self.ends - time.monotonic()
        if device == "cpu":
            waiting = [t for t in self.tasks if not (self.counts.get("cuda") and t.heavy)]
            # What a GPU would take comes last.
            found = next((t for t in (*waiting, *self.failed, *self.tasks) if t.seconds < left), None)
            if found:
                (self.tasks if found in self.tasks else self.failed).remove(found)
            return found
        heavy = max((t for t in self.tasks if t.heavy), key=lambda t: t.heavy, default=None)
        if heavy is None:
            return None
        same = [heavy]
        if heavy.method:
            same = [t for t in self.tasks if (t.group, t.method) == (heavy.group, heavy.method)]
        self.tasks = [t for t in self.tasks if t not in same]
        return replace(heavy, seeds=tuple(sorted(seed for t in same for seed in t.seeds)))

    def hand_out(self, pipe: Any) -> None:
        process, device, _, _ = self.workers[pipe]
        task = self.next_task(device)
        self.workers[pipe] = (process, device, task, time.monotonic())
        if task is None:
            del self.workers[pipe]
        pipe.send(task)

    def run(self, out: Path) -> None:
        """Run until all is done, or the time is over; what runs then is killed."""
        processes = [worker[0] for worker in self.workers.values()]
        for pipe in list(self.workers):
            self.hand_out(pipe)
        with out.open("a") as file:
            while self.workers and time.monotonic() < self.ends:
                for pipe in wait(list(self.workers), timeout=max(0.1, min(5.0, self.ends - time.monotonic()))):
                    self._receive(pipe, file)
        for _, _, task, _ in self.workers.values():
            print("  cut off:", task.text() if task else "", flush=True)
        for process in processes:
            process.kill()

    def _receive(self, pipe: Any, file: Any) -> None:
        _, device, task, began = self.workers[pipe]
        try:
            records, error = pipe.recv()
        except EOFError:
            print("  died:", task.text() if task else "", flush=True)
            del self.workers[pipe]
            return
        file.writelines(json.dumps(record) + "\n" for record in records)
        file.flush()
        if error and device == "cuda" and task:
            self.failed += [replace(task, seeds=(seed,)) for seed in task.seeds]
        took, left = time.monotonic() - began, self.ends - time.monotonic()
        expected = f"{task.seconds:.0f}" if task else ""
        print(f"{left:5.0f} s left, {device} {took:.0f} s ({expected})", task.text() if task else "", error, flush=True)
        self.hand_out(pipe)


def merge(paths: list[Path], told: Path, others: Path) -> None:
    """Write told cells, their parts put together, and the cells of single methods; a later line replaces an earlier one."""
    whole: dict[tuple[Any, ...], Record] = {}
    for cell in read_lines(paths):
        key = (cell["data"], cell["model"], cell["method"], cell["seed"])
        if cell["method"] == TOLD and key in whole:
            old = whole[key]
            metrics = {rule: {**old["metrics"][rule], **cell["metrics"][rule]} for rule in ("natural", "tuned")}
            seconds = round(old["cost"]["seconds"] + cell["cost"]["seconds"], 2)
            cell = {**cell, "metrics": metrics, "why": {**old["why"], **cell["why"]}, "cost": {"seconds": seconds}}
        whole[key] = cell
    for path, wanted in ((told, True), (others, False)):
        own = [cell for cell in whole.values() if (cell["method"] == TOLD) == wanted]
        path.write_text("".join(json.dumps(cell if wanted else short(cell)) + "\n" for cell in own))


def short(cell: Record) -> Record:
    """The cell of a single method without what the page does not show."""
    metrics = {rule: {name: round(own[name], 6) for name in PAPER_METRICS} for rule, own in cell["metrics"].items()}
    kept = ("data", "model", "method", "seed", "title", "family")
    cost = {"seconds": cell["cost"]["seconds"], "device": cell["cost"].get("device", "cpu")}
    about = {"num_labels": cell["facts"]["num_labels"]}
    return {"key": cell_key(*(cell[name] for name in kept[:4])), **{name: cell[name] for name in kept}} | {
        "facts": about,
        "cost": cost,
        "metrics": metrics,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--done", type=Path, nargs="*", default=[])
    parser.add_argument("--sets", default=",".join(TABULAR))
    parser.add_argument("--losses", default=METHODS)
    parser.add_argument("--told-only", action="store_true", help="no single methods")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--gpu-jobs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="end after this many, with what is finished")
    parser.add_argument("--merge", type=Path, nargs="+")
    parser.add_argument("--told", type=Path)
    parser.add_argument("--others", type=Path)
    given = parser.parse_args()
    if given.merge:
        merge(given.merge, given.told, given.others)
        return
    ends = time.monotonic() + given.seconds
    torch.set_num_threads(1)
    sets = tuple(find_sets(Path(given.data), given.sets.split(",")))
    plan = Plan(sets, BODIES, tuple(parse_methods([given.losses])), SEEDS, CompareSettings(device="cpu"))
    tasks = planned(plan, done_cells([*given.done, given.out]), told_only=given.told_only, together=given.gpu_jobs > 0)
    print(f"{len(tasks)} tasks of about {sum(task.seconds for task in tasks):.0f} s on one core", flush=True)
    counts = {"cpu": given.jobs} | ({"cuda": given.gpu_jobs} if given.gpu_jobs else {})
    Pool(plan, tasks, str(given.data), ends, counts).run(given.out)
    print("done", flush=True)


if __name__ == "__main__":
    main()
