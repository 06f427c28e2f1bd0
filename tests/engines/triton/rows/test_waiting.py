"""Programs that wait for each other: never more than run at once, and an error instead of a hang if one is missing."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from manyhot.engines.triton.launch import residency

MISSING = """
import sys
import torch
import triton.language as tl
from manyhot.engines.triton.rows import waiting
waiting.COUNT_LOOK = tl.constexpr(waiting.COUNT_LOOK.value.replace(str(waiting.PATIENCE), "4096"))
from manyhot.engines.terms import DenseTerms
from manyhot.engines.triton import engine
from manyhot.engines.triton.launch.launcher import Launcher
launch = Launcher.__call__
Launcher.__call__ = lambda self, programs, *given: launch(self, programs - 1, *given)
x = torch.randn(1, 131_072, device="cuda", dtype=getattr(torch, sys.argv[1]))
labels = torch.zeros(x.shape, dtype=x.dtype if sys.argv[2] == "soft" else torch.uint8, device="cuda")
engine.fused(x, DenseTerms(labels))
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print("told", type(error).__name__)
"""


GREEN = """
import torch
from torch.cuda.green_contexts import GreenContext
from manyhot.engines.terms import DenseTerms
from manyhot.engines.triton import engine
from manyhot.engines.triton.launch.residency import multiprocessors
x = torch.randn(64, 500_000, device="cuda")
terms = DenseTerms((torch.rand(x.shape, device="cuda") < 1e-4).to(torch.uint8))
wanted = engine.fused(x, terms)[:2]
torch.cuda.synchronize()
context = GreenContext.create(num_sms=16, device_id=0)
context.set_context()
assert multiprocessors(0, of_context=True) <= 24
found = engine.fused(x, terms)[:2]
torch.cuda.synchronize()
context.pop_context()
for one, two in zip(found, wanted):
    torch.testing.assert_close(one, two)
print("agrees")
"""


GREEN_STREAM = """
import ctypes
import torch
from manyhot.engines.terms import DenseTerms
from manyhot.engines.triton import engine
from manyhot.engines.triton.launch.residency import multiprocessors
x = torch.randn(64, 500_000, device="cuda")
terms = DenseTerms((torch.rand(x.shape, device="cuda") < 1e-4).to(torch.uint8))
wanted = engine.fused(x, terms)[:2]
torch.cuda.synchronize()
driver = ctypes.CDLL("libcuda.so.1")
def ask(name, *arguments):
    assert driver[name](*arguments) == 0, name
whole, part, rest = ((ctypes.c_uint * 64)() for _ in range(3))
count, about, green, stream = ctypes.c_uint(1), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
ask("cuDeviceGetDevResource", 0, ctypes.byref(whole), 1)
ask("cuDevSmResourceSplitByCount", ctypes.byref(part), ctypes.byref(count), ctypes.byref(whole), ctypes.byref(rest), 0, 16)
ask("cuDevResourceGenerateDesc", ctypes.byref(about), ctypes.byref(part), 1)
ask("cuGreenCtxCreate", ctypes.byref(green), about, 0, 1)
ask("cuGreenCtxStreamCreate", ctypes.byref(stream), green, 1, 0)
with torch.cuda.stream(torch.cuda.ExternalStream(stream.value)):
    assert multiprocessors(0, of_context=True) <= 24, multiprocessors(0, of_context=True)
    found = engine.fused(x, terms)[:2]
    torch.cuda.current_stream().synchronize()
assert multiprocessors(0, of_context=True) > 24
for one, two in zip(found, wanted):
    torch.testing.assert_close(one, two)
print("agrees")
"""


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "kind"), [("bfloat16", "hard"), ("bfloat16", "soft"), ("float32", "hard")])
def test_a_program_that_never_comes_is_an_error_and_no_hang(dtype, kind):
    command = [sys.executable, "-W", "ignore", "-c", MISSING, dtype, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert "told" in done.stdout, done.stderr[-2000:]


class Driver:
    """A driver whose current context has some of the multiprocessors."""

    def __init__(self, resource=None, affinity=None, context=1, green=None):
        self.answers = {"cuCtxGetDevResource": resource, "cuCtxGetExecAffinity": affinity, "cuCtxGetCurrent": context}
        self.answers |= {"cuGreenCtxGetDevResource": green, "cuStreamGetGreenCtx": green and 1}

    def __getitem__(self, name):
        if name == "cuCtxGetExecAffinity" and self.answers[name] is None:
            raise AttributeError(name)
        return lambda *arguments: self.answer(name, *arguments)

    def answer(self, name, *arguments):
        found = self.answers[name]
        if found is None:
            return 801  # not supported
        if name in ("cuCtxGetCurrent", "cuStreamGetGreenCtx"):
            arguments[-1]._obj.value = found
        else:
            table, place = (arguments[0], 1) if "Affinity" in name else (arguments[1], residency._SM_COUNT_AT // 4)
            table._obj[place] = found
        return 0


@pytest.mark.parametrize(
    ("driver", "count"),
    [
        (Driver(), 132),
        (Driver(resource=132, affinity=132), 132),
        (Driver(resource=32), 32),
        (Driver(resource=132, affinity=66), 66),
        (Driver(resource=0), 132),
        (Driver(resource=32, context=None), 132),
        (Driver(resource=132, green=16), 16),
        (None, 132),
    ],
)
def test_a_context_with_a_part_of_the_device_is_noticed(monkeypatch, driver, count):
    monkeypatch.setattr(residency, "_driver", lambda: driver)
    monkeypatch.setattr(residency, "_of_device", lambda _: 132)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert residency.multiprocessors(0, of_context=True) == count
    assert residency.multiprocessors(0, of_context=False) == 132


@pytest.mark.gpu
def test_the_driver_says_how_many_multiprocessors_there_are():
    torch.zeros(1, device="cuda")
    asked = residency._of_context()
    assert len(asked) > 1, "the driver answered nothing"
    assert residency.multiprocessors(0, of_context=True) == torch.cuda.get_device_properties(0).multi_processor_count


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("program", [GREEN, GREEN_STREAM], ids=["current", "of the stream"])
def test_a_green_context_gets_no_more_programs_a_row_than_it_runs(program):
    pytest.importorskip("torch.cuda.green_contexts", reason="this torch has no green contexts")
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert "agrees" in done.stdout, done.stderr[-2000:]
