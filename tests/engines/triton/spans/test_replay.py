"""Replayed span losses beside launched ones: the same kernels, addresses and numbers, read from what the driver is given."""

import ctypes
import itertools

import pytest
import torch

from manyhot.labels.spans import SpanLabels
from manyhot.scores.spans import SpanScores

pytest.importorskip("triton", reason="triton is not installed")

from manyhot.engines.span_registry import _listed_cells
from manyhot.engines.triton import reductions
from manyhot.engines.triton.launch import launcher
from manyhot.engines.triton.launch.direct import DirectKernel
from manyhot.engines.triton.spans import engine, plans, replay

STREAM = 7


class Metadata:
    num_warps, shared = 4, 0


class Compiled:
    """Stands for a kernel that Triton compiled."""

    function, metadata = 1234, Metadata


class Driver:
    """Stands for the driver: notes the parameters of every launch, and which tensors had which addresses."""

    def __init__(self):
        self.launches = []

    def kernel(self, start, present, numbers):
        name, count = start.kernel.fn.__name__, sum(present) + sum(not there for there in present) + len(numbers)
        kinds = ["f4x" if isinstance(number, float) else "i4x" for number in numbers]

        def launch(config, _function, params, _extra):
            words = [ctypes.cast(params[place], ctypes.POINTER(ctypes.c_int64))[0] for place in range(count)]
            words[len(present) :] = [word & 0xFFFFFFFF for word in words[len(present) :]]
            self.launches.append((name, config._obj.sizes[0], config._obj.stream, words, len(present)))
            return 0

        return DirectKernel(Compiled, present, kinds, launch)

    def copy(self, target, source, size, stream):
        self.launches.append(("copy", size, stream, [target, source], 2))
        return 0


@pytest.fixture
def driver(monkeypatch):
    found = Driver()

    def start(self, programs, x, others, numbers):
        key, pointers = self._key(x, others)
        if key not in self.compiled:
            present = [True, *[other is not None for other in others]]
            self.compiled[key] = found.kernel(self, present, numbers)
        assert self.compiled[key](programs, STREAM, pointers, numbers)

    # Nothing of the driver that is stood for outlives the test.
    monkeypatch.setattr(launcher.Launcher, "__call__", start)
    monkeypatch.setattr(launcher, "_LAUNCHERS", {})
    monkeypatch.setattr(plans, "_PLANS", {})
    monkeypatch.setattr(reductions, "_totals", reductions._totals.__wrapped__)
    monkeypatch.setattr(replay, "stream_for", lambda _: STREAM)
    monkeypatch.setattr(replay, "copy_on_device", lambda: found.copy)
    return found


def problem(shared, listed, *, seed=0, soft=False):
    """Parts and cells of a small grid with ``listed`` spans."""
    source = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(*((2, 12, 8) if shared else (2, 3, 12, 8)), generator=source) for _ in range(2))
    u, v = (torch.randn(2, 3, 12, generator=source) for _ in range(2)) if shared else (None, None)
    spans = [(kind, first, 11) for kind in range(3) for first in range(12)][:listed]
    values = [[0.5] * len(spans), []] if soft else None
    labels = SpanLabels.from_lists([spans, []], num_types=3, num_tokens=12, values=values)
    scores = SpanScores(q, k, u, v, scale=0.5)
    return scores._parts(), _listed_cells(scores.lengths, True, labels, 0.0)


def named(launches, block, size):
    """The launches with addresses in the block counted from its start."""
    start, stop = block.data_ptr(), block.data_ptr() + 4 * size
    found = []
    for name, programs, stream, words, pointers in launches:
        places = [("block", word - start) if start <= word < stop else word for word in words[:pointers]]
        found.append((name, programs, stream, places, words[pointers:]))
    return found


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("listed", [1, 5, 17, 36])
def test_replays_launch_what_a_whole_call_launches(driver, shared, listed, soft):
    first = problem(shared, 3, soft=soft)
    _, memory = engine.loss(*first, 0.0, "mean")
    engine.loss_gradient(*first, torch.ones(()), memory)
    parts, cells = problem(shared, listed, seed=1, soft=soft)
    plan, _ = engine.planned(parts, cells)
    driver.launches.clear()
    value, (block,) = engine.loss(parts, cells, 0.0, "mean")
    made = engine.loss_gradient(parts, cells, torch.ones(()), (block,))
    replayed, driver.launches = driver.launches, []

    # The same by launching all of it, on the same memory.
    state, kept = replay.Block(plan).views(plan, block, listed)
    for launch in plan.sums_of(parts, cells, kept, state, 0.0, 1 / plan.problems):
        launch.run()
    total = engine.launch_sum(state[7], 1.0)[0]
    plan.pulls_of(parts, cells, kept, made, state, 0).run()
    size = replay.Block(plan).words(listed)
    ours, wanted = named(replayed, block, size), named(driver.launches, block, size)
    assert [each[0] for each in ours] == [*[each[0] for each in wanted[:-1]], "copy", wanted[-1][0]]
    assert ours[4][3][0] == ("block", 24 * plan.problems)
    ours.pop(4)
    for own, other in zip(ours, wanted, strict=True):
        if own[0] == "total_kernel":  # whose result is another scalar
            assert own[3][-1] == value.data_ptr()
            assert other[3][-1] == total.data_ptr()
            own[3].pop(), other[3].pop()
        assert own == other


@pytest.mark.parametrize("shared", [False, True])
def test_sections_of_a_block_do_not_overlap(shared):
    parts, cells = problem(shared, 7)
    plan, _ = engine.planned(parts, cells)
    block = replay.Block(plan)
    state, kept = block.views(plan, torch.empty(block.words(7)), 7)
    ints, floats = plan.sections(7)
    wanted = [8 * plan.problems, *ints, *floats]
    sections = [state, *kept]
    assert all(section.numel() >= size for section, size in zip(sections, wanted, strict=True))
    places = sorted((section.data_ptr(), section.data_ptr() + 4 * section.numel()) for section in sections if section.numel())
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(places))


def test_calls_that_cannot_be_replayed_are_launched(driver, monkeypatch):
    """Tensors that start anywhere, one tensor in two places, and another device."""
    parts, cells = problem(False, 3)
    engine.loss(parts, cells, 0.5, "sum")
    plan, _ = engine.planned(parts, cells)
    assert plan.losses[0.5, 1.0, True] is not None
    moved = torch.empty(parts.q.numel() + 1)[1:].view(parts.q.shape)
    assert len(engine.loss(parts._replace(q=moved), cells, 0.5, "sum")[1]) > 1
    monkeypatch.setattr(replay, "stream_for", lambda _: None)
    assert len(engine.loss(parts, cells, 0.5, "sum")[1]) > 1
    monkeypatch.setattr(replay, "stream_for", lambda _: STREAM)
    engine.loss(parts._replace(k=parts.q), cells, 0.25, "sum")
    assert plan.losses[0.25, 1.0, True] is None
