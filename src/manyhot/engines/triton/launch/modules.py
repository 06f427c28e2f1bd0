"""Loads machine code through the CUDA driver, and runs Triton's compiler without Triton's driver.

Triton's driver is a C library that is compiled on first use. Triton's compiler hashes its own 400 MB before it looks into its
cache. Either takes longer than compiling a kernel, and neither is needed here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

# Constants of cuda.h.
_MAX_THREADS, _STATIC_SHARED, _MAX_DYNAMIC_SHARED = 0, 1, 8  # CU_FUNC_ATTRIBUTE_*
_SHARED_OPTIN = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_PREFER_SHARED = 1  # CU_FUNC_CACHE_PREFER_SHARED
# The shared memory that a program may use without opting in to more.
_USUAL_SHARED = 48 << 10


def load_binary(name: str, code: bytes, shared: int, device: int) -> tuple[int, int, int]:
    """Load machine code into the current context. Returns the module, its function ``name``, and the thread limit."""
    driver = ctypes.CDLL("libcuda.so.1")

    def call(function: str, *arguments: Any) -> None:
        answer = driver[function](*arguments)
        if answer:
            raise RuntimeError(f"{function} of the CUDA driver answered {answer}")

    def number(function: str, *arguments: Any) -> int:
        found = ctypes.c_int()
        call(function, ctypes.byref(found), *arguments)
        return found.value

    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuCtxGetCurrent", ctypes.byref(context))
    if not context.value:
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), code)
    call("cuModuleGetFunction", ctypes.byref(kernel), module, name.encode())
    most = number("cuDeviceGetAttribute", _SHARED_OPTIN, device)
    if shared > _USUAL_SHARED and most > _USUAL_SHARED:
        call("cuFuncSetCacheConfig", kernel, _PREFER_SHARED)
        own = number("cuFuncGetAttribute", _STATIC_SHARED, kernel)
        call("cuFuncSetAttribute", kernel, _MAX_DYNAMIC_SHARED, most - own)
    assert module.value is not None
    assert kernel.value is not None
    return module.value, kernel.value, number("cuFuncGetAttribute", _MAX_THREADS, kernel)


def raw_stream() -> Callable[[int], int]:
    """The function that returns the current stream of a device as an integer handle."""
    found: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return found or (lambda device: torch.cuda.current_stream(device).cuda_stream)


class Standin:
    """The part of Triton's driver that compiling needs. Any other attribute activates Triton's own driver and comes from it."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def get_current_device(self) -> int:
        """The number of the current device."""
        return torch.cuda.current_device()

    def get_current_stream(self, device: int) -> int:
        """The current stream of a device."""
        return raw_stream()(device)

    def get_current_target(self) -> Any:
        """The target to compile for."""
        from triton.backends.compiler import GPUTarget

        major, minor = torch.cuda.get_device_capability()
        return GPUTarget("cuda", 10 * major + minor, 32)

    def __getattr__(self, name: str) -> Any:
        self._config.set_active(self._config.default)
        return getattr(self._config.default, name)


@contextlib.contextmanager
def only_compiling() -> Iterator[None]:
    """A context in which Triton neither loads its driver nor hashes itself, unless it already has."""
    from triton.runtime import cache, driver

    stands_in = getattr(driver, "_active", driver) is None and getattr(driver, "_default", driver) is None
    standin, hashed = Standin(driver), getattr(cache, "triton_key", None)
    if stands_in:
        driver.set_active(standin)
    cheap = hashed is not None and hasattr(hashed, "cache_info") and not hashed.cache_info().currsize
    if cheap:
        cache.triton_key = cheap_key
    try:
        yield
    finally:
        if cheap:
            cache.triton_key = hashed
        if stands_in and driver._active is standin:
            driver._active = None


def cheap_key() -> str:
    """Replaces Triton's digest of itself: its version, and the path, size and modification time of its library."""
    import triton

    found = [Path(triton.__file__), *sorted(Path(triton.__file__).parent.joinpath("_C").glob("libtriton*.so"))]
    about = [(str(path), os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in found]
    return f"manyhot-{triton.__version__}-{about}"
