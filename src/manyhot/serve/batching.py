"""Dynamic batching: requests that arrive while others are computed, or within a bounded wait, are computed together."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from manyhot.serve.refusals import Refusal


@dataclass(eq=False)
class BatchJob:
    """Work for the model.

    Args:
        rows: how many rows it has.
        content: what ``run`` computes.
        answer: the future of the result.
    """

    rows: int
    content: Any
    answer: asyncio.Future[Any]


class Batcher:
    """One worker thread with a queue.

    A job is computed at once if no other is in progress. It waits for others, at most ``wait`` seconds, only while there are
    requests that have been received and not yet queued. Jobs that arrive while a batch is computed form the next one.

    Args:
        run: computes the contents of some jobs in the thread; returns one result, or an exception, for each.
        max_rows: largest number of rows in a batch; a larger job is a batch of its own.
        wait: longest time in seconds that a job waits for others.
        max_waiting: largest number of rows in the queue; further jobs are refused with 429.
        on_batch: called with the number of rows of each batch.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Any]], Sequence[Any]],
        *,
        max_rows: int,
        wait: float,
        max_waiting: int,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.run, self.max_rows, self.wait, self.max_waiting, self.on_batch = run, max_rows, wait, max_waiting, on_batch
        self.waiting = 0
        self.expected = 0
        self._queue: deque[BatchJob] = deque()
        self._filled = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Start working, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """Finish the queued jobs, then stop."""
        self._stopping = True
        self._filled.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown(wait=True)

    async def submit(self, rows: int, content: Any, *, timeout: float) -> Any:
        """The result for ``content``.

        Raises:
            Refusal: 429 if the queue is full, 503 after the timeout or if the server is stopping.
        """
        if self._stopping:
            raise Refusal(503, "the server is stopping. Send the request to another server.")
        if self.waiting + rows > self.max_waiting and self.waiting:
            raise Refusal(
                429, f"the queue is full: {self.waiting:,} rows wait, at most {self.max_waiting:,} may. Try again later."
            )
        job = BatchJob(rows, content, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self.waiting += rows
        self._filled.set()
        try:
            return await asyncio.wait_for(job.answer, timeout)
        except TimeoutError:
            raise Refusal(
                503, f"the request timed out after {timeout:g} seconds. Send fewer rows, or try again later."
            ) from None

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue:
                if self._stopping:
                    return
                self._filled.clear()
                await self._filled.wait()
            batch = await self._gather(loop)
            # Skip jobs whose client has disconnected or timed out.
            batch = [job for job in batch if not job.answer.done()]
            if not batch:
                continue
            self.on_batch(sum(job.rows for job in batch))
            try:
                found = await loop.run_in_executor(self._thread, self.run, [job.content for job in batch])
            except Exception as error:
                found = [error] * len(batch)
            for job, result in zip(batch, found, strict=True):
                if job.answer.done():
                    continue
                if isinstance(result, BaseException):
                    job.answer.set_exception(result)
                else:
                    job.answer.set_result(result)

    async def _gather(self, loop: asyncio.AbstractEventLoop) -> list[BatchJob]:
        batch: list[BatchJob] = []
        rows, deadline = 0, loop.time() + self.wait
        while True:
            while self._queue and (not batch or rows + self._queue[0].rows <= self.max_rows):
                job = self._queue.popleft()
                self.waiting -= job.rows
                rows += job.rows
                batch.append(job)
            left = deadline - loop.time()
            if self._queue or rows >= self.max_rows or left <= 0 or self.expected <= len(batch):
                return batch
            self._filled.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._filled.wait(), left)
