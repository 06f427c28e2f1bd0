"""Run one job. A failure is recorded and does not end the grid."""

from __future__ import annotations

import traceback
from dataclasses import replace

import torch

from manyhot.comparison.cell import JobRun
from manyhot.comparison.job import Job, TooLargeError
from manyhot.comparison.plan import Plan
from manyhot.comparison.records import Record, cell_key
from manyhot.comparison.sets import ComparedSet, load_set


class LoadedSets:
    """The data sets of a plan; the last few are cached in memory."""

    def __init__(self, plan: Plan, most: int = 2) -> None:
        self.files = {each.name: each for each in plan.sets}
        self.plan, self.most = plan, most
        self.kept: dict[str, ComparedSet] = {}

    def get(self, name: str) -> ComparedSet:
        """One data set; read from its files if it is not cached."""
        if name not in self.kept:
            while len(self.kept) >= self.most:
                self.kept.pop(next(iter(self.kept)))
            self.kept[name] = load_set(self.files[name], range(self.plan.seeds), self.plan.settings)
        return self.kept[name]


def run_job(job: Job, plan: Plan, sets: LoadedSets, device: str) -> list[Record]:
    """Run a job and return its records. If the seeds do not fit into memory together, they run one after the other."""
    data = sets.get(job.data)
    place = torch.device(device)
    if place.type == "cuda":
        # Release the memory of the last job for the other processes.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(place)
    try:
        return JobRun(job, data, job.seeds, plan.settings, place).run()
    except TooLargeError:
        if len(job.seeds) == 1:
            raise
    alone = [replace(job, seeds=(seed,)) for seed in job.seeds]
    return [record for each in alone for record in JobRun(each, data, each.seeds, plan.settings, place).run()]


def attempt(job: Job, plan: Plan, sets: LoadedSets, device: str) -> tuple[list[Record], str | None]:
    """Run a job; returns its records, and its error or None. The records of a failed job hold the error."""
    try:
        return run_job(job, plan, sets, device), None
    except Exception as error:  # One failed cell must not end the grid: it is recorded, reported, and tried again next time.
        text = f"{type(error).__name__}: {error}"
        return failed(job, text + "\n" + traceback.format_exc(limit=-4)), text


def failed(job: Job, text: str) -> list[Record]:
    """Records of a job that could not be run."""
    common = {"version": 1, "data": job.data, "model": job.model, "method": job.method.name, "error": text}
    common |= {"title": job.method.title, "family": job.method.family}
    return [{"key": cell_key(job.data, job.model, job.method.name, s), "seed": s, **common} for s in job.seeds]
