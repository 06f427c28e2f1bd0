"""Kernels started through the driver: what the driver would read must be what Triton's own launcher would give it."""

import ctypes
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from manyhot.kernels import triton_driver
from manyhot.kernels.triton_driver import SPARE, direct_start

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

    def launch(function, *about):
        *sizes, stream, params, _ = about
        heard.append(SimpleNamespace(function=function, sizes=sizes, stream=stream, params=params, answer=0))
        return heard[-1].answer

    monkeypatch.setattr(triton_driver, "_cuda_launch", lambda: launch)
    return heard


def read(params, *types):
    return [ctypes.cast(place, ctypes.POINTER(kind))[0] for place, kind in zip(params, types, strict=False)]


def test_parameters_lie_where_the_driver_looks_for_them(driver):
    start = direct_start(compiled_for(["*bf16", "*u8", "i32", "i64", "fp32", "constexpr"]), [True, True], 3)
    assert start(9, 1234, [2**40 + 16, 2**63 + 32], [-5, 2**40, 0.25])
    (launch,) = driver
    assert (launch.function, launch.sizes, launch.stream) == (77, [9, 1, 1, 128, 1, 1, 512], 1234)
    types = ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64, ctypes.c_float
    assert read(launch.params, *types) == [2**40 + 16, 2**63 + 32, -5, 2**40, 0.25]
    assert read(launch.params[5:], *[ctypes.c_uint64] * SPARE) == [0] * SPARE


def test_numbers_that_became_constants_are_left_out(driver):
    start = direct_start(compiled_for(["*fp32", "i32", "constexpr", "i32", "fp32"]), [True], 4)
    assert start(1, 0, [64], [7, 1, 9, 0.5])
    assert read(driver[0].params, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int32, ctypes.c_float) == [64, 7, 9, 0.5]


def test_tensors_that_are_not_there_are_null(driver):
    start = direct_start(compiled_for(["*fp32", "*u8", "*fp32", "i32"]), [True, False, True], 1)
    assert start(1, 0, [64, 128], [3])
    assert read(driver[0].params, *[ctypes.c_uint64] * 3, ctypes.c_int32) == [64, 0, 128, 3]


def test_calls_do_not_leave_traces_in_the_next(driver):
    start = direct_start(compiled_for(["*fp32", "i64"]), [True], 1)
    for address, number in ((8, 2**40), (16, 3)):
        start(1, 0, [address], [number])
        assert read(driver[-1].params, ctypes.c_uint64, ctypes.c_int64) == [address, number]


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
    assert direct_start(compiled, [True], 1) is None


def test_without_a_driver_triton_starts_everything(monkeypatch):
    monkeypatch.setattr(triton_driver, "_cuda_launch", lambda: None)
    assert direct_start(compiled_for(["*fp32", "i32"]), [True], 1) is None


def test_a_number_that_does_not_fit_is_an_error_and_not_another_number(driver):
    start = direct_start(compiled_for(["*fp32", "i32"]), [True], 1)
    with pytest.raises(Exception, match="format requires"):
        start(1, 0, [64], [2**31])
    assert not driver


def test_threads_do_not_write_into_each_others_parameters(monkeypatch):
    wrong = []

    def launch(function, *about):
        *_, stream, params, _ = about
        time.sleep(1e-4)  # another thread has its turn
        if read(params, ctypes.c_uint64, ctypes.c_int64) != [8 * stream, stream]:
            wrong.append(stream)
        return function - 77

    monkeypatch.setattr(triton_driver, "_cuda_launch", lambda: launch)
    start = direct_start(compiled_for(["*fp32", "i64"]), [True], 1)

    def call(number):
        return all(start(1, number, [8 * number], [number]) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(4)))
    assert not wrong
