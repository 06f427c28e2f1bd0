"""The native engine on a 64-bit ARM processor (NEON), emulated; Debian: qemu-user, gcc-aarch64-linux-gnu and
libc6-dev-arm64-cross."""

import ctypes
import runpy
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import torch

from engines.oracle import check_engine
from engines.pairs_oracle import check_pairs, check_sure_pairs
from manyhot.engines.native import calls
from manyhot.engines.native import engine as native
from manyhot.engines.native.library import Job
from manyhot.engines.terms import DenseTerms

ROOT = Path(__file__).resolve().parents[3]
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
POINTERS = [(name, getattr(Job, name).offset) for name, kind in Job._fields_ if kind is ctypes.c_void_p]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which(COMPILER) and shutil.which(EMULATOR)), reason=f"needs {COMPILER} and {EMULATOR}"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The engine as a program for the other processor, running."""
    path = tmp_path_factory.mktemp("emulated") / "engine"
    build = runpy.run_path(str(ROOT / "hatch_build.py"))
    flags = [flag for flag in build["FLAGS"] if flag not in ("-shared", "-fPIC")]
    source = Path(__file__).with_name("emulated.c")
    command = [COMPILER, *flags, "-static", f"-I{build['NATIVE']}", str(source), "-o", str(path), "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    with subprocess.Popen([EMULATOR, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        yield running
        running.stdin.close()
        assert running.wait(20) == 0


@pytest.fixture
def emulated(program, monkeypatch):
    """Calls of the engine go to the program, which has one instruction set."""
    send_there(program, monkeypatch)


def send_there(program, monkeypatch):
    for module in (native, calls):
        monkeypatch.setattr(module, "variants", lambda: ("plain",))
    monkeypatch.setattr(native.Call, "run", lambda call: run_there(program, call))


def run_there(program, call):
    """Send a job with its memory, and take the memory back."""
    job, memory, places = Job.from_buffer_copy(call.job), bytearray(), {}
    for tensor in call.alive:
        size = bytes_behind(tensor)
        places[tensor.data_ptr()] = (len(memory), size)
        memory += ctypes.string_at(tensor.data_ptr(), size) + bytes(-size % 64)
    for name, _ in POINTERS:
        address = getattr(call.job, name)
        setattr(job, name, ctypes.c_void_p(places[address][0] if address else -1).value)
    head = struct.pack(f"<{2 + len(POINTERS)}q", len(POINTERS), len(memory), *(place for _, place in POINTERS))
    program.stdin.write(head + bytes(job) + memory)
    program.stdin.flush()
    back = program.stdout.read(len(memory))
    assert len(back) == len(memory), program.poll()
    for address, (offset, size) in places.items():
        ctypes.memmove(address, back[offset : offset + size], size)


def bytes_behind(tensor):
    """How many bytes a tensor reaches from its first entry."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_loss_is_that_of_the_plain_form(emulated, dtype):
    check_engine(native, "cpu", dtype, ((3, 5), (40, 20), (2, 2049), (1, 5000)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_pairs_are_those_of_the_plain_form(emulated, dtype):
    check_pairs(native, "cpu", dtype, shapes=((3, 5), (7, 33)))
    check_sure_pairs(native, "cpu", dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_hostile_scores_give_what_they_give_here(program, monkeypatch, dtype):
    inf, nan = float("inf"), float("nan")
    x = torch.randn(6, 37, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[0, ::2], x[1, 5], x[2, 7], x[3], x[4] = inf, -inf, nan, 60000.0, -60000.0
    terms = DenseTerms(torch.arange(6 * 37).reshape(6, 37) % 5 == 0)
    here = native.fused(x, terms, "split", 0.0, 0.5, variant="plain")
    send_there(program, monkeypatch)
    there = native.fused(x, terms, "split", 0.0, 0.5, variant="plain")
    for one, two in zip(here[:2], there[:2], strict=True):
        torch.testing.assert_close(one, two, equal_nan=True)
