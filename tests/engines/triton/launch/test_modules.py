"""Loading without Triton's driver: what the CUDA driver is asked, and what is left behind."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from manyhot.engines.triton.launch import modules

pytest.importorskip("triton", reason="triton is not installed")


class Driver:
    """Stands for the CUDA driver: notes what it is asked."""

    def __init__(self, optin=232448, context=77, failing=None):
        self.asked, self.optin, self.context, self.failing = [], optin, context, failing

    def __getitem__(self, name):
        return lambda *arguments: self.answer(name, *arguments)

    def answer(self, name, *arguments):
        plain = [each for each in arguments if not hasattr(each, "_obj")]
        self.asked.append((name, *[each.value if isinstance(each, ctypes.c_void_p) else each for each in plain]))
        if name == self.failing:
            return 209
        values = {"cuCtxGetCurrent": self.context, "cuModuleLoadData": 5, "cuModuleGetFunction": 6}
        values |= {"cuDevicePrimaryCtxRetain": 78, "cuDeviceGetAttribute": self.optin}
        if name == "cuFuncGetAttribute":
            values[name] = {0: 1024, 1: 16}[plain[0]]
        if name in values:
            arguments[0]._obj.value = values[name]
        return 0


def load(monkeypatch, driver, shared):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    return modules.load_binary("toy_kernel", b"\x7fELF\x00code", shared, 2)


def test_machine_code_is_loaded_and_its_function_found(monkeypatch):
    driver = Driver()
    assert load(monkeypatch, driver, 1000) == (5, 6, 1024)
    assert ("cuModuleLoadData", b"\x7fELF\x00code") in driver.asked
    assert ("cuModuleGetFunction", 5, b"toy_kernel") in driver.asked
    assert not any(name in ("cuFuncSetAttribute", "cuCtxSetCurrent") for name, *_ in driver.asked)


def test_a_program_with_much_shared_memory_asks_for_all_there_is(monkeypatch):
    driver = Driver()
    load(monkeypatch, driver, 100_000)
    assert ("cuFuncSetCacheConfig", 6, 1) in driver.asked
    assert ("cuFuncSetAttribute", 6, 8, 232448 - 16) in driver.asked
    small = Driver(optin=48 << 10)
    load(monkeypatch, small, 100_000)
    assert not any(name == "cuFuncSetAttribute" for name, *_ in small.asked)


def test_a_thread_without_a_context_gets_that_of_the_device(monkeypatch):
    driver = Driver(context=None)
    load(monkeypatch, driver, 0)
    assert ("cuDevicePrimaryCtxRetain", 2) in driver.asked
    assert ("cuCtxSetCurrent", 78) in driver.asked


def test_what_the_driver_declines_is_an_error(monkeypatch):
    with pytest.raises(RuntimeError, match="cuModuleLoadData of the CUDA driver answered 209"):
        load(monkeypatch, Driver(failing="cuModuleLoadData"), 0)


class Config:
    """Stands for Triton's settings of its driver."""

    def __init__(self, active=None):
        self._active, self._default, self.made = active, None, 0

    @property
    def default(self):
        if self._default is None:
            self.made += 1
            self._default = SimpleNamespace(launcher_cls="launcher", utils="utilities")
        return self._default

    def set_active(self, driver):
        self._active = driver


def key():
    return "digest of everything"


key.cache_info = lambda: SimpleNamespace(currsize=0)


@pytest.fixture
def triton_parts(monkeypatch):
    """Triton's settings and cache as in a new process."""
    from triton import runtime
    from triton.runtime import cache

    config = Config()
    monkeypatch.setattr(runtime, "driver", config)
    monkeypatch.setattr(cache, "triton_key", key)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (12, 0))
    return config, cache


def test_compiling_makes_no_driver_and_leaves_triton_as_it_was(triton_parts):
    config, cache = triton_parts
    with modules.only_compiling():
        assert config._active.get_current_device() == 3
        assert config._active.get_current_target().arch == 120
        assert "libtriton" in cache.triton_key()
    assert (config._active, config.made, cache.triton_key) == (None, 0, key)
    with pytest.raises(ZeroDivisionError), modules.only_compiling():
        1 / 0  # noqa: B018
    assert (config._active, cache.triton_key) == (None, key)


def test_whoever_launches_meanwhile_gets_tritons_driver(triton_parts):
    config, _ = triton_parts
    with modules.only_compiling():
        assert config._active.utils == "utilities"
        assert config._active is config.default
    assert config._active is config.default


def test_a_driver_and_a_digest_that_are_there_are_used(triton_parts, monkeypatch):
    config, cache = triton_parts
    monkeypatch.setattr(key, "cache_info", lambda: SimpleNamespace(currsize=1))
    config._active = own = object()
    with modules.only_compiling():
        assert config._active is own
        assert cache.triton_key is key
    assert config._active is own


@pytest.mark.gpu
def test_the_current_stream_is_that_of_torch():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert modules.raw_stream()(0) == stream.cuda_stream
    assert modules.raw_stream()(0) == torch.cuda.current_stream().cuda_stream
