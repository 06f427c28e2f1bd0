"""The batcher: what is computed together, what waits, what is refused."""

import asyncio
import threading

import pytest

from manyhot.serve.batching import Batcher
from manyhot.serve.refusals import Refusal


def run(work):
    return asyncio.run(work)


def make(compute, **more):
    return Batcher(compute, **{"max_rows": 4, "wait": 0.0, "max_waiting": 100, **more})


def test_jobs_that_came_meanwhile_form_the_next_batch_up_to_its_size():
    batches, first = [], threading.Event()

    def compute(contents):
        batches.append(list(contents))
        if len(batches) == 1:
            first.wait(5)
        return [content * 10 for content in contents]

    async def work():
        batcher = make(compute)
        batcher.start()
        tasks = [asyncio.ensure_future(batcher.submit(1, 0, timeout=5))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.ensure_future(batcher.submit(1, n, timeout=5)) for n in range(1, 7)]
        await asyncio.sleep(0.05)
        first.set()
        answers = await asyncio.gather(*tasks)
        await batcher.stop()
        return answers

    assert run(work()) == [0, 10, 20, 30, 40, 50, 60]
    assert batches == [[0], [1, 2, 3, 4], [5, 6]]


def test_a_lone_request_does_not_wait_and_others_are_waited_for():
    sizes = []

    async def work():
        batcher = make(lambda contents: contents, wait=0.2, on_batch=sizes.append)
        batcher.start()
        batcher.expected = 1
        loop = asyncio.get_running_loop()
        started = loop.time()
        await batcher.submit(1, "a", timeout=5)
        alone = loop.time() - started
        batcher.expected = 2
        one = asyncio.ensure_future(batcher.submit(1, "b", timeout=5))
        await asyncio.sleep(0.02)
        await asyncio.gather(one, batcher.submit(1, "c", timeout=5))
        batcher.expected = 9
        started = loop.time()
        await batcher.submit(1, "d", timeout=5)
        bounded = loop.time() - started
        await batcher.stop()
        return alone, bounded

    alone, bounded = run(work())
    assert alone < 0.15
    assert 0.15 < bounded < 2
    assert sizes == [1, 2, 1]


def test_a_job_larger_than_a_batch_is_a_batch_of_its_own():
    sizes = []

    async def work():
        batcher = make(lambda contents: contents, on_batch=sizes.append)
        batcher.start()
        await asyncio.gather(batcher.submit(9, "a", timeout=5), batcher.submit(1, "b", timeout=5))
        await batcher.stop()

    run(work())
    assert sizes == [9, 1]


def test_too_much_in_the_queue_is_429_and_too_slow_is_503():
    hold = threading.Event()

    async def work():
        batcher = make(lambda contents: (hold.wait(5), contents)[1], max_waiting=3)
        batcher.start()
        first = asyncio.ensure_future(batcher.submit(1, "a", timeout=5))
        await asyncio.sleep(0.05)
        waiting = asyncio.ensure_future(batcher.submit(3, "b", timeout=0.1))
        await asyncio.sleep(0.01)
        with pytest.raises(Refusal) as refused:
            await batcher.submit(1, "c", timeout=5)
        assert refused.value.status == 429
        with pytest.raises(Refusal) as refused:
            await waiting
        assert refused.value.status == 503
        hold.set()
        assert await first == "a"
        await batcher.stop()
        with pytest.raises(Refusal) as refused:
            await batcher.submit(1, "d", timeout=5)
        assert refused.value.status == 503
        assert batcher.waiting == 0

    run(work())


def test_a_fault_reaches_those_it_concerns_and_the_batcher_goes_on():
    def compute(contents):
        if "bad" in contents:
            raise RuntimeError("broken")
        return [KeyError("mine") if content == "mine" else content for content in contents]

    async def work():
        batcher = make(compute)
        batcher.start()
        with pytest.raises(RuntimeError, match="broken"):
            await batcher.submit(1, "bad", timeout=5)
        with pytest.raises(KeyError):
            await batcher.submit(1, "mine", timeout=5)
        assert await batcher.submit(1, "good", timeout=5) == "good"
        await batcher.stop()

    run(work())
