"""The processes of a grid: each takes jobs for its device until none is left."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

import torch

from manyhot.comparison.attempt import LoadedSets, attempt, failed
from manyhot.comparison.job import Job
from manyhot.comparison.plan import Plan
from manyhot.comparison.records import Record

# More processes than this do not speed up one GPU.
GPU_WORKERS = 6
Finished = Callable[[Job, list[Record], float, str | None], None]


def run_in_processes(
    plan: Plan,
    waiting: dict[str, list[Job]],
    workers: int,
    finished: Finished,
    deadline: float | None,
) -> None:
    """Run the waiting jobs of each device in ``workers`` processes; no job starts after the deadline."""
    pool = _Pool(plan, waiting, finished, deadline)
    try:
        for device, count in _worker_shares({device: len(part) for device, part in waiting.items()}, workers).items():
            for _ in range(count):
                pool.start(device)
        while pool.running:
            ready = wait([worker.pipe for worker in pool.running.values()], timeout=5)
            for pid in [pid for pid, worker in pool.running.items() if worker.pipe in ready]:
                pool.receive(pid)
    finally:
        for worker in pool.running.values():
            worker.process.terminate()


@dataclass
class _Worker:
    """A process, its pipe, its device and its current job."""

    process: Any
    pipe: Any
    device: str
    job: Job | None = None
    began: float = 0.0


class _Pool:
    """The running processes by their ids, and the jobs that wait."""

    def __init__(self, plan: Plan, waiting: dict[str, list[Job]], finished: Finished, deadline: float | None) -> None:
        self.plan, self.waiting, self.finished, self.deadline = plan, waiting, finished, deadline
        self.context = multiprocessing.get_context("spawn")
        self.running: dict[int, _Worker] = {}

    def start(self, device: str) -> None:
        """Start a process, which requests its first job."""
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_work, args=(theirs, self.plan.to_dict(), device), daemon=True)
        process.start()
        theirs.close()
        self.running[process.pid or 0] = _Worker(process, ours, device)

    def receive(self, pid: int) -> None:
        """Receive the result of a process, or record that it died and start another one on its device."""
        worker = self.running[pid]
        try:
            answer = worker.pipe.recv()
        except EOFError:
            worker.process.join()
            del self.running[pid]
            if worker.job is not None:
                text = f"the process ended with code {worker.process.exitcode}; it was killed, or ran out of memory"
                self.finished(worker.job, failed(worker.job, text), time.perf_counter() - worker.began, text)
                self.start(worker.device)
            return
        if worker.job is not None:
            self.finished(worker.job, answer[0], time.perf_counter() - worker.began, answer[1])
            if answer[1] and worker.device == "cuda":
                # After some GPU errors a process is unusable, so a new one replaces it.
                self._end(pid)
                self.start(worker.device)
                return
        self._hand_out(pid)

    def _hand_out(self, pid: int) -> None:
        """Send a process its next job, or end it if none is left."""
        worker = self.running[pid]
        late = self.deadline is not None and time.monotonic() > self.deadline
        if late or not self.waiting[worker.device]:
            self._end(pid)
            return
        job = self.waiting[worker.device].pop(0)
        worker.pipe.send((job.data, job.model, job.method.name, job.seeds))
        worker.job, worker.began = job, time.perf_counter()

    def _end(self, pid: int) -> None:
        worker = self.running.pop(pid)
        worker.pipe.send(None)
        worker.process.join()


def _worker_shares(counts: dict[str, int], workers: int) -> dict[str, int]:
    shares = {device: min(count, workers) for device, count in counts.items()}
    if len(shares) > 1:
        shares["cuda"] = min(counts["cuda"], GPU_WORKERS, max(1, workers // 2))
        shares["cpu"] = min(counts["cpu"], max(1, workers - shares["cuda"]))
    elif "cuda" in shares:
        shares["cuda"] = min(shares["cuda"], GPU_WORKERS)
    return shares


def _work(pipe: Any, plan_data: dict[str, Any], device: str) -> None:
    """A process of the grid: it receives jobs through the pipe and sends records back."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent.sentinel,), daemon=True).start()
    torch.set_num_threads(1)
    plan = Plan.from_dict(plan_data)
    methods = {method.name: method for method in plan.methods}
    sets = LoadedSets(plan)
    pipe.send(None)
    while (given := pipe.recv()) is not None:
        data, model, method, seeds = given
        pipe.send(attempt(Job(data, model, methods[method], tuple(seeds)), plan, sets, device))


def _exit_with_parent(sentinel: Any) -> None:
    """End this process as soon as its parent has ended."""
    wait([sentinel])
    os._exit(1)
