"""Kernels started through the driver: what the driver would read must be what Triton's own launcher would give it."""

import ctypes
import shutil
import subprocess
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from manyhot.engines.triton.launch import direct
from manyhot.engines.triton.launch.direct import SPARE, DirectKernel, direct_kernel

DRIVER = """
#include <stdint.h>
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned num_attributes;
} Config;
uint64_t seen[16];
int launch(const Config *c, void *f, void **params, void **extra) {
    uint64_t found[] = {(uint64_t)f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                        (uint64_t)c->stream, (uint64_t)extra, (uint64_t)c->attributes, c->num_attributes,
                        *(uint64_t *)params[0], *(uint64_t *)params[1], *(uint32_t *)params[2], *(uint32_t *)params[3]};
    for (int i = 0; i < 16; i++) seen[i] = found[i];
    return c->stream == 0;
}
"""

Metadata = namedtuple(
    "Metadata",
    "num_warps shared num_ctas launch_cooperative_grid launch_pdl global_scratch_size profile_scratch_size",
    defaults=(1, False, False, 0, 0),
)


def compiled_for(kinds, metadata=None):
    """What Triton gives for arguments of these kinds, in their order."""
    source = SimpleNamespace(signature={f"argument_{place}": kind for place, kind in enumerate(kinds)})
    return SimpleNamespace(function=77, src=source, metadata=metadata or Metadata(num_warps=4, shared=512))


@pytest.fixture
def driver(monkeypatch):
    """A driver that writes down what it is asked for."""
    heard = []

    def launch(config, function, params, extra):
        about = config._obj
        attributes = ctypes.string_at(about.attributes, 72) if about.attributes else None
        assert (extra, about.num_attributes) == (None, 0 if attributes is None else 1)
        own = {"function": function.value, "sizes": list(about.sizes), "stream": about.stream, "params": params}
        heard.append(SimpleNamespace(**own, attributes=attributes))
        return 0

    monkeypatch.setattr(direct, "cuda_launch", lambda: launch)
    return heard


def read(params, *types):
    return [ctypes.cast(place, ctypes.POINTER(kind))[0] for place, kind in zip(params, types, strict=False)]


def test_parameters_lie_where_the_driver_looks_for_them(driver):
    start = direct_kernel(compiled_for(["*bf16", "*u8", "i32", "i64", "fp32", "constexpr"]), [True, True], 3)
    assert start(9, 1234, [2**40 + 16, 2**63 + 32], (-5, 2**40, 0.25))
    (launch,) = driver
    assert (launch.function, launch.sizes, launch.stream) == (77, [9, 1, 1, 128, 1, 1, 512], 1234)
    types = ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64, ctypes.c_float
    assert read(launch.params, *types) == [2**40 + 16, 2**63 + 32, -5, 2**40, 0.25]
    assert read(launch.params[5:], *[ctypes.c_uint64] * SPARE) == [0] * SPARE


@pytest.mark.parametrize("early", [False, True])
def test_a_kernel_that_waits_by_itself_may_start_before_the_one_before_has_ended(driver, early):
    metadata = SimpleNamespace(num_warps=4, shared=0, num_ctas=1, early=early)
    start = direct_kernel(compiled_for(["*fp32", "i32"], metadata), [True], 1)
    assert all(start(1, stream, [64], (7,)) for stream in (3, 5, 3))
    # cudaLaunchAttributeProgrammaticStreamSerialization, padding, and 1 in a union of 64 bytes
    wanted = (6).to_bytes(8, "little") + (1).to_bytes(64, "little") if early else None
    assert [launch.attributes for launch in driver] == 3 * [wanted]


def test_numbers_that_became_constants_are_left_out(driver):
    start = direct_kernel(compiled_for(["*fp32", "i32", "constexpr", "i32", "fp32"]), [True], 4)
    assert start(1, 0, [64], (7, 1, 9, 0.5))
    assert read(driver[0].params, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int32, ctypes.c_float) == [64, 7, 9, 0.5]


def test_tensors_that_are_not_there_are_null(driver):
    start = direct_kernel(compiled_for(["*fp32", "*u8", "*fp32", "i32"]), [True, False, True], 1)
    assert start(1, 0, [64, 128], (3,))
    assert read(driver[0].params, *[ctypes.c_uint64] * 3, ctypes.c_int32) == [64, 0, 128, 3]


def test_calls_do_not_leave_traces_in_the_next(driver):
    start = direct_kernel(compiled_for(["*fp32", "i64"]), [True], 1)
    for address, number in ((8, 2**40), (16, 3)):
        start(1, 0, [address], (number,))
        assert read(driver[-1].params, ctypes.c_uint64, ctypes.c_int64) == [address, number]


def test_numbers_and_streams_are_kept_apart(driver):
    start = direct_kernel(compiled_for(["*fp32", "i32"]), [True], 1)
    found = []
    for number in (*range(2 * direct.MOST), 0, 1):
        for stream in (None, 5, number + 6):
            assert start(number + 1, stream or 0, [64 + 16 * number], (number,))
            launch = driver[-1]
            found.append((*read(launch.params, ctypes.c_uint64, ctypes.c_int32), launch.sizes[0], launch.stream))
            assert found[-1] == (64 + 16 * number, number, number + 1, stream)
    bound = start.bind(1, (0,))
    assert bound is start.bind(1, (0,))
    assert all(bound(stream, [64]) and driver[-1].stream == stream for stream in range(1, 3 * direct.MOST))
    assert len(bound.calls) <= direct.MOST >= len(start.bound)


def test_ctypes_hands_on_what_the_driver_is_called_with(tmp_path):
    """The arguments have no types on this side; a C function that writes them down says what arrives."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "driver.c"
    source.write_text(DRIVER)
    library = tmp_path / "driver.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    fake = ctypes.CDLL(str(library))
    function = 2**47 + 3
    compiled = compiled_for(["*fp32", "*u8", "i32", "fp32"], Metadata(num_warps=32, shared=232448))
    compiled.function = function
    start = DirectKernel(compiled, [True, True], ["i4x", "f4x"], fake["launch"])
    assert start(2**31 - 1, 2**46 + 8, [2**48 + 16, 2**63 + 32], (-7, 0.5))
    seen = (ctypes.c_uint64 * 16).in_dll(fake, "seen")
    assert list(seen[:12]) == [function, 2**31 - 1, 1, 1, 1024, 1, 1, 232448, 2**46 + 8, 0, 0, 0]
    assert list(seen[12:16]) == [2**48 + 16, 2**63 + 32, 2**32 - 7, 0x3F000000]
    assert not start(1, 0, [0, 0], (0, 0.0)), "an answer that is not 0 is an error"


@pytest.mark.parametrize(
    "compiled",
    [
        compiled_for(["*fp32", "u64"]),
        compiled_for(["nvTmaDesc", "i32"]),
        compiled_for(["*fp32"]),
        compiled_for(["*fp32", "i32"], Metadata(4, 0, num_ctas=2)),
        compiled_for(["*fp32", "i32"], Metadata(4, 0, launch_cooperative_grid=True)),
        compiled_for(["*fp32", "i32"], Metadata(4, 0, launch_pdl=True)),
        compiled_for(["*fp32", "i32"], Metadata(4, 0, global_scratch_size=128)),
        SimpleNamespace(),
    ],
)
@pytest.mark.usefixtures("driver")
def test_what_it_does_not_know_is_left_to_triton(compiled):
    assert direct_kernel(compiled, [True], 1) is None


def test_without_a_driver_triton_starts_everything(monkeypatch):
    monkeypatch.setattr(direct, "cuda_launch", lambda: None)
    assert direct_kernel(compiled_for(["*fp32", "i32"]), [True], 1) is None


def test_a_number_that_does_not_fit_is_an_error_and_not_another_number(driver):
    start = direct_kernel(compiled_for(["*fp32", "i32"]), [True], 1)
    with pytest.raises(Exception, match="format requires"):
        start(1, 0, [64], (2**31,))
    assert not driver


def test_threads_do_not_write_into_each_others_parameters(monkeypatch):
    wrong = []

    def launch(config, function, params, _):
        stream = config._obj.stream
        time.sleep(1e-4)  # another thread has its turn
        if read(params, ctypes.c_uint64, ctypes.c_int64) != [8 * stream, 5]:
            wrong.append(stream)
        return function.value - 77

    monkeypatch.setattr(direct, "cuda_launch", lambda: launch)
    start = direct_kernel(compiled_for(["*fp32", "i64"]), [True], 1)

    def call(number):
        return all(start(1, number, [8 * number], (5,)) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(1, 5)))
    assert not wrong
