"""Repeated losses beside launched ones: the same kernels, addresses and numbers, read from what the driver is given."""

import ctypes
import threading
import types

import pytest
import torch

from manyhot import SparseLabels
from manyhot.engines.terms import DenseTerms, SparseTerms

pytest.importorskip("triton", reason="triton is not installed")

from manyhot.engines.triton import engine, half, half_replay, replay
from manyhot.engines.triton.launch import launcher
from manyhot.engines.triton.launch.direct import DirectKernel
from manyhot.engines.triton.launch.gate import GATE, LaunchError

STREAM = 7
WORKSPACE = torch.zeros(64, dtype=torch.int32)


class Metadata:
    num_warps, shared = 4, 0


class Compiled:
    """Stands for a kernel that Triton compiled."""

    function, metadata = 1234, Metadata


class Driver:
    """Stands for the driver: notes the addresses of every launch."""

    def __init__(self):
        self.launches, self.answer = [], 0

    def kernel(self, name, count):
        def launch(config, _function, params, _extra):
            words = [ctypes.cast(params[place], ctypes.POINTER(ctypes.c_int64))[0] for place in range(count)]
            self.launches.append((name, config._obj.sizes[0], config._obj.stream, words))
            return self.answer

        return DirectKernel(Compiled, [True] * count, ["i4x"], launch).bind(5, (3,))


@pytest.fixture
def driver(monkeypatch):
    for module in (replay, half):
        monkeypatch.setattr(module, "stream_finder", lambda: lambda _: STREAM)
        monkeypatch.setattr(module, "stream_for", lambda _: STREAM)
    for module in (replay, half, half_replay):
        monkeypatch.setattr(module, "workspace_of", lambda *_: WORKSPACE)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(replay, "REPLAYS", {})
    monkeypatch.setattr(engine, "REPLAYS", replay.REPLAYS)
    monkeypatch.setattr(half, "kept_tensor", lambda _, make: make())
    for name in ("_STARTS", "_WRITERS", "_EXPECTED"):
        monkeypatch.setattr(half, name, {})
    for name, value in (("failure", ""), ("warned", False)):
        monkeypatch.setattr(GATE, name, value)
    return Driver()


def problem(kind, dtype):
    """Scores, terms, and the tensors of the terms as a repeated call has them."""
    x = torch.randn(6, 9).to(dtype)
    labels = (torch.rand(6, 9) < 0.3).to(torch.uint8)
    lists = SparseLabels.from_dense(labels)
    if kind == "lists":
        return x, SparseTerms(lists.indices, lists.offsets), (lists.indices, lists.offsets)
    return x, DenseTerms(labels), (labels,)


def addresses(kind, x, tensors):
    return [each.data_ptr() for each in ((x, *tensors[::-1]) if kind == "lists" else (x, *tensors))]


@pytest.mark.parametrize("kind", ["dense", "lists"])
@pytest.mark.parametrize("summed", [False, True])
def test_a_repeated_loss_launches_its_kernels_on_its_tensors(driver, kind, summed):
    x, terms, tensors = problem(kind, torch.float32)
    key, inputs = replay.replay_key(x, terms, "split", 0.0, 1 / 6)
    first = driver.kernel("loss", len(inputs) + (3 if summed else 5))
    known = replay.Replay(first, driver.kernel("total", 2) if summed else None, torch.empty(()))
    replay.REPLAYS[key] = known
    value, grad = engine.repeats(x, terms, "split", 0.0, 1 / 6).run(x, tensors)
    assert (value.shape, value.dtype, grad.shape, grad.dtype) == ((), torch.float32, x.shape, x.dtype)
    own, driver.launches = driver.launches, []
    rows = torch.empty(6)
    assert known.run_into(x, inputs, value, grad, rows if summed else None)
    wanted = driver.launches
    assert [each[:3] for each in own] == [each[:3] for each in wanted]
    memory = own[0][3][len(inputs) + 1]  # of the values of rows, which is another one
    assert [[rows.data_ptr() if word == memory else word for word in each[3]] if summed else each[3] for each in own] == [
        each[3] for each in wanted
    ]
    assert own[0][3][: len(inputs) + 1] == addresses(kind, x, tensors)


@pytest.mark.parametrize("kind", ["dense", "lists"])
@pytest.mark.parametrize("summed", [False, True])
def test_a_repeated_loss_in_chunks_has_memory_of_its_own_for_their_sums(driver, kind, summed, monkeypatch):
    x, terms, tensors = problem(kind, torch.float32)
    key, inputs = replay.replay_key(x, terms, "split", 0.0, 1 / 6)
    first = driver.kernel("loss", len(inputs) + (5 if summed else 7))
    replay.REPLAYS[key] = replay.Replay(first, driver.kernel("total", 2) if summed else None, torch.empty(()), chunks=3)
    made, memory = [], replay.chunk_memory
    monkeypatch.setattr(replay, "chunk_memory", lambda *given: made.append(memory(*given)) or made[-1])
    run = engine.repeats(x, terms, "split", 0.0, 1 / 6).run
    value, grad = run(x, tensors)
    partial, arrived = made[0]
    assert partial.shape == (6, 3, 4)
    assert arrived.tolist() == [0] * 6 * replay.COUNTER_STRIDE
    (name, _, _, words), *rest = driver.launches
    assert name == "loss"
    assert words[: len(inputs) + 1] == addresses(kind, x, tensors)
    inner = [grad.data_ptr(), partial.data_ptr(), arrived.data_ptr()]
    ends = [] if summed else [value.data_ptr(), WORKSPACE.data_ptr()]
    assert words[len(inputs) + 2 :] == inner + ends
    assert rest == ([("total", 5, STREAM, [words[len(inputs) + 1], value.data_ptr()])] if summed else [])
    # Fewer programs at once than chunks would wait for each other in vain.
    for together, declined in ((3, False), (2, True)):
        monkeypatch.setattr(replay, "resident_programs", lambda _, count=together: count)
        assert (run(x, tensors) is None) is declined


@pytest.mark.parametrize("kind", ["dense", "lists"])
@pytest.mark.parametrize("summed", [False, True])
def test_a_repeated_loss_of_float16_and_its_backward_launch_their_kernels(driver, kind, summed):
    x, terms, tensors = problem(kind, torch.float16)
    key, inputs = replay.replay_key(x, terms, "split", 0.0, 1 / 6)
    loss = driver.kernel("loss", len(inputs) + (5 if summed else 7))
    half._STARTS[key] = half.HalfReplay(loss, driver.kernel("total", 2) if summed else None)
    again = half.half_repeats(x, terms, "split", 0.0, 1 / 6)
    _, held = again.run(x, tensors)
    assert again.scale(held, torch.ones(4)[0]) is None  # the kernel that writes a gradient again is not known yet
    half._WRITERS[key] = half.Writer(driver.kernel("again", len(inputs) + 5))
    driver.launches.clear()
    value, held = again.run(x, tensors)
    (name, programs, stream, words), *rest = driver.launches
    assert (name, programs, stream) == ("loss", 5, STREAM)
    assert words[: len(inputs) + 2] == [*addresses(kind, x, tensors), held.expected.data_ptr()]
    assert words[len(inputs) + 3 : len(inputs) + 5] == [held.grad.data_ptr(), held.used.data_ptr()]
    if summed:
        assert rest == [("total", 5, STREAM, [words[len(inputs) + 2], value.data_ptr()])]
    else:
        assert words[len(inputs) + 5 :] == [value.data_ptr(), WORKSPACE.data_ptr()]
        assert words[len(inputs) + 2] == WORKSPACE.data_ptr() + 4 * replay.COUNTER_STRIDE
    factor = torch.ones(4)[0]
    driver.launches.clear()
    assert again.scale(held, factor) is held.grad
    ends = [each.data_ptr() for each in (factor, held.expected, held.grad, held.used)]
    assert driver.launches == [("again", 5, STREAM, [*addresses(kind, x, tensors), *ends])]


@pytest.mark.parametrize("summed", [False, True])
def test_a_repeated_loss_of_float16_in_chunks_and_its_backward_have_memory_of_their_own(driver, summed, monkeypatch):
    x, terms, tensors = problem("dense", torch.float16)
    key, _ = replay.replay_key(x, terms, "split", 0.0, 1 / 6)
    loss = driver.kernel("loss", 8 if summed else 10)
    half._STARTS[key] = half.HalfReplay(loss, driver.kernel("total", 2) if summed else None, chunks=3)
    half._WRITERS[key] = half.Writer(driver.kernel("again", 8), chunks=3)
    made, memory = [], replay.chunk_memory
    monkeypatch.setattr(replay, "chunk_memory", lambda *given: made.append(memory(*given)) or made[-1])
    again = half.half_repeats(x, terms, "split", 0.0, 1 / 6)
    value, held = again.run(x, tensors)
    (_, _, _, words), *rest = driver.launches
    assert words[:3] == [*addresses("dense", x, tensors), held.expected.data_ptr()]
    parts = [each.data_ptr() for each in (held.grad, held.used, *made[0])]
    assert words[4:] == parts + ([] if summed else [value.data_ptr(), WORKSPACE.data_ptr()])
    assert rest == ([("total", 5, STREAM, [words[3], value.data_ptr()])] if summed else [])
    factor = torch.ones(4)[0]
    driver.launches.clear()
    assert again.scale(held, factor) is held.grad
    ends = [each.data_ptr() for each in (factor, held.expected, held.grad, held.used, *made[1])]
    assert driver.launches == [("again", 5, STREAM, [*addresses("dense", x, tensors), *ends])]
    monkeypatch.setattr(replay, "resident_programs", lambda _: 2)
    assert again.run(x, tensors) is None
    assert again.scale(held, factor) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_cannot_be_repeated_is_looked_at_in_full(driver, dtype, monkeypatch):
    """Scores that start anywhere, a driver that declines, a profiler, and an engine that failed."""
    x, terms, tensors = problem("dense", dtype)
    key, _ = replay.replay_key(x, terms, "split", 0.0, 1 / 6)
    replay.REPLAYS[key] = replay.Replay(driver.kernel("loss", 6), None, torch.empty(()))
    half._STARTS[key] = half.HalfReplay(driver.kernel("loss", 8), None)
    ways = half.half_repeats if dtype == torch.float16 else engine.repeats
    run = ways(x, terms, "split", 0.0, 1 / 6).run
    assert run(x, tensors) is not None
    moved = torch.empty(6 * 9 + 1, dtype=dtype)[1:].view(6, 9)
    assert run(moved, tensors) is None
    driver.answer = 1
    assert run(x, tensors) is None
    driver.answer = 0

    def broken(_):
        raise LaunchError("the driver is gone")

    for module in (replay, half):
        monkeypatch.setattr(module, "stream_finder", lambda: broken)
    with pytest.warns(RuntimeWarning, match="the driver is gone"):
        assert ways(x, terms, "split", 0.0, 1 / 6).run(x, tensors) is None
    assert run(x, tensors) is None  # the engine is off now


def test_a_hook_on_launches_leaves_them_to_triton(monkeypatch):
    class Runtime:
        launch_enter_hook = launch_exit_hook = None

    monkeypatch.setattr(launcher, "_hooks", lambda: Runtime)
    monkeypatch.setattr(launcher, "_one_device", lambda: True)
    monkeypatch.setattr(launcher, "_stream_of", lambda: lambda device: 40 + device)
    find = launcher.stream_finder()
    assert find(2) == 42
    monkeypatch.setattr(Runtime, "launch_exit_hook", print)
    assert find(2) is None
    monkeypatch.setattr(launcher, "_one_device", lambda: False)
    assert launcher.stream_finder() is launcher.stream_for


def test_what_outlives_a_call_is_allocated_by_another_thread_and_waited_for(monkeypatch):
    """Allocations of the thread that warms up a CUDA graph of the compiler go to the memory pool of the graph."""
    threads, waits = [], []

    def make():
        threads.append(threading.get_ident())
        made = torch.zeros(3)
        made.record_stream = waits.append
        return made

    current = types.SimpleNamespace(wait_stream=waits.append)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _: "default")
    assert replay.kept_tensor(0, make).tolist() == [0, 0, 0]
    assert threads != [threading.get_ident()]
    assert waits == ["default", current]


def test_the_template_of_losses_is_kept_outside_graphs_and_not_made_while_one_is_captured(monkeypatch):
    made = []
    monkeypatch.setattr(replay, "_scalar_of", lambda device: made.append(device) or torch.empty(()))
    scores = types.SimpleNamespace(is_cuda=True, get_device=lambda: 3)
    for capturing in (True, False):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda capturing=capturing: capturing)
        assert (replay.scalar_for(scores) is None) == capturing
    assert made == [3]


def test_calls_in_captured_graphs_take_parts_of_zeroed_memory_until_it_is_used_up(monkeypatch):
    monkeypatch.setattr(replay, "kept_tensor", lambda _, make: make())
    monkeypatch.setattr(replay, "ARENA", 5 * replay.COUNTER_STRIDE)
    monkeypatch.setattr(torch, "zeros", lambda size, dtype, **_: torch.arange(size, dtype=dtype))
    arena = replay._Arena(0)
    first, second = arena.take(replay.COUNTER_STRIDE + 5), arena.take(replay.COUNTER_STRIDE + 64)
    assert first.tolist() == list(range(replay.COUNTER_STRIDE + 5))
    assert second.tolist() == list(range(2 * replay.COUNTER_STRIDE, 5 * replay.COUNTER_STRIDE))
    assert arena.take(1) is None
