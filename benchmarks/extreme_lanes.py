"""Cells of ``extreme_cpu`` side by side, each on cores of its own.

The first waiting cell that the free cores suffice for starts at once. A cell that is not done at the deadline is killed, and
what it said last is kept.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Cell = tuple[Path, str]


@dataclass
class Running:
    """A cell that has been started."""

    cores: list[int]
    process: subprocess.Popen[bytes]
    begun: float


@dataclass
class Lanes:
    """``commands`` are the command lines of the cells, in the order in which they start; ``threads`` the cores of each system
    (2 if not named), of the ``free`` ones; ``seconds`` count from ``started``, for everything."""

    commands: dict[Cell, list[str]]
    threads: dict[str, int]
    seconds: float
    started: float
    free: list[int]
    running: dict[Cell, Running] = field(default_factory=dict)

    def run(self) -> Iterator[dict[str, Any]]:
        """One record for each cell, as it ends."""
        waiting = list(self.commands)
        while waiting or self.running:
            late = time.monotonic() - self.started > self.seconds
            for cell in list(self.running):
                if late or self.running[cell].process.poll() is not None:
                    yield self.ended(cell)
            if late:
                yield from ({"set": folder.name, "system": system, "ended": "not begun"} for folder, system in waiting)
                return
            for cell in list(waiting):
                if self.needs(cell) <= len(self.free):
                    waiting.remove(cell)
                    self.start(cell)
            time.sleep(0.2)

    def needs(self, cell: Cell) -> int:
        """The number of cores of a cell."""
        return self.threads.get(cell[1], 2)

    def start(self, cell: Cell) -> None:
        folder, system = cell
        count = self.needs(cell)
        cores, self.free = self.free[:count], self.free[count:]
        pinned = ["taskset", "-c", ",".join(map(str, cores)), *self.commands[cell]]
        own = {**os.environ, "EXTREME_THREADS": str(count)}
        with (folder / f"{system}.log").open("wb") as log:
            process = subprocess.Popen(pinned, stdout=log, stderr=subprocess.STDOUT, env=own)
        self.running[cell] = Running(cores, process, time.monotonic())

    def ended(self, cell: Cell) -> dict[str, Any]:
        """The record of a cell; kills it if it still runs."""
        (folder, system), own = cell, self.running.pop(cell)
        killed = own.process.poll() is None
        if killed:
            own.process.kill()
        code = own.process.wait()
        self.free += own.cores
        record = {"set": folder.name, "system": system, "cores": own.cores, "wall": round(time.monotonic() - own.begun, 1)}
        if killed or code:
            said = (folder / f"{system}.log").read_bytes().decode(errors="replace").replace("\r", "\n").strip()
            return {**record, "ended": "killed" if killed else f"exit {code}", "said": said[-1500:]}
        return {**record, "ended": "done"}


def free_cores(count: int) -> list[int]:
    """``count`` of this process's cores."""
    cores = sorted(os.sched_getaffinity(0))
    assert count <= len(cores), f"{count} cores were asked for, this process may use {len(cores)}"
    return cores[:count]
