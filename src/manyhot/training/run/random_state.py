"""Draws that do not show outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def random_state_kept(seed: int, threads: int) -> Iterator[None]:
    """Torch's own generator, which dropout and initial weights draw from, is as before afterwards; so are its threads."""
    before = torch.get_num_threads()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if threads:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
