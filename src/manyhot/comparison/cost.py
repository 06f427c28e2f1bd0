"""The cost of a method: the memory of a training step and the time of a prediction."""

from __future__ import annotations

import ctypes
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

# Writing 5 resets the high-water mark of resident memory in `STATUS` (Linux).
RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
REPEATS = 3


def memory_of(step: Callable[[], None], device: torch.device) -> int | None:
    """Peak memory of ``step`` in bytes, above what was allocated before; None if it cannot be measured. On a GPU it is measured
    by torch's allocator, on a CPU as the resident memory of the process (Linux only).
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if not _release_free_memory():
        step()
        return None
    try:
        RESET.write_text("5")
        before = _resident("VmRSS")
        step()
        return max(_resident("VmHWM") - before, 0)
    except (OSError, ValueError):
        return None


def seconds_of(predict: Callable[[], object], device: torch.device) -> float:
    """The time of the fastest of a few runs."""
    found = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        predict()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - started)
    return min(found)


def _release_free_memory() -> bool:
    """Have glibc return freed pages to the system: otherwise a step would reuse them and appear to need no memory."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return False
    return True


def _resident(name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+) kB$", STATUS.read_text(), flags=re.MULTILINE)
    if found is None:
        raise ValueError(f"{STATUS} has no {name}")
    return 1024 * int(found[1])
