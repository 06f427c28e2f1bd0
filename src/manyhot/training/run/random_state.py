"""Seeds a block and restores the caller's random state and thread count afterwards."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

# Torch has one generator and one thread count for the whole process: two blocks at the same time would disturb each other's
# random numbers. Trainings in several threads therefore take turns.
_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def seeded(seed: int, threads: int) -> Iterator[None]:
    """Run a block with torch's generators at ``seed`` and, unless it is 0, with ``threads`` CPU threads.

    Dropout and initial weights draw from these generators. Their state and the thread count are restored afterwards. Blocks
    in several threads of a process run one after the other, so that each draws the same numbers as it does alone.

    Example:
        >>> before = torch.get_rng_state()
        >>> with seeded(0, 0):
        ...     first = torch.rand(2)
        >>> bool(torch.equal(before, torch.get_rng_state()))
        True
    """
    with _ONE_AT_A_TIME:
        before = torch.get_num_threads()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            if threads:
                torch.set_num_threads(threads)
            try:
                yield
            finally:
                torch.set_num_threads(before)
