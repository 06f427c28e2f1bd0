"""The metrics of a server in the text format of Prometheus, shared by all its workers."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import pairwise
from typing import IO, Any

import numpy as np

PATHS = ("/predict", "/explain", "/health", "/metrics", "/", "other")
STATUSES = (200, 400, 403, 404, 405, 408, 413, 421, 422, 429, 500, 503)
# Upper bounds of the histogram's buckets, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, float("inf"))
SINGLE = ("rows", "batches", "batch_rows", "reloads", "reload_failures", "waiting", "open")
SLOTS = len(PATHS) * (len(STATUSES) + 1) + len(PATHS) * (len(BUCKETS) + 1) + len(SINGLE)
_HELP = {
    "rows": ("counter", "Rows in successful responses."),
    "batches": ("counter", "Batches that were computed."),
    "batch_rows": ("counter", "Rows in these batches."),
    "reloads": ("counter", "Models loaded after the first."),
    "reload_failures": ("counter", "New models that could not be loaded."),
    "waiting": ("gauge", "Rows in the queue."),
    "open": ("gauge", "Requests in progress."),
}


class Counters:
    """Counters of all workers; each worker writes its own row and reads all rows.

    Args:
        workers: how many.
        own: the row of this worker.
        file: a file of ``size(workers)`` bytes that the workers share; None keeps the numbers in this process.

    Example:
        >>> counters = Counters()
        >>> counters.request("/predict", 200, 0.004)
        >>> counters.add("rows", 3)
        >>> 'manyhot_requests_total{path="/predict",status="200"} 1' in counters.text()
        True
        >>> 'manyhot_rows_total 3' in counters.text()
        True
    """

    def __init__(self, workers: int = 1, own: int = 0, file: IO[bytes] | None = None) -> None:
        store: Any = bytearray(self.size(workers)) if file is None else mmap.mmap(file.fileno(), self.size(workers))
        self.table = np.frombuffer(store, dtype=np.float64).reshape(workers, SLOTS)
        self.own = self.table[own]
        edges = np.cumsum([0, len(PATHS) * (len(STATUSES) + 1), len(PATHS) * (len(BUCKETS) + 1), len(SINGLE)])
        self._answers, self._seconds, self._single = (slice(a, b) for a, b in pairwise(edges.tolist()))
        self.set("waiting", 0)
        self.set("open", 0)

    @staticmethod
    def size(workers: int) -> int:
        """Bytes of the shared file."""
        return workers * SLOTS * 8

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a completed request; a path or status that is not listed counts as other."""
        place = PATHS.index(path) if path in PATHS else len(PATHS) - 1
        column = STATUSES.index(status) if status in STATUSES else len(STATUSES)
        self.own[self._answers][place * (len(STATUSES) + 1) + column] += 1
        own = self.own[self._seconds][place * (len(BUCKETS) + 1) :][: len(BUCKETS) + 1]
        own[next(i for i, end in enumerate(BUCKETS) if seconds <= end)] += 1
        own[-1] += seconds

    def add(self, name: str, amount: float) -> None:
        """Add to a single number."""
        self.own[self._single][SINGLE.index(name)] += amount

    def set(self, name: str, value: float) -> None:
        """Set a single number."""
        self.own[self._single][SINGLE.index(name)] = value

    def text(self) -> str:
        """The sums over all workers, in the text format of Prometheus."""
        total = self.table.sum(axis=0)
        return "\n".join(self._lines(total)) + "\n"

    def _lines(self, total: np.ndarray[Any, Any]) -> Iterator[str]:
        yield "# HELP manyhot_requests_total Requests by path and status."
        yield "# TYPE manyhot_requests_total counter"
        answers = total[self._answers].reshape(len(PATHS), -1)
        for path, row in zip(PATHS, answers, strict=True):
            for status, count in zip((*STATUSES, "other"), row, strict=True):
                if count:
                    yield f'manyhot_requests_total{{path="{path}",status="{status}"}} {count:.0f}'
        yield "# HELP manyhot_request_seconds Seconds from the first byte of a request to the last byte of its response."
        yield "# TYPE manyhot_request_seconds histogram"
        for path, row in zip(PATHS, total[self._seconds].reshape(len(PATHS), -1), strict=True):
            if not row[:-1].any():
                continue
            below = 0.0
            for end, count in zip(BUCKETS, row[:-1], strict=True):
                below += count
                edge = "+Inf" if end == float("inf") else f"{end:g}"
                yield f'manyhot_request_seconds_bucket{{path="{path}",le="{edge}"}} {below:.0f}'
            yield f'manyhot_request_seconds_sum{{path="{path}"}} {row[-1]:.6f}'
            yield f'manyhot_request_seconds_count{{path="{path}"}} {below:.0f}'
        for name, value in zip(SINGLE, total[self._single], strict=True):
            kind, text = _HELP[name]
            full = f"manyhot_{name}_total" if kind == "counter" else f"manyhot_{name}"
            yield f"# HELP {full} {text}"
            yield f"# TYPE {full} {kind}"
            yield f"{full} {value:.0f}"
