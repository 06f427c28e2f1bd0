"""The CPU cores that this process may use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """How many: those that a container or ``taskset`` leaves to the process, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
