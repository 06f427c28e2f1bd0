"""The CPU cores that this process may use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The number of CPU cores available to this process; a container or ``taskset`` may limit it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
