"""Cells of ``extreme_cpu`` side by side, each on cores of its own.

A lane is two cores. The first lane that is free takes the next cell. A cell that is not done at the deadline is killed, and
what it said last is kept.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Cell = tuple[Path, str]


@dataclass
class Lane:
    cores: tuple[int, ...]
    cell: Cell | None = None
    process: subprocess.Popen[bytes] | None = None
    begun: float = 0.0


@dataclass
class Lanes:
    """``commands`` are the command lines of the cells; ``seconds`` count from ``started``, for everything."""

    commands: dict[Cell, list[str]]
    seconds: float
    lanes: list[Lane]
    started: float

    def run(self) -> Iterator[dict[str, Any]]:
        """One record for each cell, as it ends."""
        waiting = list(self.commands)
        while waiting or any(lane.process for lane in self.lanes):
            late = time.monotonic() - self.started > self.seconds
            for lane in self.lanes:
                if lane.process and (late or lane.process.poll() is not None):
                    yield self.ended(lane, late)
                if not lane.process and waiting and not late:
                    self.start(lane, waiting.pop(0))
            if late:
                yield from ({"set": folder.name, "system": system, "ended": "not begun"} for folder, system in waiting)
                return
            time.sleep(0.2)

    def start(self, lane: Lane, cell: Cell) -> None:
        folder, system = cell
        pinned = ["taskset", "-c", ",".join(map(str, lane.cores)), *self.commands[cell]]
        with (folder / f"{system}.log").open("wb") as log:
            lane.process = subprocess.Popen(pinned, stdout=log, stderr=subprocess.STDOUT)
        lane.cell, lane.begun = cell, time.monotonic()

    def ended(self, lane: Lane, late: bool) -> dict[str, Any]:
        assert lane.process
        assert lane.cell
        folder, system = lane.cell
        killed = late and lane.process.poll() is None
        if killed:
            lane.process.kill()
        code = lane.process.wait()
        lane.process = None
        record = {"set": folder.name, "system": system, "cores": lane.cores, "wall": round(time.monotonic() - lane.begun, 1)}
        if killed or code:
            said = (folder / f"{system}.log").read_bytes().decode(errors="replace").replace("\r", "\n").strip()
            return {**record, "ended": "killed" if killed else f"exit {code}", "said": said[-1500:]}
        return {**record, "ended": "done"}


def lanes_of(count: int) -> list[Lane]:
    """``count`` lanes of two of this process's cores each."""
    cores = sorted(os.sched_getaffinity(0))
    assert 2 * count <= len(cores), f"{count} lanes need {2 * count} cores, there are {len(cores)}"
    return [Lane((cores[2 * at], cores[2 * at + 1])) for at in range(count)]
